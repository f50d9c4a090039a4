"""Costs of operators on real devices, in seconds and bytes: measured if possible, else estimated by stated formulas."""
