"""Every registered sampler draws the joint distribution that its docstring guarantees.

The law of a whole run (which example takes part at which steps) is enumerated for small sizes by slow, obvious
code, and compared with many drawn runs by a likelihood-ratio test. Planted wrong samplers show that the test rejects.
A new kind needs its file in ``tests/conformance/samplers``.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable
from importlib import import_module
from pkgutil import iter_modules

import numpy as np
import pytest
from sampler_laws import DATA, Batches, Law, Run, runs_of_batches
from samplers import DECLARED
from scipy.optimize import brentq

import hockeystick.samplers
from hockeystick.errors import InvalidInputError
from hockeystick.samplers import (
    SAMPLER_OPTIONS,
    SAMPLERS,
    Attribution,
    BatchSampler,
    BMinSep,
    CyclicPoisson,
    Data,
    Deterministic,
    MultiAttribution,
    Poisson,
    Sampler,
    SamplerOptions,
    SchemeOptions,
    Shuffle,
)
from hockeystick.spec import MAX_EXAMPLES, Spec
from hockeystick.types import Adjacency

FALSE_FAILURE = 1e-9  # of each likelihood-ratio test, rigorously; the seeds are fixed besides
RUNS = 4_000
FAULT_RUNS = 2_000
"""With so many, every planted fault is rejected; ``RUNS`` are twice as many."""


GRAPHS = {
    "one user": Attribution.from_pairs([0, 0], [0, 1]),
    "a path": Attribution.from_pairs([0, 0, 1, 1], [0, 1, 1, 2]),
}
ATTRIBUTED = [
    MultiAttribution(min_sep=2, sampling_prob=0.4, steps=3, examples_per_user=2, users_per_example=2),
    MultiAttribution(
        min_sep=2, sampling_prob=0.4, steps=3, examples_per_user=2, users_per_example=2, exclusion="participating"
    ),
    MultiAttribution(
        min_sep=2, sampling_prob=0.4, steps=3, examples_per_user=2, users_per_example=2, exclusion="example"
    ),
    MultiAttribution(min_sep=3, sampling_prob=0.3, steps=2, examples_per_user=2, users_per_example=2, warm_up_steps=1),
]

ALL_CASES = [
    pytest.param(sampler, n, id=f"{kind}-{i}")
    for kind, declared in DECLARED.items()
    for i, (sampler, n) in enumerate(declared.cases)
]


# The test of a law ---------------------------------------------------------------------------------------------------


def threshold(outcomes: int) -> float:
    """The value that runs * KL(empirical || true) exceeds with probability at most FALSE_FAILURE.

    With d = outcomes - 1 the probability of exceeding g > d is at most exp(-g) (e g / d)^d, for every sample size
    (Agrawal 2020, "Finite-sample concentration of the multinomial in relative entropy", Theorem I.2).
    """
    d = outcomes - 1
    if d == 0:
        return 1e-6  # rounding only
    goal = math.log(1 / FALSE_FAILURE)
    return float(brentq(lambda g: g - d - d * math.log(g / d) - goal, d * (1 + 1e-9), 4 * d + 4 * goal))


def assert_follows(drawn: Counter[Run], law: Law) -> None:
    """Fail unless the drawn outcomes look like draws from the law."""
    assert math.isclose(sum(law.values()), 1.0, rel_tol=1e-9)
    possible = {run: p for run, p in law.items() if p > 0}
    impossible = set(drawn) - set(possible)
    assert not impossible, f"outcomes of probability zero, for example {min(impossible, key=repr)}"
    runs = sum(drawn.values())
    statistic = sum(count * math.log(count / (runs * possible[run])) for run, count in drawn.items())
    assert statistic <= threshold(len(possible)), f"{statistic:.1f} > {threshold(len(possible)):.1f}"


def draw_runs(
    draw: Callable[[np.random.Generator], Iterable[Iterable[int]]], num_examples: int, runs: int
) -> Counter[Run]:
    rng = np.random.default_rng(20240607)
    return Counter(runs_of_batches((np.asarray(b).tolist() for b in draw(rng)), num_examples) for _ in range(runs))


# The checks ----------------------------------------------------------------------------------------------------------


def test_every_registered_kind_is_checked() -> None:
    for kind in SAMPLERS:
        assert kind in DECLARED, f"Write tests/conformance/samplers/{kind}.py, with a DECLARATION of all its fields."
    assert set(SAMPLER_OPTIONS) == set(SAMPLERS)
    for kind, declared in DECLARED.items():
        assert declared.cases
        assert declared.wrong
        assert declared.plans
        assert declared.mechanisms
        assert declared.runs
        samplers = [*(case[0] for case in declared.cases), *(plan[1] for plan in declared.plans), *declared.runs]
        assert all(type(sampler) is SAMPLERS[kind] for sampler in samplers)


def test_every_scheme_is_registered() -> None:
    """Nothing would test a scheme that has a file and is in no union."""
    known = {*SAMPLERS.values(), *SAMPLER_OPTIONS.values()}
    for submodule in iter_modules(hockeystick.samplers.__path__):
        module = import_module(f"hockeystick.samplers.{submodule.name}")
        for scheme in vars(module).values():
            if isinstance(scheme, type) and issubclass(scheme, BatchSampler | SchemeOptions):
                kind = scheme.model_fields.get("kind")
                named = kind is not None and not kind.is_required()
                assert not named or scheme in known, f"Add {scheme.__name__} to its union in samplers/__init__.py."


@pytest.mark.parametrize(("sampler", "n"), ALL_CASES)
def test_joint_distribution(sampler: BatchSampler, n: int) -> None:
    law = DECLARED[sampler.kind].law(sampler, n)
    assert_follows(draw_runs(lambda rng: sampler.batches(n, rng), n, RUNS), law)


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
@pytest.mark.parametrize("sampler", ATTRIBUTED)
def test_joint_distribution_of_attributed_examples(sampler: MultiAttribution, graph: Attribution) -> None:
    n = graph.num_examples
    law = DECLARED[sampler.kind].law(sampler, n, graph)
    assert_follows(draw_runs(lambda rng: sampler.batches(n, rng, attribution=graph), n, RUNS // 4), law)


@pytest.mark.parametrize(("sampler", "n"), ALL_CASES)
def test_batches_are_steps_sorted_fresh_arrays(sampler: BatchSampler, n: int) -> None:
    first, again = np.random.default_rng(5), np.random.default_rng(5)
    count = 0
    for batch, same in zip(sampler.batches(n, first), sampler.batches(n, again), strict=True):
        assert batch.dtype == np.int64
        assert batch.ndim == 1
        assert np.all(np.diff(batch) > 0)
        assert np.all((batch >= 0) & (batch < n))
        np.testing.assert_array_equal(batch, same)
        batch[...] = -1  # a caller's own business: later batches must not change
        count += 1
    assert count == sampler.steps


@pytest.mark.parametrize(("sampler", "n"), ALL_CASES)
def test_add_remove_is_claimed_only_for_independent_examples(sampler: BatchSampler, n: int) -> None:
    """Removing an example is zeroing it out when the others' batches have the law of the smaller dataset."""
    assert Adjacency.ZERO_OUT in sampler.holds_for
    if Adjacency.ADD_REMOVE not in sampler.holds_for:
        return
    law_of = DECLARED[sampler.kind].law
    single, fewer = law_of(sampler, 1), law_of(sampler, n - 1)
    for run, probability in law_of(sampler, n).items():
        assert math.isclose(probability, fewer[run[:-1]] * single[run[-1:]], rel_tol=1e-9)


