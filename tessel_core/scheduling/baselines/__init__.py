"""Published schedules, one file each, run as their published order."""
