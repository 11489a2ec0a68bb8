"""What could be run instead of a plan: strategies, samplers and bands, within a memory and what a loader can do."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from hockeystick.by_name import by_name
from hockeystick.errors import InvalidInputError, shortened
from hockeystick.misspelt import nearest, one_of
from hockeystick.noise.solver import block_for, bytes_of, ring_rows
from hockeystick.plan import MechanismOptions, Plan
from hockeystick.samplers import (
    BallsInBinsOptions,
    BMinSepOptions,
    CyclicPoissonOptions,
    Data,
    DeterministicOptions,
    FixedSizeOptions,
    PoissonOptions,
    RandomAllocationOptions,
    SamplerOptions,
)
from hockeystick.spec import expect_kind, real_number
from hockeystick.strategies import (
    BandedInverse,
    BandedInverseFractionalRoot,
    BandedSquareRoot,
    BandedToeplitz,
    ColumnNormalizedBanded,
    Identity,
    Strategy,
)

Make = Callable[[tuple[int, ...]], "tuple[Strategy, SamplerOptions]"]
USUAL = ("poisson", "cyclic_poisson", "random_allocation", "balls_in_bins", "b_min_sep", "deterministic")
"""Samplers that are recommended by default; ``b_min_sep`` only where Monte Carlo bounds are allowed, and
``deterministic`` only where a loader can do nothing better. ``shuffle`` has no amplification that is proved."""
LOADERS = (*USUAL, "fixed_size")
"""Samplers that may be named. Batches of a fixed size need at least the noise of Poisson batches, as their worst
dataset has others without gradients, and are not covered for examples that are added or removed; so nobody gets them
who did not name them."""
BANDS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
EXPONENTS = tuple(round(0.2 + 0.05 * place, 2) for place in range(16))
INVERSE_BANDS = BANDS.index(64) + 1
"""Inverses of more bands take longer to optimise and are no better."""
MOST_CHANGE = 0.1
"""Relative change of the expected batch that a candidate may make."""
WITHOUT_NOISE = {"noise_multiplier": None, "mechanism_options": MechanismOptions()}
MOST_OPTIMISED = 4_000_000
"""Steps times squared bands up to which a matrix without structure is optimised, in about ten seconds."""
TYPES = {"float32": 4, "float64": 8}
BANDED = (BandedSquareRoot, BandedToeplitz, ColumnNormalizedBanded)
"""The last rows of the noise are kept, and a block of steps (hockeystick.noise.recent_rows)."""
BANDED_INVERSES = (BandedInverse, BandedInverseFractionalRoot)
"""The last rows of white noise are kept, and two blocks."""


@by_name
@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a run can afford.

    Attributes:
        memory: bytes for the rows of noise that are kept between steps; None for any.
        parameters: of the model; needed with ``memory``.
        dtype: of the noise, "float32" or "float64".
        samplers: what the loader can do; by default all but ``fixed_size``.
        monte_carlo: whether b-min-sep sampling is considered.

    Raises: InvalidInputError for values that are not allowed.
    """

    memory: float | None = None
    parameters: int | None = None
    dtype: str = "float32"
    samplers: tuple[str, ...] = USUAL
    monte_carlo: bool = False

    def __post_init__(self) -> None:
        if self.memory is not None and not real_number("memory", self.memory) >= 0.0:
            raise InvalidInputError(f"The 'memory' field must be at least 0 bytes. Got {self.memory!r} instead.")
        if (self.memory is None) != (self.parameters is None):
            missing = "parameters" if self.parameters is None else "memory"
            raise InvalidInputError(f"The {missing!r} field is missing; 'memory' and 'parameters' belong together.")
        if self.parameters is not None and real_number("parameters", self.parameters) < 1:
            raise InvalidInputError(f"The 'parameters' field must be at least 1. Got {self.parameters} instead.")
        one_of("dtype", self.dtype, TYPES)
        expect_kind("samplers", self.samplers, (tuple, list), "a tuple of names, such as ('poisson',)", optional=False)
        unknown = next((sampler for sampler in self.samplers if sampler not in LOADERS), None)
        if unknown is not None or not self.samplers:
            meant = nearest(unknown, LOADERS) if isinstance(unknown, str) else None
            hint = "" if meant is None else f" (did you mean {meant!r}?)"
            raise InvalidInputError(
                f"The 'samplers' field must name some of {', '.join(LOADERS)}. Got {shortened(unknown)} instead{hint}."
            )


