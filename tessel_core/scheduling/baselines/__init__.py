"""Published schedules, one file per schedule or family. Each runs its published order."""
