"""Placements for the latency of one sample: subgraphs on accelerators, and all other operators on hosts."""
