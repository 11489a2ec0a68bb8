"""The family of balls-in-bins, for any strategy matrix."""
