"""Published schedules, one file per schedule or family of schedules. Each scheduler runs the published order."""
