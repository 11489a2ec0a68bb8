"""``python -m benchmarks.audit_peers``: the samplers and the noise of other libraries, as they are installed, audited.

Name a case to run it alone: ``python -m benchmarks.audit_peers opacus-poisson``. The exit code is 1 when a case finds
something that is not known, or no longer finds what is. ``--json FILE`` keeps the outcomes, so that runs in several
environments fill one file, and does not run again what it has of the installed version; ``--update`` writes
docs/reference/peers.md from it.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

from benchmarks.audited import LEVEL, Case, Outcome
from benchmarks.table import wrapped

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "peers.md"
LIBRARIES = {"opacus": "Opacus", "jax_privacy": "jax-privacy", "opake": "opake"}
NAMES = {"opacus": "opacus", "jax": "jax_privacy", "opake": "opake"}
"""From the first word of a case's name to its module."""


@dataclass(frozen=True)
class Answer:
    """The outcome of one case, and what the page says of it."""

    name: str
    library: str
    version: str
    about: str
    claim: str
    found: bool
    says: str
    known: bool
    means: str

    @classmethod
    def of(cls, name: str, library: str, installed: str, case: Case, outcome: Outcome) -> "Answer":
        means = case.means.format(**outcome.figures) if outcome.found else ""
        found = bool(outcome.found)
        return cls(name, library, installed, case.about, case.claim, found, outcome.says, case.deviates, means)


def cases(library: str) -> tuple[str, Mapping[str, Case]]:
    """The version of a library and its cases; raises ImportError where it is not installed."""
    module = import_module(f"benchmarks.audited.{library}")
    return version(module.DISTRIBUTION), module.CASES


def run(library: str, only: str | None, kept: Mapping[str, Answer]) -> list[Answer]:
    """The answers of all cases of a library, or of one; those that are kept of the installed version are not run."""
    installed, known = cases(library)
    return [
        kept[name]
        if name in kept and kept[name].version == installed
        else Answer.of(name, library, installed, case, case.run())
        for name, case in known.items()
        if only in (None, name)
    ]


def page(answers: Iterable[Answer]) -> str:
    """The content of docs/reference/peers.md."""
    answers = list(answers)
    text = [
        "# Other libraries, audited",
        "",
        "Samplers and noise of other libraries, as installed from PyPI, against what their own accounting assumes. "
        "Every row is reproduced by `python -m benchmarks.audit_peers NAME`, with fixed seeds; this page is written by "
        "`python -m benchmarks.audit_peers --json FILE --update`. The versions are pinned in the extra `peers`.",
        "",
        "Audits of batches look at two runs of 100 batches of 1,000 examples, audits of noise at 100 rows of 1,000 "
        f"numbers; each raises a false alarm with probability at most {LEVEL:g} ([audits](../theory/audits.md)). "
        '"Nothing" means that this audit saw nothing, not that there is nothing to see: the smallest errors that it '
        "sees are in [the power of audits](audit-power.md). What a conversion takes for granted about a run is in "
        "[what conversions assume](conversions.md).",
    ]
    for library, title in LIBRARIES.items():
        own = [answer for answer in answers if answer.library == library]
        if not own:
            continue
        text += ["", f"## {title} {own[0].version}", "", "| name | code | claim | found |", "|---|---|---|---|"]
        text += [f"| `{answer.name}` | {answer.about} | {answer.claim} | {answer.says} |" for answer in own]
        for answer in own:
            if answer.means:
                text += ["", f"`{answer.name}`: {answer.means}"]
    return "\n".join(map(wrapped, text)) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Run the cases; 1 when an outcome is not the known one, 2 when nothing matches or is installed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.audit_peers", description=__doc__)
    parser.add_argument("name", nargs="?", help="one case; all of the installed libraries by default")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the outcomes here, and those that it has")
    parser.add_argument("--update", action="store_true", help="write the page")
    options = parser.parse_args(arguments)
    if options.update and options.json is None:
        parser.error("--update needs --json FILE, as one environment rarely has all libraries")
    wanted = list(LIBRARIES) if options.name is None else [NAMES.get(options.name.split("-")[0], "")]
    kept: dict[str, Answer] = {}
    if options.json is not None and options.json.exists():
        kept = {record["name"]: Answer(**record) for record in json.loads(options.json.read_text(encoding="utf-8"))}
    ran: list[Answer] = []
    for library in filter(None, wanted):
        try:
            answers = run(library, options.name, kept)
        except ImportError as error:
            print(f"{LIBRARIES[library]} is not installed: {error}", file=sys.stderr)
            continue
        for answer in answers:
            print(
                f"{answer.name} ({LIBRARIES[library]} {answer.version}): {answer.says}",
                *filter(None, [answer.means]),
                sep="\n  ",
            )
        ran += answers
    if not ran:
        print(f"No installed library has a case {options.name!r}.", file=sys.stderr)
        return 2
    kept |= {answer.name: answer for answer in ran}
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(answer) for answer in kept.values()], indent=1), encoding="utf-8")
    if options.update:
        PAGE.write_text(page(kept.values()), encoding="utf-8")
    return int(any(answer.found != answer.known for answer in ran))


if __name__ == "__main__":
    sys.exit(main())
