"""Exact sums in JAX: whole numbers of numpy, whatever the physical batches, from the gradients to the noise."""

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.errors import InvalidInputError, UnsupportedError, ViolationError
from hockeystick.training import Run, exact_sum, steps_within

pytest.importorskip("jax_privacy", reason="needs jax, optax and jax-privacy")

import jax
import jax.numpy as jnp

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")

MECHANISM = hs.Mechanism(
    strategy=hs.BandedSquareRoot(bands=3),
    sampler=hs.Poisson(sampling_prob=0.05, steps=12),
    noise_multiplier=2.0,
    exact=True,
)
CLIP = 1.5
DATA = (np.random.default_rng(0).normal(size=(40, 7)) * np.linspace(0.01, 3.0, 40)[:, None]).astype(np.float32)
PARAMS = {"first": jnp.zeros(4), "second": jnp.zeros(3)}


def loss(params, x):
    """The gradient of an example is the example, exactly."""
    return jnp.sum(params["first"] * x[:, :4]) + jnp.sum(params["second"] * x[:, 4:])


def config_of(mechanism=MECHANISM, seed=0, **options):
    needed = {"params": PARAMS, "l2_clip_norm": CLIP, "num_examples": 40, "rng": np.random.default_rng(seed)}
    return hs.jax.ExecutionPlanConfig(mechanism, **(needed | options))


def flat(tree):
    return np.concatenate([np.asarray(leaf).reshape(-1) for leaf in jax.tree.leaves(tree)])


def expected(rho=0.0):
    """The noisy means of a twin, from whole numbers by numpy."""
    twin = Run(MECHANISM, num_examples=40, shape=7, rng=np.random.default_rng(0))
    steps = steps_within(twin.norm_steps, rho)
    for batch in twin.batches():
        [total] = exact_sum(DATA[batch], CLIP, steps) if len(batch) else [np.zeros(7, np.int64)]
        yield ((total + twin.noise(batch)).astype(np.float64) * (CLIP / (steps * 2.0))).astype(np.float32)


def trained(config, parts=1, padding=0):
    """The noisy mean of every step, of batches in so many parts with so much padding."""
    plan = config.make()
    gradient = plan.clipped_grad(loss)
    state = plan.noise_addition_transform.init(PARAMS)
    for batch in plan.batch_selection_strategy.batch_iterator(40):
        sums = []
        for part in np.array_split(batch, parts):
            rows = np.append(np.full(padding, 39), part).astype(int)  # whose gradients would count, and do not
            sums.append(gradient(PARAMS, DATA[rows], is_padding_example=np.arange(len(rows)) < padding))
        total = jax.tree.map(lambda *leaves: sum(leaves), *sums)
        assert {leaf.dtype for leaf in jax.tree.leaves(total)} == {np.dtype(np.int64)}
        mean, state = plan.noise_addition_transform.update(total, state)
        assert {leaf.dtype for leaf in jax.tree.leaves(mean)} == {jnp.dtype(jnp.float32)}
        yield flat(mean)


@pytest.mark.parametrize(("rows", "parts", "padding"), [(1, 1, 0), (3, 1, 2), (3, 2, 0), (64, 1, 5), (None, 3, 1)])
def test_every_step_is_that_of_whole_numbers_for_any_physical_batches(rows, parts, padding):
    config = config_of(physical_batch_size=rows)
    assert np.array_equal(list(trained(config, parts, padding)), list(expected()))
    assert config.physical_batch_size == rows or config.physical_batch_size == 32
    record = config.record(config.certificate(1e-5, method="gaussian"))
    assert (record.steps, record.violations, record.noise_dtype) == (12, (), "int32")
    assert {"exact_sums", "one_shape", "batch_invariance"} <= set(record.asserted)


def test_a_stated_change_of_the_others_is_covered_and_said():
    config = config_of(rho=0.01)
    assert np.array_equal(list(trained(config)), list(expected(rho=0.01)))
    assert config.record().rho == 0.01
    with pytest.raises(InvalidInputError, match="'rho' argument must be a number from 0 to 1"):
        config_of(rho=2.0)


def test_a_loop_of_one_s_own_adds_noise_to_exact_sums():
    """Without an execution plan."""
    noise = hs.jax.Noise.of(
        MECHANISM, PARAMS, clip_norm=CLIP, divisor=2.0, num_examples=40, rng=np.random.default_rng(0)
    )
    state = noise.init(PARAMS)
    for batch, mean in zip(noise.run.batches(), expected(), strict=True):
        parts = [DATA[batch][:, :4], DATA[batch][:, 4:]] if len(batch) else [np.zeros((1, 4)), np.zeros((1, 3))]
        first, second = exact_sum(parts, CLIP, noise.steps)
        sums, state = noise.update({"first": first, "second": second}, state, examples=batch)
        assert np.array_equal(flat(sums), mean)
    assert "examples_of_the_batch" in noise.run.record().checked


