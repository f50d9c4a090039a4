"""Tessel Explorer's core library: placements, schedules and what they cost, without any user interface."""

__version__ = "0.1.0"
