"""Programs that are read from files, made from a schedule, or built from a small network with the structure of a
plan."""
