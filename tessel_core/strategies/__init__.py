"""Strategies: a network spread over a mesh in every way that a grid names, and which of them are best."""