def test_adjacencies_of_dependent_schemes() -> None:
    dependent = [
        Deterministic(bins=2),
        Shuffle(batch_size=1, bins=2),
        Poisson(sampling_prob=0.5, steps=1, truncated_batch_size=1, num_examples=2),
        BMinSep(min_sep=2, sampling_prob=0.5, steps=1, truncated_batch_size=1, num_examples=2),
        MultiAttribution(min_sep=2, sampling_prob=0.5, steps=1, examples_per_user=2),
        CyclicPoisson(groups=2, sampling_prob=0.5, steps=2),
    ]
    for sampler in dependent:
        assert sampler.holds_for == (Adjacency.ZERO_OUT,)


@pytest.mark.parametrize(("sampler", "n"), ALL_CASES)
def test_requirement_is_one_sentence(sampler: BatchSampler, n: int) -> None:
    assert sampler.requirement[0].isupper()
    assert sampler.requirement.endswith(".")
    assert ". " not in sampler.requirement
    assert "\n" not in sampler.requirement


def test_the_rate_is_that_of_the_law() -> None:
    """Batches per example and step, on average; what the rate leaves out by its definition is left out here."""
    checked = set()
    for kind, declared in DECLARED.items():
        for sampler, n in declared.cases:
            cut = getattr(sampler, "truncated_batch_size", None) is not None
            cold = getattr(sampler, "warm_start", True) is False
            groups = getattr(sampler, "groups", 1)
            by_index = getattr(sampler, "partition", "independent") == "equal" and n % groups
            uneven = sampler.steps % groups or by_index
            if cut or cold or uneven or kind == "multi_attribution":
                continue
            law = declared.law(sampler, n)
            mean = sum(chance * sum(len(steps) for steps in run) for run, chance in law.items())
            assert sampler.rate == pytest.approx(mean / (n * sampler.steps), rel=1e-9), sampler
            checked.add(kind)
    assert checked == set(DECLARED) - {"multi_attribution"}


