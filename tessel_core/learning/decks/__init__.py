"""One module per deck."""
