"""Arguments with a row for each example that are not in batch_argnums are refused: every example would see all."""

from functools import partial

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.errors import InvalidInputError

pytest.importorskip("jax_privacy", reason="needs jax, optax and jax-privacy")

import jax.numpy as jnp

from hockeystick.training.jax.arguments import check_shared, positions_of

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
EXAMPLES = 8
both = pytest.mark.parametrize("exact", [False, True])


def loss(params, x, y):
    return jnp.mean((x @ params - y) ** 2)


def weighted(params, x, y, weights):
    return jnp.mean(((x @ params - y) * weights.sum()) ** 2)


def total(exact, y, more=(), **options):
    """The sum of the clipped gradients, in clipping norms."""
    mechanism = hs.Mechanism(sampler=hs.Deterministic(bins=1), noise_multiplier=1.0, exact=exact)
    config = hs.jax.ExecutionPlanConfig(mechanism, params=jnp.zeros(3), l2_clip_norm=1.0, num_examples=EXAMPLES)
    plan = config.make()
    function = weighted if more else loss
    x = np.ones((EXAMPLES, 3), np.float32)
    sums = plan.clipped_grad(function, **options)(jnp.zeros(3), x, y, *more)
    unit = plan.noise_addition_transform.steps if exact else 1.0 / EXAMPLES
    return np.asarray(sums) / unit


def labels(changed=None):
    y = np.ones(EXAMPLES, np.float32)
    if changed is not None:
        y[changed] = -1000.0
    return y


@both
def test_labels_that_are_not_named_are_refused(exact):
    with pytest.raises(InvalidInputError, match="The argument 2 of the function has 8 rows, as many as the batch has"):
        total(exact, labels())


@both
def test_one_label_turns_all_gradients_round_where_every_example_sees_it(exact, monkeypatch):
    def moved(**options):
        return np.linalg.norm(total(exact, labels(3), **options) - total(exact, labels(), **options))

    assert moved(batch_argnums=(1, 2)) == pytest.approx(2.0, rel=1e-5)
    for place in ("exact", "execution_plan"):
        monkeypatch.setattr(f"hockeystick.training.jax.{place}.check_shared", lambda args, apart, size: None)
    assert moved() == pytest.approx(2.0 * EXAMPLES, rel=1e-5)


@both
def test_what_all_examples_share_may_have_other_rows(exact):
    shared = total(exact, labels(), (np.ones(3, np.float32),), batch_argnums=(1, 2))
    assert np.isfinite(shared).all()
    with pytest.raises(InvalidInputError, match="The argument 3"):
        total(exact, labels(), (np.ones(EXAMPLES, np.float32),), batch_argnums=(1, 2))


def test_trees_are_looked_at_as_a_whole():
    rows, other = np.zeros((4, 2)), np.zeros(3)
    with pytest.raises(InvalidInputError, match="The argument 1 of the function has 4 rows"):
        check_shared([rows, {"x": rows, "y": rows[:, 0]}], [0], 4)
    check_shared([rows, {"x": rows, "y": other}, other, (), 1.0], [0], 4)
    check_shared([rows[:1], rows[:1]], [0], 1)
    check_shared([rows, partial(loss, rows)], [0], 4)


def test_positions_are_given_one_by_one_in_sequences_or_not_at_all():
    assert positions_of((1, 2), 0, None) == (1, 2, 0)
