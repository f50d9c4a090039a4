"""Layered drawing of an operator graph."""
