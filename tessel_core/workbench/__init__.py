"""The application room, between solvers and screens: what one person works on, its runs, answers and store."""