@dataclass(frozen=True)
class Candidate:
    """One mechanism that could be run, as a plan.

    Attributes:
        plan: the user's plan with this strategy and sampler, without a noise multiplier.
        own: whether it is the strategy and the sampler of the user's plan.
    """

    plan: Plan
    own: bool = False

    @property
    def name(self) -> str:
        """Strategy and sampler in a few words."""
        return f"{_words(self.plan.strategy)}, {_words(self.plan.sampler)}"

    @property
    def optimised(self) -> bool:
        """Whether an optimiser makes the matrix, which may take seconds."""
        return self.plan.strategy.optimised

    def rows(self) -> int:
        """How many numbers of noise are kept between steps for each parameter.

        Builds the matrix of a strategy that only a user's plan names.
        """
        strategy = self.plan.strategy
        if isinstance(strategy, Identity):
            return 0
        if isinstance(strategy, BANDED + BANDED_INVERSES):
            block = block_for(strategy.bands - 1)
            return ring_rows(strategy.bands - 1, block) + block * isinstance(strategy, BANDED_INVERSES)
        from hockeystick.noise.registry import streaming_solver

        solver = streaming_solver(self.plan.mechanism().matrix, size=1, dtype=np.float64)
        return bytes_of(solver.layout, 1) // TYPES["float64"]

    def fits(self, limits: Limits) -> bool:
        """Whether the rows of noise fit in the memory; the user's own plan and independent noise always do."""
        if self.own or limits.memory is None or limits.parameters is None:
            return True
        return self.bytes(limits.dtype) * limits.parameters <= limits.memory

    def bytes(self, dtype: str) -> int:
        """Bytes of noise that are kept between steps for each parameter, with noise of this type or exact noise."""
        if not self.plan.noise.exact or isinstance(self.plan.strategy, Identity):
            return self.rows() * TYPES[dtype]
        from hockeystick.noise.exact.grid import grid_of
        from hockeystick.noise.registry import exact_solver

        matrix = self.plan.mechanism().matrix
        return bytes_of(exact_solver(matrix, grid=grid_of(matrix, 1.0, 1), size=1).layout, 1)


