"""The command line: one command a file, no numerics."""

INTERRUPTED = 130
"""The exit code after Ctrl-C."""
INTERRUPTED_MESSAGE = "Interrupted; no file was left half written."
