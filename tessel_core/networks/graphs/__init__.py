"""Operator graphs of networks: how they are built, how their backward pass is derived, and how layers are merged."""
