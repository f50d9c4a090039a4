"""Parallel strategies: distribute a network over a mesh, compute step time and memory, and find the best strategies."""
