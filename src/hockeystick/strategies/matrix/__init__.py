"""The matrix C of a strategy for a given number of steps, as a lazy operator: one structure a file."""
