"""The command line: one command a file, no numerics."""
