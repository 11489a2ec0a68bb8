"""A run gives the mechanism's batches and noise, checks every promise, and resumes bit for bit."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samplers import DECLARED
from scipy.stats import chi2
from small_runs import EXAMPLES, finished, mechanism_of, run_of, same

import hockeystick as hs
from hockeystick.errors import InvalidInputError, ViolationError
from hockeystick.samplers import SAMPLERS
from hockeystick.samplers.promises import Promises
from hockeystick.training import Run

SAMPLERS_OF_ALL_KINDS = [sampler for declared in DECLARED.values() for sampler in declared.runs]
all_kinds = pytest.mark.parametrize("sampler", SAMPLERS_OF_ALL_KINDS, ids=lambda one: f"{one.kind}-{one.steps}")


def redrawn(run, sampler):
    """The batches that the sampler itself draws from the run's secret seed."""
    words = [int(word) for word in run.state_dict()["entropy"]]
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence(words)))
    return list(sampler.batches(EXAMPLES, generator))


@pytest.mark.parametrize("kind", SAMPLERS)
def test_every_sampler_has_promises(kind):
    assert SAMPLERS[kind].PROMISES is not Promises, f"Say in PROMISES of {SAMPLERS[kind].__name__} what a run checks."


@all_kinds
def test_a_run_has_the_sampler_s_batches_and_keeps_every_promise(sampler):
    run = run_of(sampler)
    made = finished(run)
    record = run.record()
    assert len(made) == sampler.steps == run.step
    assert all(np.array_equal(a, b) for (a, _), b in zip(made, redrawn(run, sampler), strict=True))
    assert not record.violations
    none = {"truncated_batch_size"} if getattr(sampler, "truncated_batch_size", None) is None else set()
    promised = set(sampler.PROMISES.meanings) - none
    assert {"steps_in_order", "examples_of_the_batch", *promised} <= set(record.checked)
    assert not none & set(record.checked), "a run without a largest size has not checked it"


@all_kinds
@pytest.mark.parametrize("steps", [1, 4, 5, 8])
def test_the_executed_mechanism_draws_the_first_steps_of_the_planned_one(sampler, steps):
    """From one generator, its batches are the same ones: so the law of the first steps is its law."""
    run = run_of(sampler)
    for batch in itertools.islice(run.batches(), steps):
        run.noise(batch)
    executed = run.executed()
    if executed is None:
        assert hasattr(sampler, "epochs")
        assert steps % sampler.bins
        return
    first, planned = redrawn(run, executed.sampler), redrawn(run, sampler)
    assert len(first) == steps
    assert all(np.array_equal(a, b) for a, b in zip(first, planned[:steps], strict=True))


@pytest.mark.parametrize(
    ("strategy", "has_one"),
    [
        (hs.Identity(), True),
        (hs.BandedSquareRoot(bands=3), True),
        (hs.BandedSquareRoot(bands=8), False),  # more bands than steps were taken
        (hs.SquareRoot(), True),
        (hs.BandedToeplitz(bands=3), False),  # optimised for all of the steps
    ],
    ids=lambda one: getattr(one, "kind", one),
)
def test_an_executed_mechanism_has_the_leading_block_of_the_matrix(strategy, has_one):
    mechanism = mechanism_of(hs.Poisson(sampling_prob=0.1, steps=12), strategy)
    run = Run(mechanism, num_examples=EXAMPLES, shape=2, rng=np.random.default_rng(0))
    for batch in itertools.islice(run.batches(), 5):
        run.noise(batch)
    executed = run.executed()
    assert (executed is not None) == has_one
    if executed is not None:
        block = mechanism.matrix.columns(np.arange(12))[:5, :5]
        assert np.array_equal(executed.matrix.columns(np.arange(5)), block)


def test_nothing_was_executed_at_first():
    assert run_of().executed() is None


@all_kinds
def test_the_normaliser_is_the_mean_batch_size(sampler):
    """Mean of 400 runs within 6 standard errors; false failure below 1e-7 where anything is random."""
    cut = getattr(sampler, "truncated_batch_size", None) is not None
    cold = not getattr(sampler, "warm_start", True)
    rng = np.random.default_rng(1)
    runs = np.array([[batch.size for batch in sampler.batches(EXAMPLES, rng)] for _ in range(400)])
    settled = sampler.min_sep - 1 if sampler.kind == "multi_attribution" else 0  # before it nobody was sampled yet
    sizes = runs[:, settled:].mean(axis=1)
    error = sizes.std() / 20.0 + 1e-9
    expected = run_of(sampler).expected_batch_size
    if cut:
        assert expected == 10.0
    elif cold:
        assert sizes.mean() + 6.0 * error > expected
    else:
        assert abs(sizes.mean() - expected) < 6.0 * error


