"""One module per level."""
