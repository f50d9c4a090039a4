"""Run programs and schedules on processes of this machine, and measure the runs."""