@pytest.mark.parametrize(
    "strategy",
    [hs.Identity(), hs.BandedSquareRoot(bands=4), hs.BandedInverseSquareRoot(bands=4), hs.SquareRoot()],
    ids=lambda one: one.kind,
)
def test_the_noise_is_white_under_the_matrix(strategy):
    """Chi-square, two-sided: fails falsely with probability 1e-6."""
    size, steps = 500, 12
    mechanism = mechanism_of(hs.Poisson(sampling_prob=0.01, steps=steps), strategy)
    run = Run(mechanism, num_examples=EXAMPLES, shape=size, dtype=np.float64, rng=np.random.default_rng(7))
    rows = np.array([row for _, row in finished(run)])
    statistic = float((mechanism.matrix.dot(rows) ** 2).sum()) / 4.0
    assert 5e-7 < chi2.cdf(statistic, steps * size) < 1.0 - 5e-7


FAULTS = [fault for declared in DECLARED.values() for fault in declared.broken]


def test_every_promise_has_a_fault():
    assert {fault.promise for fault in FAULTS} == set().union(*(one.PROMISES.meanings for one in SAMPLERS.values()))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda one: f"{one.sampler.kind}-{one.promise}")
def test_a_batch_that_the_sampler_would_not_make_ends_the_run(fault):
    run = run_of(fault.sampler)
    run._drawing = iter([np.array(batch, dtype=np.int64) for batch in fault.batches])
    batches = run.batches()
    for _ in range(fault.step):
        batch = next(batches)
        run.noise(batch)
    with pytest.raises(ViolationError, match=f"Step {fault.step} of the run broke the promise '{fault.promise}'"):
        run.noise(next(batches))
    assert run.record().violations == (fault.promise,)
    assert run.step == fault.step


def seed_with_empty_batch():
    """A run whose second batch is empty and whose third is not."""
    for seed in range(1000):
        sizes = [batch.size for batch in redrawn(run_of(seed=seed), hs.Poisson(sampling_prob=0.1, steps=12))]
        if sizes[0] and sizes[1] == 0 and sizes[2]:
            return seed
    raise AssertionError


@pytest.mark.parametrize("only_the_number", [False, True])
def test_a_skipped_empty_batch_is_caught(only_the_number):
    run = run_of(seed=seed_with_empty_batch())
    filled = [batch for batch in itertools.islice(run.batches(), 3) if batch.size]
    run.noise(filled[0])
    with pytest.raises(ViolationError, match="Step 1 of the run"):
        run.noise(filled[1].size if only_the_number else filled[1])
    record = run.record(hs.certify(run.mechanism, delta=1e-5))
    assert record.violations == (("number_of_examples",) if only_the_number else ("examples_of_the_batch",))
    assert record.certificate is None
    assert "NO CERTIFICATE" in str(record)
    with pytest.raises(ViolationError, match="The run ended at step 1"):
        run.noise([])


@pytest.mark.parametrize(
    "change",
    [
        lambda batch, later: batch[:-1],  # the last ones dropped
        lambda batch, later: np.append(batch, batch[:1]),  # one of them twice
        lambda batch, later: np.concatenate([batch, later]),  # two batches accumulated in one step
        lambda batch, later: (batch + 1) % EXAMPLES,  # another example
    ],
    ids=["dropped", "twice", "accumulated", "another"],
)
def test_sums_over_other_examples_are_caught(change):
    run = run_of(hs.Poisson(sampling_prob=0.5, steps=4))
    first, second = itertools.islice(run.batches(), 2)
    with pytest.raises(ViolationError, match="examples_of_the_batch"):
        run.noise(change(first, second))


@pytest.mark.parametrize("change", [-1, 1])
def test_the_number_of_examples_is_compared_both_ways(change):
    run = run_of(hs.Poisson(sampling_prob=0.5, steps=4))
    with pytest.raises(ViolationError, match="number_of_examples"):
        run.noise(next(run.batches()).size + change)


def test_the_order_of_the_examples_does_not_matter():
    run = run_of(hs.Poisson(sampling_prob=0.5, steps=4))
    run.noise(next(run.batches())[::-1])
    assert not run.record().violations


def test_the_record_says_when_only_numbers_were_checked():
    run = run_of()
    for batch in run.batches():
        run.noise(batch.size)
    record = run.record()
    assert "number_of_examples" in record.checked
    assert "examples_of_the_batch" in record.asserted


def test_a_step_past_the_plan_is_refused_and_costs_nothing():
    run = run_of()
    finished(run)
    with pytest.raises(InvalidInputError, match="All 12 planned steps were taken"):
        run.noise([])
    assert list(run.batches()) == []
    record = run.record(hs.certify(run.mechanism, delta=1e-5))
    assert (record.refused_steps, record.violations) == (1, ())
    assert record.certificate is not None


def test_a_bad_place_for_the_noise_leaves_the_run_as_it_was():
    expected, run = (
        finished(run_of(hs.BMinSep(min_sep=3, sampling_prob=0.2, steps=12))),
        run_of(DECLARED["b_min_sep"].runs[0]),
    )
    with pytest.raises(InvalidInputError, match="'out' parameter"):
        run.noise(next(run.batches()), out=np.empty(4, np.float32))
    assert same(finished(run), expected)


