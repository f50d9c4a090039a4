"""What the searches are made of: models, bounds by solver, completion, and how they ask CP-SAT."""
