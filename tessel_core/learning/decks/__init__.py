"""One file a deck."""
