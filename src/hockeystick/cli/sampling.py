"""The options of the commands that may use Monte Carlo bounds."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated

import typer

from hockeystick.cli.common import number
from hockeystick.errors import InvalidInputError, shortened

if TYPE_CHECKING:
    from hockeystick.evidence import EvidenceStore
    from hockeystick.execution.base import ChunkExecutor
    from hockeystick.samples import Ledger
    from hockeystick.settings import MonteCarlo

AllowOption = Annotated[
    str | None,
    typer.Option(
        "--allow", metavar="monte-carlo", help="Allow Monte Carlo bounds, which fail with a small probability."
    ),
]
FailureOption = Annotated[
    str | None,
    typer.Option(
        "--failure-probability",
        metavar="NUMBER",
        help="Failure probability of all Monte Carlo bounds together; default 1e-9.",
    ),
]
SeedOption = Annotated[
    str | None,
    typer.Option("--seed", metavar="NUMBER", help="Seed of the samples; by default a fresh one from the system."),
]
EvidenceOption = Annotated[
    str | None,
    typer.Option(
        "--evidence", metavar="FILE", help="Keep the samples' statistics in this file, to resume, merge and verify."
    ),
]
BackendOption = Annotated[
    str | None,
    typer.Option("--backend", metavar="NAME", help="Where the work is done: local, dask or ray."),
]
AddressOption = Annotated[
    str | None, typer.Option("--address", metavar="ADDRESS", help="Address of the Dask or Ray cluster.")
]
WorkersOption = Annotated[
    str | None,
    typer.Option("--workers", metavar="NUMBER", help="Workers of the backend; all cores by default."),
]

MONTE_CARLO = "monte-carlo"
MOST_DIGITS = 38
"""Most digits of a whole number on the command line."""


def whole_number(name: str, text: str, least: int = 0) -> int:
    """The whole number given for an option; what is below ``least`` is refused where it is used."""
    if not (text.isascii() and text.isdecimal()) or len(text) > MOST_DIGITS:
        raise InvalidInputError(
            f"The {name!r} option must be a whole number from {least} on, of at most {MOST_DIGITS} digits. "
            f"Got {shortened(text)} instead."
        )
    return int(text)


def check_allowed(allow: str | None, others: Mapping[str, object]) -> bool:
    """Whether Monte Carlo is allowed; the other options require it."""
    if allow is None:
        given = next((name for name, value in others.items() if value is not None), None)
        if given is not None:
            raise InvalidInputError(f"The {given!r} option needs '--allow {MONTE_CARLO}'.")
        return False
    if allow != MONTE_CARLO:
        raise InvalidInputError(f"The '--allow' option must be {MONTE_CARLO!r}. Got {shortened(allow)} instead.")
    return True


@dataclass(frozen=True)
class Places:
    """Where the work is done."""

    backend: BackendOption = None
    address: AddressOption = None
    workers: WorkersOption = None

    @contextmanager
    def executor(self) -> Iterator["ChunkExecutor"]:
        """The executor that the options name, closed at the end.

        Meanwhile nothing goes to stdout if it is Ray's, which says there that it has lost a worker (2.60; no option of
        ``ray.init`` sends it elsewhere). Results are printed afterwards.
        """
        from hockeystick.execution import executor

        count = None if self.workers is None else whole_number("--workers", self.workers, least=1)
        quiet = redirect_stdout(sys.stderr) if self.backend == "ray" else nullcontext()
        with (
            quiet,
            executor("local" if self.backend is None else self.backend, workers=count, address=self.address) as chosen,
        ):
            yield chosen


@dataclass(frozen=True)
class SamplingOptions:
    """Whether samples may be drawn, and how."""

    allow: AllowOption = None
    failure_probability: FailureOption = None
    seed: SeedOption = None
    evidence: EvidenceOption = None
    backend: BackendOption = None
    address: AddressOption = None
    workers: WorkersOption = None

    @property
    def places(self) -> Places:
        """Where the work is done."""
        return Places(self.backend, self.address, self.workers)

    @contextmanager
    def opened(self, part_of: float | None = None) -> Iterator["MonteCarlo | None"]:
        """The settings, with the evidence store open; None if Monte Carlo is not allowed.

        Args:
            part_of: the delta of which the failure probability becomes a part, where it does.
        """
        others = {f"--{field.name.replace('_', '-')}": getattr(self, field.name) for field in fields(self)[1:]}
        if not check_allowed(self.allow, others):
            yield None
            return
        from hockeystick.settings import DEFAULT_FAILURE, MonteCarlo

        given = self.failure_probability
        failure = DEFAULT_FAILURE if given is None else number("--failure-probability", given)
        start = None if self.seed is None else whole_number("--seed", self.seed)
        settings = MonteCarlo(failure_probability=failure, seed=start)  # refuses bad numbers before anything is opened
        if part_of is not None:
            settings.check_part_of(part_of)
        with self.places.executor() as draw, _ledger(self.evidence) as ledger:
            yield replace(settings, ledger=ledger, executor=draw)


@dataclass(frozen=True)
class CellSamplingOptions(SamplingOptions):
    """The same for each cell of a grid."""

    failure_probability: Annotated[
        str | None,
        typer.Option(
            "--failure-probability",
            metavar="NUMBER",
            help="Failure probability of the Monte Carlo bounds of one cell together; default 1e-9.",
        ),
    ] = None


HERE, NONE, NONE_FOR_CELLS = Places(), SamplingOptions(), CellSamplingOptions()
"""On this machine, and without samples, unless options say otherwise."""


@contextmanager
def _ledger(evidence: str | None) -> Iterator["Ledger"]:
    from hockeystick.samples import MemoryLedger

    if evidence is None:
        yield MemoryLedger()
        return
    from hockeystick.evidence import EvidenceStore

    with EvidenceStore.open(evidence) as store:
        yield store


@contextmanager
def opened(evidence: str | None) -> Iterator["EvidenceStore | None"]:
    """An evidence store open for reading; None if none is given."""
    if evidence is None:
        yield None
        return
    from hockeystick.evidence import EvidenceStore

    with EvidenceStore.open(evidence, read_only=True) as store:
        yield store
