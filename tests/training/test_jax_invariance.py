"""Batch invariance in JAX: ordinary losses at one shape have no finding, and losses that mix examples are found."""

import json

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.errors import InvalidInputError, UnsupportedError

pytest.importorskip("jax_privacy", reason="needs jax, optax and jax-privacy")

import jax
import jax.numpy as jnp

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")

ROWS = 32
WIDTH = 8
RNG = np.random.default_rng(0)
PARAMS = {
    "first": jnp.asarray(RNG.normal(size=(WIDTH, 6)), jnp.float32),
    "second": jnp.asarray(RNG.normal(size=6), jnp.float32),
}
EXAMPLE = RNG.normal(size=WIDTH).astype(np.float32), np.float32(0.5)
SPECIAL = 7.5


def loss(params, x, y):
    return jnp.mean((jnp.tanh(x @ params["first"]) @ params["second"] - y) ** 2)


def tokens_loss(params, tokens, y):
    return loss(params, jax.nn.one_hot(tokens, WIDTH), y)


def audited(fun=loss, example=EXAMPLE, **options):
    options = {"batch": ROWS, "batch_argnums": (1, 2)} | options
    return hs.jax.invariance(fun, PARAMS, *example, **options)


def mixed(factor):
    """A loss whose scale is what ``factor`` makes of the batch that vmap hands over; a loss alone has no such thing."""

    @jax.custom_batching.custom_vmap
    def scale(x):
        return jnp.float32(1.0)

    @scale.def_vmap
    def _(size, batched, x):
        return jnp.broadcast_to(factor(x.reshape(size, -1)), (size,)).astype(jnp.float32), True

    return lambda params, x, y: loss(params, x, y) * scale(jax.lax.stop_gradient(x))


@pytest.mark.parametrize(
    ("fun", "example"), [(loss, EXAMPLE), (tokens_loss, (np.int32(5), np.float32(0.5)))], ids=["numbers", "tokens"]
)
def test_no_bit_changes_at_one_shape(fun, example):
    audit = audited(fun, example)
    assert audit.invariant, str(audit)
    assert (audit.worst, audit.mode, audit.comparisons) == (0.0, "jax", 4 * 16 - 1)
    assert {layer.parameter for layer in audit.layers} == {"['first']", "['second']"}
    assert [shape.examples for shape in audit.shapes] == [1, 3, 2 * ROWS]
    assert max(shape.change for shape in audit.shapes) < 1e-5
    assert "No bit of the example's gradient changed" in str(audit)
    assert json.loads(audit.model_dump_json())["batch"] == ROWS


def test_a_loss_that_mixes_is_found():
    audit = audited(mixed(lambda x: 1.0 + 1e-3 * jnp.tanh(x.mean())), batch=4)
    assert not audit.invariant
    assert all(layer.changed for layer in audit.layers)
    assert 1e-6 < audit.worst < 1e-2


def test_a_change_of_a_last_bit_at_one_place_is_found_and_places_can_be_chosen():
    third = mixed(lambda x: 1.0 + 2.0**-22 * (jnp.arange(len(x)) == 2))
    assert not audited(third, batch=4).invariant
    assert audited(third, places=[0, 1]).invariant


def test_given_neighbours_stand_beside_the_example():
    wary = mixed(lambda x: 1.0 + 1e-3 * (x == SPECIAL).any())
    other = np.full(WIDTH, SPECIAL, np.float32), np.float32(0.0)
    assert audited(wary).invariant
    assert not audited(wary, neighbours=[other]).invariant


def test_without_the_dimension_of_the_batch_and_for_several_arguments():
    """The function that clipped_grad compiles for these options: x has no dimension in front then."""

    def of_one(first, x, second):
        assert x.shape == (WIDTH,)
        return jnp.sum(jnp.sin(x @ first) * second)

    audit = hs.jax.invariance(
        of_one, PARAMS["first"], EXAMPLE[0], PARAMS["second"], batch=4, argnums=(0, 2), keep_batch_dim=False
    )
    assert {layer.parameter for layer in audit.layers} == {"[0]", "[1]"}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"batch": 1}, "The 'batch' argument must be of whole numbers of at least 2"),
        ({"places": [ROWS]}, "The 'places' argument must be of whole numbers from 0 to 31"),
        ({"shapes": [0]}, "The 'shapes' argument must be of whole numbers of at least 1"),
        ({"example": (np.full(WIDTH, np.nan, np.float32), EXAMPLE[1])}, "must have a gradient that is finite and not"),
    ],
)
def test_arguments_out_of_range_are_refused_in_one_sentence(change, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        audited(**change)


def test_the_record_says_that_the_loss_was_audited():
    record = config_of(invariance=audited(places=[0, ROWS - 1], shapes=[1])).record()
    assert "invariance_audited" in record.checked
    assert "batch_invariance" in record.asserted
    assert "invariance_audited" not in config_of().record().checked


def test_an_audit_of_something_else_is_refused():
    audit = audited(places=[0, 1], shapes=[1])
    with pytest.raises(
        InvalidInputError, match=r"an audit by hockeystick.jax.invariance with batch=32, as the run has"
    ):
        config_of(invariance=audited(batch=4, shapes=[1]))
    with pytest.raises(InvalidInputError, match="Got one of 'hooks' with 32 instead"):
        config_of(invariance=audit.model_copy(update={"mode": "hooks"}))
    with pytest.raises(
        InvalidInputError, match=r"must be what hockeystick\.jax\.invariance returned\. Got True instead"
    ):
        config_of(invariance=True)
    with pytest.raises(InvalidInputError, match="The 'rho' argument must be left out where an audit"):
        config_of(invariance=audit, rho=0.01)
    with pytest.raises(
        UnsupportedError, match="The gradients of this loss depend on the other examples of a batch, by"
    ):
        config_of(invariance=audited(mixed(lambda x: 1.0 + 1e-3 * jnp.tanh(x.mean())), places=[0, 1], shapes=[1]))
    with pytest.raises(InvalidInputError, match="The 'invariance' argument is for exact noise; leave it out"):
        config_of(exact=False, invariance=audit)


def config_of(*, exact=True, **options):
    sampler = hs.Poisson(sampling_prob=0.05, steps=12)
    mechanism = hs.Mechanism(sampler=sampler, noise_multiplier=2.0, exact=exact)
    return hs.jax.ExecutionPlanConfig(mechanism, params=PARAMS, l2_clip_norm=1.0, num_examples=40, **options)
