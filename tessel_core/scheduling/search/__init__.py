"""The parts of the searches: models for CP-SAT, bounds by solver, local searches, completion."""