@all_kinds
@pytest.mark.parametrize("ahead", [0, 3])
def test_a_run_that_was_saved_at_any_step_goes_on_as_if_nothing_had_happened(sampler, ahead, tmp_path):
    """The state holds what was used, not what was read ahead."""
    whole = run_of(sampler)
    expected = finished(whole)
    run = run_of(sampler)
    made = []
    for step in range(sampler.steps):
        batches = list(itertools.islice(run.batches(), 1 + ahead))
        made.append((batches[0], run.noise(batches[0])))
        if step % 5 == 1:
            run.save(tmp_path / "state.npz")
            run = Run.resume(tmp_path / "state.npz", run.mechanism, num_examples=EXAMPLES, shape=3)
    assert same(made, expected)
    record = run.record()
    assert record.commitment == whole.record().commitment
    assert record.resumed == 3
    assert "repeated_steps_repeat" in record.asserted


@settings(max_examples=30)
@given(
    moves=st.lists(st.sampled_from(["step", "peek", "load"]), max_size=30),
    sampler=st.sampled_from(SAMPLERS_OF_ALL_KINDS),
)
def test_reading_ahead_and_resuming_change_nothing(moves, sampler):
    expected, run, made = finished(run_of(sampler)), run_of(sampler), []
    for move in moves:
        if move == "peek":
            list(itertools.islice(run.batches(), 4))
        elif move == "load":
            state = run.state_dict()
            run = run_of(sampler, seed=99)
            run.load_state_dict(state)
        elif run.remaining:
            batch = next(run.batches())
            made.append((batch, run.noise(batch)))
    assert same(made, expected[: len(made)])


def test_a_step_that_is_made_again_after_a_resume_has_the_same_noise():
    run = run_of()
    state = run.state_dict()
    first = finished(run)
    run.load_state_dict(state)
    assert same(finished(run), first)


def test_secure_runs_differ_and_resume():
    pytest.importorskip("cryptography")
    left, right = run_of(rng=None, secure=True), run_of(rng=None, secure=True)
    state = left.state_dict()
    first = finished(left)
    assert not same(first, finished(right))
    assert left.record().noise == "keyed"
    right.load_state_dict(state)
    assert same(finished(right), first)


def test_seeds_come_from_the_operating_system_by_default():
    assert not same(finished(run_of(rng=None)), finished(run_of(rng=None)))


def test_a_run_without_noise_counts_and_checks():
    run = run_of(shape=None)
    assert run.noise(next(run.batches())) is None
    record = run.record()
    assert record.noise is None
    assert "one_noise_row_a_step" in record.asserted
    run.load_state_dict(run.state_dict())
    assert run.step == 1
    with pytest.raises(InvalidInputError, match="has no noise"):
        run_of().load_state_dict(run.state_dict())
    with_noise = run_of()
    run.load_state_dict(with_noise.state_dict())  # of the first rank, for another one
    assert run.step == 0


def test_a_row_of_noise_that_was_lost_is_noticed(monkeypatch):
    """An interrupt between taking the row and counting the step would shift all later rows."""
    run = run_of()
    batch = next(run.batches())
    monkeypatch.setattr(run._chain, "add", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        run.noise(batch)
    monkeypatch.undo()
    with pytest.raises(ViolationError, match="one_noise_row_a_step"):
        run.noise(batch)


def test_a_violation_survives_a_resume():
    run = run_of()
    with pytest.raises(ViolationError):
        run.noise(1000)
    resumed = run_of()
    resumed.load_state_dict(run.state_dict())
    with pytest.raises(ViolationError, match="ended at step 0"):
        resumed.noise(next(resumed.batches()))
    assert resumed.record().violations == ("number_of_examples",)


def test_a_record_says_what_was_not_checked_before_a_resume():
    run = run_of()
    for batch in run.batches():
        run.noise(batch.size)
    with pytest.raises(InvalidInputError, match="All 12 planned steps were taken"):
        run.noise([])
    resumed = run_of()
    resumed.load_state_dict(run.state_dict())
    record = resumed.record()
    assert "examples_of_the_batch" in record.asserted
    assert (record.resumed, record.refused_steps) == (1, 1)


def test_an_iterator_that_is_behind_is_refused():
    run = run_of()
    slow, fast = run.batches(), run.batches()
    next(slow)
    for _ in range(3):
        run.noise(next(fast))
    with pytest.raises(InvalidInputError, match="used already"):
        next(slow)


def test_users_are_attributed():
    graph = hs.Attribution.from_pairs(users=np.arange(EXAMPLES) // 2, examples=np.arange(EXAMPLES))
    sampler = hs.MultiAttribution(min_sep=3, sampling_prob=0.2, steps=12, examples_per_user=2)
    run = run_of(sampler, attribution=graph)
    expected = finished(run)
    again = run_of(sampler, attribution=graph)
    state = again.state_dict()
    assert same(finished(again), expected)
    again.load_state_dict(state)
    again._drawing = iter([np.array([0]), np.array([1])])  # two examples of one user
    batches = again.batches()
    again.noise(next(batches))
    with pytest.raises(ViolationError, match="min_separation"):
        again.noise(next(batches))
