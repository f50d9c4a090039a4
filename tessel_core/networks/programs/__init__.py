"""Builders of programs: networks for one device, to be distributed by transforms, schedules of plans, and files."""
