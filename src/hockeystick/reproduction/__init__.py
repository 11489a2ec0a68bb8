"""The figures and tables of the five papers, computed again."""