@pytest.mark.parametrize(("sampler", "n"), ALL_CASES)
def test_examples_take_part_as_often_as_stated(sampler: BatchSampler, n: int) -> None:
    """In the law, which knows of no rounding; chances are stated of independent examples alone."""
    stated = sampler.participation_chances
    for example in range(n):
        counts = Counter[int]()
        for run, chance in DECLARED[sampler.kind].law(sampler, n).items():
            counts[len(run[example])] += chance
        assert max(count for count, chance in counts.items() if chance > 0.0) <= sampler.most_participations
        assert stated is None or stated == pytest.approx(counts, rel=1e-9)
    assert stated is None or Adjacency.ADD_REMOVE in sampler.holds_for


@pytest.mark.parametrize(("sampler", "n"), ALL_CASES)
@pytest.mark.parametrize("wrong", [0, -3, True, 2.0, "4", None, MAX_EXAMPLES + 1])
def test_wrong_number_of_examples_fails_at_the_call(sampler: BatchSampler, n: int, wrong: object) -> None:
    with pytest.raises(InvalidInputError, match=r"^The 'num_examples' argument must be .*Got .* instead\.$"):
        sampler.batches(wrong, np.random.default_rng(0))  # type: ignore[arg-type]


@pytest.mark.parametrize(("sampler", "n"), ALL_CASES)
@pytest.mark.parametrize("wrong", [None, 7, np.random.RandomState(0)])
def test_wrong_generator_fails_at_the_call(sampler: BatchSampler, n: int, wrong: object) -> None:
    with pytest.raises(InvalidInputError, match=r"^The 'rng' argument must be a numpy.random.Generator"):
        sampler.batches(n, wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(("sampler", "n"), ALL_CASES)
def test_numpy_integers_are_numbers_of_examples(sampler: BatchSampler, n: int) -> None:
    assert len(list(sampler.batches(np.int32(n), np.random.default_rng(0)))) == sampler.steps  # type: ignore[arg-type]


class Holder(Spec):
    sampler: Sampler


@pytest.mark.parametrize(("sampler", "n"), ALL_CASES)
def test_survives_json_and_is_told_apart_by_kind(sampler: BatchSampler, n: int) -> None:
    text = Holder.parse({"sampler": sampler}).model_dump_json()
    assert Holder.parse_json(text).sampler == sampler


class PlanPart(Spec):
    data: Data
    sampler: SamplerOptions


@pytest.mark.parametrize(
    ("kind", "options", "expected"),
    [(kind, *plan) for kind, declared in DECLARED.items() for plan in declared.plans],
)
def test_plan_options_make_the_sampler(kind: str, options: dict[str, object], expected: BatchSampler) -> None:
    part = PlanPart.parse({"data": DATA, "sampler": {"kind": kind, **options}})
    assert part.sampler.sampler(part.data) == expected
    assert len(list(expected.batches(part.data.num_examples, np.random.default_rng(0)))) == expected.steps


# Planted faults: each is rejected against the law it pretends to follow ----------------------------------------------


@pytest.mark.parametrize(
    ("fault", "pretended", "n"),
    [pytest.param(*wrong, id=wrong[0].__name__) for declared in DECLARED.values() for wrong in declared.wrong],
)
def test_planted_fault_is_rejected(
    fault: Callable[[np.random.Generator], Batches], pretended: BatchSampler, n: int
) -> None:
    law = DECLARED[pretended.kind].law(pretended, n)
    drawn = draw_runs(fault, n, FAULT_RUNS)
    with pytest.raises(AssertionError):
        assert_follows(drawn, law)
    genuine = draw_runs(lambda rng: pretended.batches(n, rng), n, FAULT_RUNS)
    assert_follows(genuine, law)  # the same test with the same number of runs passes the real one
