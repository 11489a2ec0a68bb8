"""Sweeps: one plan with lists of values for some fields, every combination certified, resumable at any moment."""

import hashlib
import json
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from itertools import islice, product
from math import prod
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Self

from hockeystick.bounds import Question
from hockeystick.certificate import AnyCertificate, Certificate
from hockeystick.certification.issue import certify
from hockeystick.errors import (
    BudgetExceededError,
    CannotCertifyError,
    InvalidInputError,
    OptimisationError,
    UnsupportedError,
    VerificationError,
    shortened,
)
from hockeystick.files import check_writable, opened, parse_toml, read_small_file
from hockeystick.mechanism import Mechanism
from hockeystick.pairs.registry import check_registered
from hockeystick.plan import Plan
from hockeystick.settings import MonteCarlo
from hockeystick.spec import Spec

if TYPE_CHECKING:
    from concurrent.futures import Future

    from hockeystick.execution.base import ChunkExecutor

FORMAT = "hockeystick-sweep/1"
HEADER = json.dumps({"format": FORMAT}) + "\n"
MAX_CELLS = 10_000
MAX_SWEEP_BYTES = 1 << 20
MAX_RESULT_BYTES = 1 << 30
CERTIFIED = "certified"
AHEAD = 4
"""Cells per worker that are started before their turn."""

CertifyCell = Callable[[Mechanism, Question], Certificate]
"""Certifies one cell of a sweep; may raise what is wrong with the cell."""

_OF_THE_CELL = (BudgetExceededError, CannotCertifyError, InvalidInputError, OptimisationError, UnsupportedError)
"""Failures of one cell. Any other failure, such as a lost cluster, ends the sweep."""


@dataclass(frozen=True)
class Cell:
    """One combination of a sweep.

    Attributes:
        fields: the values from the grid, by the dotted names of the fields.
        plan: the plan with these values; it has a noise multiplier.
        question: what is asked about it.
        digest: SHA-256 of the plan, the question and the settings that its answer depends on.
    """

    fields: Mapping[str, Any]
    plan: Plan
    question: Question
    digest: str


