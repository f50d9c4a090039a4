"""Running what was found: what each rank does in which order, and whether that can hang."""
