"""Costs of operators on real devices, in seconds and bytes. They are measured, or else estimated by formulas."""
