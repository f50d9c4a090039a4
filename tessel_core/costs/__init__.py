"""Costs of operators on real devices, in seconds and bytes: measured where possible, estimated by stated formulas."""
