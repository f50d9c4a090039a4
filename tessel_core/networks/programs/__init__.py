"""Programs from files, from schedules of plans, and from small networks for plans."""
