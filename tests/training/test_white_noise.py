"""What reaches ``p.grad`` over a whole run is the mechanism's noise, for every strategy and every way to clip."""

import numpy as np
import pytest
from whiteness import STEPS, is_white, strategies

import hockeystick as hs
from hockeystick.errors import InvalidInputError, ViolationError
from hockeystick.strategies import STRATEGIES

pytest.importorskip("opacus", reason="needs torch and opacus")

import torch

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")

SIGMA, CLIP = 2.0, 1.5
SAMPLERS = {1: hs.Poisson(sampling_prob=0.05, steps=STEPS), 4: hs.Deterministic(bins=15, epochs=3)}
"""By the parts that BatchMemoryManager makes of a batch: some empty batches, or always four examples, one a part."""


@pytest.fixture(scope="module")
def of_kind(tmp_path_factory):
    """A strategy of every kind."""
    return strategies(tmp_path_factory.mktemp("strategies"))


@pytest.fixture
def trained(training, of_kind):
    """Trains with zero gradients; gives what reached ``p.grad`` at each step, times the divisor, in clipping norms."""

    def train(kind, parts=1, change=lambda made: None, **options):
        mechanism = hs.Mechanism(strategy=of_kind[kind], sampler=SAMPLERS[parts], noise_multiplier=SIGMA)
        made = training(mechanism, width=40, scale=0.0, **options)
        change(made)
        rows: list[np.ndarray] = []
        calls = 0

        def look():
            nonlocal calls
            calls += 1
            if made.engine.run.step > len(rows):
                rows.append(made.gradient() * made.engine.run.expected_batch_size / CLIP)

        while made.engine.run.remaining:
            if parts == 1:
                made.epoch(on_step=look)
            else:
                made.accumulated_epoch(1, on_step=look)
        assert calls == parts * STEPS
        assert np.shape(rows) == (STEPS, 6 * 40 + 40 + 40 * 3 + 3)
        return made, np.array(rows)

    return train


def check(made, rows):
    assert is_white(made.engine.mechanism.matrix, rows, SIGMA)
    record = made.engine.record()
    assert (record.steps, record.violations) == (STEPS, ())
    assert {"one_noise_row_a_step", "noise_is_added", "public_normaliser"} <= set(record.checked)


def test_no_kind_of_strategy_is_left_out(of_kind):
    assert set(of_kind) == set(STRATEGIES)


@pytest.mark.parametrize("kind", STRATEGIES)
@pytest.mark.parametrize(("mode", "parts"), [("hooks", 1), ("ghost", 4)])
def test_the_noise_is_the_strategy_s(kind, mode, parts, trained):
    check(*trained(kind, parts, grad_sample_mode=mode))


OTHERS = [
    {"parts": 4},
    {"grad_sample_mode": "ghost"},
    {"clipping": "per_layer", "max_grad_norm": [CLIP / 2] * 4},  # together CLIP
    {"clipping": "per_layer", "max_grad_norm": [CLIP / 2] * 4, "parts": 4},
    {"grad_sample_mode": "functorch"},
]


@pytest.mark.parametrize("kind", ["banded_square_root"])
@pytest.mark.parametrize("options", OTHERS[2:])
def test_the_noise_is_the_strategy_s_for_other_clippings(kind, options, trained):
    check(*trained(kind, **options))


@pytest.mark.parametrize("kind", STRATEGIES)
def test_the_noise_is_the_strategy_s_in_every_other_way(kind, trained):
    for options in OTHERS:
        check(*trained(kind, **options))


def planted(name):
    """Puts a fault in the noise of one step, or of all."""

    def plant(made):
        noise = made.optimizer.noise
        following, kept = noise.borrow, []

        def changed(examples):
            rows = following(examples)
            kept.append([row.clone() for row in rows])
            step = len(kept) - 1
            if name == "stale_row" and step == 7:
                return kept[6]
            if name == "seed_used_again" and step >= 20:  # a resume that starts the noise anew
                return kept[step - 20]
            if name == "divided_by_the_batch_size":
                return [row / noise.run.expected_batch_size for row in rows]
            if name == "one_parameter_without":
                rows[3].zero_()
            if name == "five_percent_less":
                return [0.95 * row for row in rows]
            if name == "uncorrelated":
                return [torch.randn_like(row) * SIGMA for row in rows]
            return rows

        noise.borrow = changed

    return plant


FAULTS = [
    "stale_row",
    "seed_used_again",
    "divided_by_the_batch_size",
    "one_parameter_without",
    "five_percent_less",
    "uncorrelated",
]


@pytest.mark.parametrize("kind", ["identity", "banded_square_root", "tree_restart"])
@pytest.mark.parametrize("fault", FAULTS)
def test_whiteness_notices(fault, kind, trained):
    made, rows = trained(kind, change=planted(fault))
    white = fault == "uncorrelated" and kind == "identity"  # which is no fault there
    assert is_white(made.engine.mechanism.matrix, rows, SIGMA) == white


# Faults of the loop, which the record notices before whiteness could.


def test_a_skipped_empty_batch_is_caught(trained):
    """Its noise would be that of a later sum, and all later rows shifted."""

    def change(made):
        made.epoch = lambda on_step: type(made).epoch(made, (pair for pair in made.loader if len(pair[0])), on_step)

    with pytest.raises(ViolationError, match="Every batch that was handed out was used at its own step"):
        trained("banded_square_root", change=change)


def test_dropped_last_examples_are_caught(trained):
    def change(made):
        last = made.loader.collate_fn.collate
        made.loader.collate_fn.collate = lambda examples: last(examples[: len(examples) // 2 * 2] or examples)

    with pytest.raises(ViolationError, match="'number_of_examples'"):
        trained("banded_square_root", change=change)


def test_an_extra_step_is_caught(trained):
    made, _ = trained("banded_square_root")
    before = made.weights()
    x, y = made.loader.dataset.tensors
    made.optimizer.zero_grad()
    made.criterion(made.model(x), y).backward()
    with pytest.raises(InvalidInputError, match="All 45 planned steps were taken"):
        made.optimizer.step()
    assert made.engine.record().refused_steps == 1
    assert np.array_equal(made.weights(), before)
