"""Parallel strategies: distribute a network over a mesh, time each configuration of a grid, and find the best ones."""
