"""Which cells of a family of slow tests are in every whole run; the others wait for the weekly one.

A family is a test with all its parameters. In every whole run are the cells that kill a planted fault, and of the
others as many as it takes that each value of each parameter occurs, and each two values of parameters that have but two
(side and direction, say). Of random repetitions a quarter counts.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from itertools import combinations
from math import ceil
from pathlib import Path

REPETITIONS = frozenset({"block", "chunk", "seed"})
"""Parameters whose values are random repetitions of each other."""
SHARE = 4
"""One in so many repetitions is in every whole run."""

Parameters = Mapping[str, object]


def killers(tables: Path) -> frozenset[str]:
    """The tests that the tables of planted faults name."""
    pages = "".join(page.read_text() for page in sorted(tables.glob("*_faults.md")))
    return frozenset(re.findall(r" `(tests/[^`]+::[^`]+)`", pages))


def covering(cells: Mapping[str, Parameters], always: AbstractSet[str]) -> set[str]:
    """The cells of one family that are in every whole run.

    Args:
        cells: the parameters of each identifier, in the order of the tests.
        always: identifiers that are kept whatever they cover.
    """
    values: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for parameters in cells.values():
        for name, value in parameters.items():
            values[name][repr(value)] = None
    counted = {
        name: set(list(seen)[: ceil(len(seen) / SHARE)] if name in REPETITIONS else seen)
        for name, seen in values.items()
    }
    paired = {name for name, seen in values.items() if len(seen) <= 2}

    def covered(parameters: Parameters) -> Iterator[tuple[tuple[str, str], ...]]:
        seen = [(name, repr(value)) for name, value in sorted(parameters.items()) if repr(value) in counted[name]]
        yield ()
        yield from ((one,) for one in seen)
        yield from combinations([one for one in seen if one[0] in paired], 2)

    offers = {cell: set(covered(parameters)) for cell, parameters in cells.items()}
    kept = {cell for cell in cells if cell in always}
    missing = set().union(*offers.values()).difference(*(offers[cell] for cell in kept))
    while missing:
        best = max(offers, key=lambda cell: len(offers[cell] & missing))
        kept.add(best)
        missing -= offers[best]
    return kept
