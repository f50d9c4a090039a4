"""Sweeps that need solving: placement × schedule search × meshes × memories, on this machine or on a cluster.

Results are kept one by one in a file of their own, so a sweep that ends early goes on where it stopped.
"""
