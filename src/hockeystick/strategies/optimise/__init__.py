"""Strategy matrices of least error."""
