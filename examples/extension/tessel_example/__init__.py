"""Entries that this package adds to the tables of Tessel Explorer."""
