"""Shared code of tests: an independent simulator, brute-force oracles, random plans, and readers of exported files."""
