"""Sweeps of solver runs over placements, schedulers, meshes and memories, on this machine or on a cluster.

Each result is stored at once in the sweep's file, so an interrupted sweep can resume.
"""
