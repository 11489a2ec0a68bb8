"""The command line: one command a file, no numerics."""

import json
import sys
from contextlib import suppress

INTERRUPTED = 130
"""The exit code after Ctrl-C."""
INTERRUPTED_MESSAGE = "Interrupted; no file was left half written."


answered = False
"""Whether the one object of ``--json`` is on stdout, as when only the file of a result cannot be written."""


def say_failure(message: str, code: int, *, as_json: bool) -> None:
    """The sentence on stderr, and where ``--json`` was asked for and not answered an object with it on stdout."""
    if as_json and not answered:
        with suppress(OSError):  # nobody reads it any more, or the disk is full: the sentence below is left
            sys.stdout.write(json.dumps({"error": message, "exit_code": code}) + "\n")
            sys.stdout.flush()
    sys.stderr.write(f"{message}\n")  # in one piece: a timer may print a line of progress meanwhile
