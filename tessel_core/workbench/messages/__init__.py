"""Results in sentences, key numbers and table rows, the same on every surface."""
