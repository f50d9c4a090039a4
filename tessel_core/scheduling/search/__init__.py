"""The schedule search: models for CP-SAT, bounds from CP-SAT, local searches, and warmup and cooldown of a period."""
