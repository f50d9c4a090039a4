"""Plans, schedules and placements changed by hand, and what that breaks."""
