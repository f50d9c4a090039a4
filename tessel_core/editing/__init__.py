"""Changes by hand to plans, schedules and placements, checked against their rules."""
