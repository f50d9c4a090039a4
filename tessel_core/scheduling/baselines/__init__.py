"""Published schedules, a file each or a file a family, run as their published order."""
