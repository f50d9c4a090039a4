"""Placements for the latency of one sample: subgraphs of accelerators, and hosts that run what is left."""
