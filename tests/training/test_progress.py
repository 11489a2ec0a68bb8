"""Long work of an engine says what it is, how far it is and whose epsilon came of it; and is done once."""

import pytest

import hockeystick as hs
from hockeystick.certification import issue
from hockeystick.training import progress
from hockeystick.training.engine import Engine
from hockeystick.training.progress import Progress, certify_shown
from hockeystick.training.spent import Spending

BANDED = hs.BandedSquareRoot(bands=2)
IN_BINS = hs.Mechanism(strategy=BANDED, sampler=hs.BallsInBins(bins=6, epochs=2), noise_multiplier=3.0)


@pytest.fixture
def at_once(monkeypatch):
    """All work is long, and every piece of it is told."""
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(progress, "EVERY_SECONDS", 0.0)


def engine_of(mechanism, step=0):
    engine = Engine(mechanism)
    engine._settle()
    engine._run = hs.training.Run(engine.mechanism, num_examples=60, shape=None)
    engine._run._step = step
    return engine


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_first_epsilon_of_correlated_noise_says_whose_it_is(at_once, capsys):
    epsilon = engine_of(IN_BINS, step=1).get_epsilon(1e-5)
    first, *told, last = capsys.readouterr().err.splitlines()
    steps = "all 12 planned steps"
    assert first == f"hockeystick: certifying {steps}"
    assert told
    assert all(line.endswith(" pieces of work done") for line in told)
    assert last.startswith(f"hockeystick: epsilon is at most {epsilon:.6g} for {steps}, in ")


def test_a_certificate_says_it_too(at_once, capsys):
    engine = engine_of(hs.Mechanism(sampler=hs.RandomAllocation(bins=6, epochs=2), noise_multiplier=2.0), step=6)
    for options, steps in (({}, "all 12 planned steps"), ({"executed": True}, "the executed steps")):
        upper = engine.certificate(1e-5, **options, method="direct").epsilon.upper
        lines = capsys.readouterr().err.splitlines()
        assert lines[0] == f"hockeystick: certifying {steps}"
        assert lines[-1].startswith(f"hockeystick: epsilon is at most {upper:.6g} for {steps}, in ")


@pytest.fixture
def asked(monkeypatch):
    """What was certified outside of calibrations."""
    mechanisms = []
    certify_with = issue.certify_with

    def watched(mechanism, *rest):
        mechanisms.append(mechanism)
        return certify_with(mechanism, *rest)

    monkeypatch.setattr(issue, "certify_with", watched)
    return mechanisms


def test_an_epsilon_and_its_certificate_are_one_computation(asked):
    engine = engine_of(IN_BINS, step=12)
    for _ in range(2):
        assert engine.get_epsilon(1e-5) == engine.certificate(1e-5).epsilon.upper
    assert asked.count(IN_BINS) == 1


def test_calibration_says_how_far_it_is_and_leaves_its_certificate(at_once, asked, capsys):
    plan = hs.Plan.parse(
        {
            "data": {"num_examples": 60, "batch_size": 20, "epochs": 2},
            "sampler": {"kind": "balls_in_bins"},
            "strategy": {"kind": "banded_square_root", "bands": 2},
            "target": {"epsilon": 3.0, "delta": 1e-5},
        }
    )
    engine = engine_of(plan, step=6)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "hockeystick: calibrating the noise for epsilon = 3.0 at delta = 1e-05"
    assert lines[-1].startswith(f"hockeystick: noise_multiplier = {engine.mechanism.sigma!r}, in ")
    assert any("is certified so far" in line for line in lines)
    assert sum(line.endswith(" pieces of work done") for line in lines) > 10
    epsilon = engine.get_epsilon(1e-5)
    assert epsilon == engine.certificate().epsilon.upper <= 3.0
    assert engine.mechanism not in asked
    assert not capsys.readouterr().err
    certified = hs.certify(engine.mechanism, delta=1e-5).epsilon
    assert certified.lower <= epsilon == pytest.approx(certified.upper, rel=1e-6)
    assert engine.certificate(1e-6).epsilon.lower > epsilon  # of another delta, which was not calibrated for


def test_a_caller_s_deadline_or_budget_is_the_caller_s(at_once, capsys):
    ticks: list[int] = []
    deadline = hs.Deadline(on_tick=ticks.append)
    run = hs.Mechanism(sampler=hs.RandomAllocation(bins=6, epochs=2), noise_multiplier=2.0)
    by_them = certify_shown(run, "the steps", delta=1e-5, deadline=deadline)
    budgeted = certify_shown(run, "the steps", delta=1e-5, budget=20.0)
    quiet = certify_shown(run, "the steps", shown=False, delta=1e-5)
    assert ticks
    assert not capsys.readouterr().err
    assert by_them == quiet == hs.certify(run, delta=1e-5)
    assert budgeted.epsilon.upper <= 1.01 * quiet.epsilon.upper
    bound = certify_shown(run, "the steps", epsilon=2.0)
    assert f"delta is at most {bound.delta.upper:.6g} for the steps, in " in capsys.readouterr().err


def test_work_that_never_ticks_is_announced_by_a_timer(monkeypatch, capsys):
    """As kernels that are compiled; and work that ends before the timer says nothing."""

    class Timed:
        def __init__(self, seconds, call):
            self.seconds, self.call, self.cancelled = seconds, call, False
            timers.append(self)

        def start(self):
            """Nothing: the test fires it."""

        def cancel(self):
            self.cancelled = True

    timers: list[Timed] = []
    monkeypatch.setattr(progress, "Timer", Timed)
    with Progress("compiling") as slow:
        timers[0].call()
        timers[0].call()
        slow.done("compiled")
    with Progress("adding") as quick:
        quick.done("added")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "hockeystick: compiling"
    assert lines[1].startswith("hockeystick: compiled, in ")
    assert len(lines) == 2
    assert [timer.seconds for timer in timers] == [1.0, 1.0]
    assert all(timer.cancelled for timer in timers)


def test_epsilons_of_parts_of_a_plan_name_the_part(at_once, capsys):
    mechanism = hs.Mechanism(strategy=BANDED, sampler=hs.Deterministic(bins=10, epochs=6), noise_multiplier=3.0)
    run = hs.training.Run(mechanism, num_examples=60, shape=None)
    run._step = 3
    Spending(run, 1e-5, has_end=True)
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("hockeystick: certifying")]
    assert told[0] == "hockeystick: certifying all 60 planned steps"
    assert "hockeystick: certifying the first 10 steps" in told


def test_one_of_several_processes_tells(at_once, capsys):
    engine = engine_of(hs.Mechanism(sampler=hs.RandomAllocation(bins=6, epochs=2), noise_multiplier=2.0), step=12)
    engine._leads = False
    assert engine.get_epsilon(1e-5) == engine.certificate(1e-5).epsilon.upper
    assert engine.certificate(1e-5, method="direct").method.upper == "direct"
    assert not capsys.readouterr().err


def test_the_accountant_in_jax_says_it_too(at_once, capsys):
    pytest.importorskip("jax_privacy")
    accountant = hs.jax.Accountant().compose(hs.jax.MechanismDpEvent(IN_BINS))
    for asked, bounded in ((accountant.get_epsilon, "epsilon"), (accountant.get_delta, "delta")):
        upper = asked(0.01 if bounded == "epsilon" else 1.0)
        lines = capsys.readouterr().err.splitlines()
        assert lines[0] == "hockeystick: certifying all 12 planned steps"
        assert lines[-1].startswith(f"hockeystick: {bounded} is at most {upper:.6g} for all 12 planned steps, in ")
