"""The parts of the schedule search: models for CP-SAT, bounds by solver, local searches, and completion."""