class Family:
    """Candidates of one kind, on a grid of bands and, for some, of exponents; every other point is the coarse grid.

    Args:
        plan: the user's plan.
        make: the strategy and the sampler at a point.
        shape: how many values each axis of the grid has.
        start: where a search begins.
        guide: a family on the same grid, in whose optimum the search begins instead, and which has a closed form where
            this one is optimised.
    """

    def __init__(
        self,
        plan: Plan,
        make: Make,
        shape: tuple[int, ...],
        start: tuple[int, ...],
        guide: "Family | None" = None,
    ) -> None:
        self.plan, self.make, self.shape, self.guide = plan, make, shape, guide
        self.start = self.coarse(start)

    @property
    def optimised(self) -> bool:
        """Whether an optimiser makes the matrices."""
        return self.make(self.start)[0].optimised

    def coarse(self, point: tuple[int, ...]) -> tuple[int, ...]:
        """The nearest point of the coarse grid below."""
        return tuple(min(value, size - 1) // 2 * 2 for value, size in zip(point, self.shape, strict=True))

    def at(self, point: tuple[int, ...]) -> Candidate | None:
        """The candidate at a point of the grid; None outside, or where the data do not suit it."""
        if any(not 0 <= value < size for value, size in zip(point, self.shape, strict=True)):
            return None
        strategy, sampler = self.make(point)
        return candidate(self.plan, strategy, sampler)

    def points(self) -> Iterator[tuple[int, ...]]:
        """All points of the grid."""
        return product(*map(range, self.shape))


def candidate(plan: Plan, strategy: Strategy, sampler: SamplerOptions, data: Data | None = None) -> Candidate | None:
    """The plan with this strategy and sampler; None where the data do not suit them."""
    changed = Plan(
        data=data or plan.data,
        strategy=strategy,
        sampler=sampler,
        target=plan.target,
        unit=plan.unit,
        noise=plan.noise,
    )
    try:
        changed.mechanism()
    except InvalidInputError:
        return None
    return Candidate(changed)


def families(plan: Plan, limits: Limits) -> list[Family]:
    """The families that the loader can run and that are the best for some plan (docs/reference/recommend.md)."""
    period = int(1 / plan.data.rate)  # steps between two visits of an example, on average
    bands = [count for count in BANDS if count <= period]
    kinds: list[Family] = []
    if bands and "cyclic_poisson" in limits.samplers:
        kinds += _guided(plan, bands, lambda p: CyclicPoissonOptions(groups=p))
    if bands and "b_min_sep" in limits.samplers and limits.monte_carlo:
        kinds += _guided(plan, bands, lambda p: BMinSepOptions(min_sep=p))
    replayed: SamplerOptions | None = None
    if "balls_in_bins" in limits.samplers:
        replayed = BallsInBinsOptions()
    elif "deterministic" in limits.samplers:
        replayed = DeterministicOptions()
    if replayed is not None and candidate(plan, Identity(), replayed) is not None:
        sampler, bins = replayed, plan.data.bins(replayed.kind)
        kinds += [
            _bands(plan, BANDS, lambda p: (BandedSquareRoot(bands=p), sampler)),
            _bands(plan, BANDS[:INVERSE_BANDS], lambda p: (BandedInverse(bands=p, min_sep=bins), sampler)),
            Family(
                plan,
                lambda point: (
                    BandedInverseFractionalRoot(bands=BANDS[point[0]], exponent=EXPONENTS[point[1]]),
                    sampler,
                ),
                (len(BANDS), len(EXPONENTS)),
                (BANDS.index(16), EXPONENTS.index(0.6)),
            ),
        ]
    return kinds


def singles(plan: Plan, limits: Limits, own: bool = True) -> list[Candidate]:
    """Candidates without a grid: the user's own plan, unless its sampler is open, and independent noise."""
    candidates = [Candidate(plan.model_copy(update=WITHOUT_NOISE), own=True)] if own else []
    samplers: list[tuple[SamplerOptions, Data | None]] = []
    if "poisson" in limits.samplers:
        samplers.append((PoissonOptions(), None))
    if "random_allocation" in limits.samplers:
        samplers.append((RandomAllocationOptions(), None))
        if candidate(plan, Identity(), RandomAllocationOptions()) is None:
            samplers += _visits(plan)
    if "balls_in_bins" in limits.samplers and "random_allocation" not in limits.samplers:
        samplers.append((BallsInBinsOptions(), None))
    if "fixed_size" in limits.samplers:
        samplers.append((FixedSizeOptions(), None))
    if "deterministic" in limits.samplers and set(limits.samplers) <= {"deterministic", "fixed_size"}:
        samplers.append((DeterministicOptions(), None))
    made = (candidate(plan, Identity(), sampler, data) for sampler, data in samplers)
    known = [candidate.plan for candidate in candidates]
    return candidates + [candidate for candidate in made if candidate is not None and candidate.plan not in known]


def normalised(plan: Plan, limits: Limits, bands: int) -> Candidate | None:
    """Banded noise optimised column by column, in place of a Toeplitz matrix; None where that takes too long."""
    if "cyclic_poisson" not in limits.samplers or plan.numbers().steps * bands**2 > MOST_OPTIMISED:
        return None
    return candidate(plan, ColumnNormalizedBanded(bands=bands), CyclicPoissonOptions(groups=bands))


def every(plan: Plan, limits: Limits) -> Iterator[Candidate]:
    """All candidates, on the fine grids; for exhaustive searches and to tell whose results a file has."""
    yield from singles(plan, limits)
    for family in families(plan, limits):
        yield from (candidate for point in family.points() if (candidate := family.at(point)) is not None)
    for bands in BANDS:
        candidate = normalised(plan, limits, bands)
        if candidate is not None:
            yield candidate


def _bands(
    plan: Plan,
    bands: Sequence[int],
    make: Callable[[int], tuple[Strategy, SamplerOptions]],
    guide: Family | None = None,
) -> Family:
    return Family(plan, lambda point: make(bands[point[0]]), (len(bands),), (BANDS.index(8),), guide)


def _guided(plan: Plan, bands: Sequence[int], sampler: Callable[[int], SamplerOptions]) -> list[Family]:
    """The square root, and the optimised matrix, which is near it in error, with as many bands as groups."""
    square_root = _bands(plan, bands, lambda p: (BandedSquareRoot(bands=p), sampler(p)))
    return [square_root, _bands(plan, bands, lambda p: (BandedToeplitz(bands=p), sampler(p)), square_root)]


def _visits(plan: Plan) -> list[tuple[SamplerOptions, Data | None]]:
    """k-of-t allocation over the whole run, for a number of epochs that is not whole.

    One round of all steps, of which each example visits k, the nearest whole number to its expected visits.
    """
    numbers = plan.numbers()
    visits = round(numbers.participations)
    if not 1 <= visits <= numbers.steps or abs(visits / numbers.participations - 1.0) > MOST_CHANGE:
        return []
    data = Data(num_examples=plan.data.num_examples, batches_per_epoch=numbers.steps, epochs=1)
    return [(RandomAllocationOptions(participations=visits), data)]


def _words(spec: "Strategy | SamplerOptions") -> str:
    options = spec.model_dump(exclude_defaults=True, exclude={"kind"})
    values = " ".join(f"{name}={value}" for name, value in options.items())
    return f"{spec.kind}({values})" if values else str(spec.kind)
