"""Sweeps: many solver runs over placements, schedulers, meshes and memory sizes, on this machine or on a cluster.

Each result is stored in the sweep's file at once, so an interrupted sweep can be resumed.
"""
