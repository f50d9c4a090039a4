"""Entries that this package adds to Tessel Explorer's tables."""
