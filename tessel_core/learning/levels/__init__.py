"""Levels of the course. Each module defines one level."""
