"""State of one user's work, between solvers and screens: workspace, background runs, stored answers, sentences."""
