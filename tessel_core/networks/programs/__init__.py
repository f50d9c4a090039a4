"""Programs that are read from files, made from schedules, or built for small networks with a plan's structure."""