def test_a_training_that_was_resumed_has_the_same_bits(tmp_path):
    whole = list(trained(config_of()))
    first, path = config_of(), tmp_path / "state.npz"
    steps = trained(first)
    begun = [next(steps) for _ in range(5)]
    first.save_checkpoint(path, PARAMS)
    second = config_of(seed=1)
    second.load_checkpoint(path, PARAMS)
    plan = second.make()
    gradient, noise = plan.clipped_grad(loss), plan.noise_addition_transform
    state = noise.init(PARAMS)
    for batch in second.run.batches():
        mean, state = noise.update(gradient(PARAMS, DATA[batch]), state)
        begun.append(flat(mean))
    assert np.array_equal(begun, whole)
    for other in ({"physical_batch_size": 64}, {"rho": 0.01}):
        with pytest.raises(InvalidInputError, match="'rho' arguments must be those of the saved run, as steps"):
            config_of(**other).load_checkpoint(path, PARAMS)


def test_a_plan_can_say_it():
    data = {"num_examples": 40, "batch_size": 2, "steps": 12}
    tables = {"data": data, "sampler": {"kind": "poisson"}, "noise_multiplier": 2.0, "noise": {"exact": True}}
    config = config_of(hs.Plan.parse(tables))
    assert config.mechanism.exact
    assert len(list(trained(config))) == 12
    assert config.record().noise_dtype == "int32"


@pytest.mark.parametrize("rows", [32, 64])
def test_one_function_gives_the_gradients_of_all_batches(rows):
    """It is compiled once; batches of another length come in pieces of its size."""
    traced = []

    def counted(params, x):
        traced.append(x.shape)
        return loss(params, x)

    config = config_of(physical_batch_size=rows)
    gradient = config.make().clipped_grad(counted)
    for batch in (np.arange(3), np.arange(40), np.arange(33)):
        total = flat(gradient(PARAMS, DATA[batch]))
        assert np.array_equal(total, exact_sum(DATA[batch], CLIP, config.run.norm_steps)[0])
    assert traced == [(1, 7)]


def test_an_example_that_is_not_finite_counts_as_zero():
    gradient = config_of().make().clipped_grad(loss)
    spoilt = DATA[:5].copy()
    spoilt[2, 3] = np.nan
    assert np.array_equal(flat(gradient(PARAMS, spoilt)), flat(gradient(PARAMS, np.delete(DATA[:5], 2, axis=0))))


def test_what_is_not_in_whole_numbers_is_refused_in_one_sentence():
    config = config_of()
    plan = config.make()
    noise, gradient = plan.noise_addition_transform, plan.clipped_grad(loss)
    state = noise.init(PARAMS)
    sums = gradient(PARAMS, DATA[:0])
    with pytest.raises(UnsupportedError, match="With exact noise clipped_grad works outside of functions that JAX"):
        jax.jit(gradient)(PARAMS, DATA[:2])
    with pytest.raises(UnsupportedError, match="With exact noise update works outside of functions that JAX"):
        jax.jit(noise.update)(sums, state)
    with pytest.raises(UnsupportedError, match="With exact noise update works outside of functions that JAX"):
        jax.jit(lambda state: noise.update(sums, state))(state)
    for wrong in (jnp.zeros(7), np.zeros(7), np.zeros(7, np.int32)):
        with pytest.raises(UnsupportedError, match="must be whole numbers in numpy arrays of int64"):
            noise.update(wrong, state, examples=0)
    with pytest.raises(InvalidInputError, match=r"must have 7 numbers, as the run's noise\. Got 8"):
        noise.update(np.zeros(8, np.int64), state, examples=0)
    for option in ({"has_aux": True}, {"return_values": True}, {"dtype": "float32"}, {"microbatch_size": 4}):
        with pytest.raises(InvalidInputError, match=f"The '{next(iter(option))}' option of clipped_grad must be left"):
            plan.clipped_grad(loss, **option)
    with pytest.raises(InvalidInputError, match="examples of a batch must have the shapes of the first one"):
        gradient(PARAMS, DATA[:2, :6])
    plain = MECHANISM.model_copy(update={"exact": False})
    for option in ({"rho": 0.1}, {"physical_batch_size": 4}):
        with pytest.raises(InvalidInputError, match="is for exact noise; leave it out"):
            config_of(plain, **option)
    assert config.run.step == 0


def test_noise_is_added_in_whole_numbers():
    """And not to what float32 makes of the sum."""
    from hockeystick.training.jax.exact import off_the_grid

    total, row = np.array([2**30 + 1, 5]), np.array([-(2**30), 2], np.int32)
    assert off_the_grid(total, row, 0.25).tolist() == [0.25, 1.75]


def test_a_sum_that_is_longer_than_its_examples_allow_ends_the_run():
    noise = config_of().make().noise_addition_transform
    batch = next(noise.run.batches())
    sums = {"first": np.full(4, noise.steps * len(batch), np.int64), "second": np.zeros(3, np.int64)}
    with pytest.raises(ViolationError, match="broke the promise 'clipping'"):
        noise.update(sums, noise.init(PARAMS), examples=batch)
