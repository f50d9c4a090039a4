"""Running what was found: programs and schedules on processes of this machine, and what a run is like."""
