"""Baseline placers, which prove nothing and serve for comparison."""