@dataclass(frozen=True)
class Sweep:
    """A plan in plain data, and lists of values for some of its fields."""

    plan: Mapping[str, Any]
    grid: Mapping[str, Sequence[Any]]

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a plan file (TOML) that has a ``[grid]`` table too.

        Raises: InvalidInputError in one sentence for a file that cannot be read or has no valid grid. Errors in the
        plan are raised by :meth:`cells`.
        """
        name = f"sweep {shortened(str(path))}"
        values = parse_toml(read_small_file(path, name, MAX_SWEEP_BYTES), name)
        grid = values.pop("grid", None)
        if not isinstance(grid, dict) or not grid:
            raise InvalidInputError("The 'grid' table is missing; it gives lists of values for fields of the plan.")
        axes: dict[str, list[Any]] = {}
        for name, options in _lists(grid, ""):
            if name in axes:
                raise InvalidInputError(f"The {'grid.' + name!r} field is given twice.")
            if not options:
                raise InvalidInputError(f"The {'grid.' + name!r} field must have at least one value. Got [] instead.")
            axes[name] = options
        count = prod(map(len, axes.values()))
        if count > MAX_CELLS:
            raise InvalidInputError(f"The 'grid' table must have at most {MAX_CELLS} cells. Got {count} instead.")
        return cls(values, axes)

    def cells(
        self, *, delta: float | None = None, epsilon: float | None = None, settings: Mapping[str, Any] | None = None
    ) -> tuple[Cell, ...]:
        """All combinations, the last field of the grid changing fastest.

        Args:
            delta, epsilon: the question of all cells; without them every plan's target, which must have one of both.
            settings: what else the answers depend on (plain data), such as the method; goes into the digests.

        Raises: InvalidInputError for the first cell that is not a valid plan, has no noise multiplier or not exactly
        one question, or is the same as another one.
        """
        if delta is not None or epsilon is not None:
            Question(delta=delta, epsilon=epsilon)  # refused here, as it is no matter of a cell
        cells: dict[str, Cell] = {}
        # Whole tables before single fields of them.
        names = sorted(self.grid, key=lambda name: name.count("."))
        for combination in product(*self.grid.values()):
            fields = dict(zip(self.grid, combination, strict=True))
            values = deepcopy(dict(self.plan))
            for name in names:
                _put(values, name, deepcopy(fields[name]))
            try:
                cell = _cell(fields, Plan.parse(values), delta, epsilon, settings or {})
            except InvalidInputError as error:
                raise InvalidInputError(f"Cell {_text(fields)}: {error}") from None
            if cell.digest in cells:
                raise InvalidInputError(f"The 'grid' table has the same cell twice: {_text(fields)}.")
            cells[cell.digest] = cell
        return tuple(cells.values())


class Record(Spec):
    """What came out for one cell: a line of the results.

    Attributes:
        cell: digest of the cell.
        fields: the cell's values from the grid.
        status: ``certified``, or a sentence that says why not.
        seconds: time taken.
        certificate: with the mechanism and the bounds; None where there is none.
    """

    cell: str
    fields: dict[str, Any]
    status: str
    seconds: float
    certificate: AnyCertificate | None


class Results:
    """A file of records, one JSON object a line. A line that was written in part is dropped when the file is read."""

    def __init__(self, path: str | Path, cells: Sequence[Cell] | None) -> None:
        """Open the results of these cells, or of any where None is given, or start a file for them.

        Raises: InvalidInputError in one sentence when it cannot be written, is not a file of results, or has those of
        other cells; VerificationError for a certificate in it that was altered.
        """
        self._path = check_writable(path)
        self._name = f"output path {shortened(os.fspath(path))}"
        self.records: dict[str, Record] = {}
        if not self._path.exists() or self._path.stat().st_size == 0:
            self._append(HEADER.encode())
            return
        known = None if cells is None else {cell.digest for cell in cells}
        records, torn = read_records(self._path, self._name)
        for record in records:
            if known is not None and record.cell not in known:
                raise InvalidInputError(
                    f"The {self._name} has results of another sweep ({_text(record.fields)}); choose another one."
                )
            self.records[record.cell] = record
        if torn:  # the writer was stopped in the middle of it
            os.truncate(self._path, self._path.stat().st_size - len(torn))

    def add(self, record: Record) -> None:
        """Keep a record, and the file of its matrix, if it needs one, beside it; on the disk when this returns."""
        if record.certificate is not None:
            record.certificate.mechanism.write_companion(self._path)
        self._append((record.model_dump_json() + "\n").encode())
        self.records[record.cell] = record

    def _append(self, line: bytes) -> None:
        before = self._path.stat().st_size if self._path.exists() else 0
        try:
            with open(self._path, "ab", buffering=0) as stream:
                if stream.write(line) != len(line):
                    raise OSError(None, "the disk is full")
                os.fsync(stream.fileno())
        except OSError as error:
            os.truncate(self._path, before)
            raise InvalidInputError(f"The {self._name} cannot be written: {error.strerror}.") from None


def check_results(path: str | Path) -> None:
    """Refuse, before long work, a file for results that has something else in it; raises InvalidInputError."""
    place, name = check_writable(path), f"output path {shortened(os.fspath(path))}"
    if place.exists() and place.stat().st_size:
        with opened(place, name) as stream:
            _check_header(stream.readline(len(HEADER)), name)


def _check_header(line: bytes, name: str) -> None:
    if line.strip() != HEADER.strip().encode():
        raise InvalidInputError(f"The {name} is not a file of sweep results; choose another one.")


def read_records(path: str | Path, name: str) -> tuple[list[Record], bytes]:
    """The records of a file of results, and the part of a line that its writer was stopped in the middle of.

    Args:
        name: what errors call the file.

    Raises: as :class:`Results`.
    """
    header, *lines = read_small_file(path, name, MAX_RESULT_BYTES).split(b"\n")
    _check_header(header, name)
    torn = lines.pop() if lines else b""
    records = []
    for line in lines:
        try:
            record = Record.parse_json(line, "record")
        except InvalidInputError as error:
            raise InvalidInputError(f"The {name} has a line that is no record: {error}") from None
        if record.certificate is not None and record.certificate.digest != record.certificate.content_digest():
            raise VerificationError(f"The {name} was altered: the certificate of {_text(record.fields)}.")
        if record.certificate is not None:
            record.certificate.mechanism.look_for_companion(path)
        records.append(record)
    return records, torn


def certifier(
    *, budget: float | None = None, method: str | None = None, monte_carlo: MonteCarlo | None = None
) -> CertifyCell:
    """:func:`~hockeystick.certification.issue.certify` for every cell, with ``budget`` seconds each.

    The failure probability is per cell: all cells hold together except with probability at most their sum.
    """

    return partial(_certified, budget=budget, method=method, monte_carlo=monte_carlo)


def _certified(
    mechanism: Mechanism,
    question: Question,
    *,
    budget: float | None,
    method: str | None,
    monte_carlo: MonteCarlo | None,
) -> Certificate:
    check_registered(mechanism)
    return certify(
        mechanism,
        delta=question.delta,
        epsilon=question.epsilon,
        method=method,
        budget=budget,
        monte_carlo=monte_carlo,
    )


def run_sweep(
    cells: Sequence[Cell],
    out: str | Path,
    *,
    certify_cell: CertifyCell,
    retry: bool = False,
    on_cell: Callable[[int], None] | None = None,
    executor: "ChunkExecutor | None" = None,
) -> list[Record]:
    """Certify the cells that are not in the results yet; every result is on the disk before the next one is awaited.

    Args:
        out: file of results (:class:`Results`).
        retry: certify those again that have been tried and have no certificate.
        on_cell: called with the number of finished cells, those of earlier runs included.
        executor: whose workers certify cells side by side, by a ``certify_cell`` that can be pickled; the records are
            the same, in the same order, but for their seconds. None for this process alone.

    Returns: the records of all cells, in their order.

    Raises: InvalidInputError when another sweep is writing to ``out``; VerificationError for a stored certificate that
        is not of its cell; and what :class:`Results` raises.
    """
    with locked(out):
        results = Results(out, cells)
        for cell in cells:
            _check_answer(cell, results.records.get(cell.digest), out)
        missing = [cell for cell in cells if _is_missing(results.records.get(cell.digest), retry)]
        if on_cell is not None:
            on_cell(len(cells) - len(missing))
        for done, record in enumerate(_records(missing, certify_cell, executor), start=len(cells) - len(missing) + 1):
            results.add(record)
            if on_cell is not None:
                on_cell(done)
    return [results.records[cell.digest] for cell in cells]


@contextmanager
def locked(out: str | Path) -> Iterator[None]:
    """Keep other sweeps from writing to a file; the lock ends with the process, however that ends."""
    import fcntl

    with open(check_writable(out), "ab") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InvalidInputError(
                f"The output path {shortened(os.fspath(out))} is in use by another sweep; wait, or choose another."
            ) from None
        yield


def _check_answer(cell: Cell, record: Record | None, out: str | Path) -> None:
    """A certificate that is whole may still have been moved here from another cell, or another sweep."""
    certificate = None if record is None else record.certificate
    if certificate is None:
        return
    if not certificate.mechanism.is_of(cell.plan.mechanism()) or certificate.question != cell.question:
        raise VerificationError(
            f"The output path {shortened(os.fspath(out))} was altered: the certificate of {_text(cell.fields)} is not "
            f"of this cell."
        )


def _is_missing(record: Record | None, retry: bool) -> bool:
    return record is None or (retry and record.certificate is None)


def _records(cells: Sequence[Cell], certify_cell: CertifyCell, executor: "ChunkExecutor | None") -> Iterator[Record]:
    """The records of the cells, in their order; what workers have not begun when nobody wants more is cancelled."""
    if executor is None:
        yield from (_record(cell, certify_cell) for cell in cells)
        return
    waiting, ahead = iter(cells), AHEAD * executor.workers
    jobs: deque[Future[Record]] = deque()
    try:
        while True:
            for cell in islice(waiting, ahead - len(jobs)):
                jobs.append(executor.submit(partial(_record, cell, certify_cell)))
            if not jobs:
                return
            yield jobs.popleft().result()
    finally:
        executor.abandon()


def _record(cell: Cell, certify_cell: CertifyCell) -> Record:
    started = monotonic()
    certificate, status = None, CERTIFIED
    try:
        certificate = certify_cell(cell.plan.mechanism(), cell.question)
    except _OF_THE_CELL as error:
        status = str(error)
    except MemoryError:
        status = "The memory of this machine is too small for this problem."
    return Record(
        cell=cell.digest,
        fields=dict(cell.fields),
        status=status,
        seconds=round(monotonic() - started, 4),
        certificate=certificate,
    )


def _cell(
    fields: Mapping[str, Any], plan: Plan, delta: float | None, epsilon: float | None, settings: Mapping[str, Any]
) -> Cell:
    if plan.noise_multiplier is None and plan.mechanism_options.noise_multiplier is None:
        raise InvalidInputError("The 'noise_multiplier' field is missing; give it in the plan or in its grid.")
    if delta is None and epsilon is None:
        delta, epsilon = plan.target.delta, plan.target.epsilon
        if (delta is None) == (epsilon is None):
            raise InvalidInputError("The 'target' table of a sweep must have one of 'delta' and 'epsilon', not both.")
    question = Question(delta=delta, epsilon=epsilon)
    content = plan.model_copy(update={"strategy": plan.strategy.pinned()}).model_dump(mode="json", exclude={"target"})
    asked = {"delta": delta, "epsilon": epsilon}
    text = json.dumps([FORMAT, content, asked, settings], sort_keys=True, separators=(",", ":"))
    return Cell(fields, plan, question, hashlib.sha256(text.encode()).hexdigest())


def _lists(grid: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, list[Any]]]:
    """The lists of a grid by dotted names, whether they are written with dots or as tables."""
    for name, value in grid.items():
        if isinstance(value, dict):
            yield from _lists(value, f"{prefix}{name}.")
        elif isinstance(value, list):
            yield prefix + name, value
        else:
            raise InvalidInputError(
                f"The {'grid.' + prefix + name!r} field must be a list of values. Got {shortened(value)} instead."
            )


def _put(values: dict[str, Any], name: str, value: object) -> None:
    """Set the field with a dotted name, making the tables that it is in."""
    *tables, field = name.split(".")
    here: Any = values
    for table in tables:
        here = here.setdefault(table, {})
        if not isinstance(here, dict):
            raise InvalidInputError(f"The {'grid.' + name!r} field is not known here; {table!r} is not a table.")
    here[field] = value


def _text(fields: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {shortened(value)}" for name, value in fields.items())
