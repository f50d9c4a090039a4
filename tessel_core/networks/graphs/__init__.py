"""Operator graphs of networks: builders, derived backward passes, and layers merged into single operators."""
