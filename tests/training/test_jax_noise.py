"""The noise of a run in JAX: white under the matrix, bit for bit that of numpy and torch, and never given out twice."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import hockeystick as hs
from hockeystick.errors import InvalidInputError, UnsupportedError, ViolationError
from hockeystick.training import Run

pytest.importorskip("jax_privacy", reason="needs jax, optax and jax-privacy")

import jax
import jax.numpy as jnp
import optax

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")

STRATEGIES = [
    hs.Identity(),
    hs.BandedSquareRoot(bands=4),
    hs.BandedInverseSquareRoot(bands=4),
    hs.BandedToeplitz(bands=4),
    hs.ColumnNormalizedBanded(bands=4),
    hs.SquareRoot(),
]
STEPS, EXAMPLES, SIGMA, CLIP = 40, 60, 2.0, 0.5
PARAMS = {"inner": {"weights": jnp.zeros((6, 60)), "bias": jnp.zeros(60)}, "scale": jnp.zeros(())}
SIZE = 6 * 60 + 60 + 1


def mechanism_of(strategy=None):
    sampler = hs.Poisson(sampling_prob=0.05, steps=STEPS)
    return hs.Mechanism(strategy=strategy or hs.BandedSquareRoot(bands=4), sampler=sampler, noise_multiplier=SIGMA)


def run_of(mechanism=None, seed=0, **options):
    generator = np.random.default_rng(seed)
    return Run(mechanism or mechanism_of(), **({"num_examples": EXAMPLES, "shape": SIZE, "rng": generator} | options))


def flat(tree):
    return np.concatenate([np.asarray(leaf).reshape(-1) for leaf in jax.tree.leaves(tree)])


def zeros(dtype=None):
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, dtype or leaf.dtype), PARAMS)


def jitted(noise):
    return jax.jit(lambda sums, state, examples: noise.update(sums, state, examples=examples))


def smallest_p(matrix, rows):
    """A bound on the chance that white noise under the matrix looks as little like it as these rows.

    With w = C rows / sigma, d numbers a step: |w_t|^2 is chi-square with d degrees of freedom, and <w_s, w_t> / |w_t|
    is standard normal for s < t. The smallest two-sided p-value, times their number.
    """
    white = matrix.dot(rows) / SIGMA
    gram = white @ white.T
    squares = np.diag(gram)
    law = stats.chi2(rows.shape[1])
    of_squares = 2.0 * np.minimum(law.cdf(squares), law.sf(squares))
    later, earlier = np.tril_indices(len(rows), -1)
    of_products = 2.0 * stats.norm.sf(np.abs(gram[later, earlier]) / np.sqrt(squares[later]))
    return min(1.0, min(of_squares.min(), of_products.min()) * (of_squares.size + of_products.size))


def rows_of(noise, fault=None):
    """What reached the updates of a whole run without gradients, over the clipping norm; every other step in jit."""
    state, sums = noise.init(PARAMS), zeros()
    rows: list[np.ndarray] = []
    compiled = jitted(noise)
    for step, batch in enumerate(noise.run.batches()):
        if step % 2:
            updates, state = compiled(sums, state, len(batch))
        else:
            updates, state = noise.update(sums, state, examples=batch)
        row = flat(updates) / CLIP
        if fault == "stale" and step == 7:
            row = rows[6]
        if fault == "seed_used_again" and step >= 20:
            row = rows[step - 20]
        if fault == "divided":
            row = row / noise.run.expected_batch_size
        if fault == "uncorrelated":
            row = np.random.default_rng(step).standard_normal(SIZE) * SIGMA
        rows.append(row)
    return np.array(rows)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda one: one.kind)
def test_the_noise_in_the_updates_is_white_under_the_matrix(strategy):
    """Fails with a chance below 1e-6 for each strategy; the seed is fixed."""
    mechanism = mechanism_of(strategy)
    noise = hs.jax.Noise(run_of(mechanism), clip_norm=CLIP)
    rows = rows_of(noise)
    assert rows.shape == (STEPS, SIZE)
    assert smallest_p(mechanism.matrix, rows) > 1e-6
    assert not noise.run.record().violations


@pytest.mark.parametrize("fault", ["stale", "seed_used_again", "divided", "uncorrelated"])
def test_the_whiteness_test_notices(fault):
    mechanism = mechanism_of()
    assert smallest_p(mechanism.matrix, rows_of(hs.jax.Noise(run_of(mechanism), clip_norm=CLIP), fault)) < 1e-6


@pytest.mark.parametrize("secure", [False, True], ids=["seeded", "keyed"])
def test_numpy_torch_and_jax_have_the_same_bits_and_batches_from_one_state(secure):
    pytest.importorskip("opacus")
    import torch

    pytest.importorskip("cryptography")
    mechanism = mechanism_of()
    first = run_of(mechanism, secure=secure, **({"rng": None} if secure else {}))
    for batch, _ in zip(first.batches(), range(7), strict=False):
        first.noise(batch)
    runs = [run_of(mechanism, seed=seed) for seed in (1, 2, 3)]
    for run in runs:
        run.load_state_dict(first.state_dict())
    in_numpy, in_torch, in_jax = runs
    parameters = [torch.zeros(leaf.shape) for leaf in jax.tree.leaves(PARAMS)]
    as_tensors, noise = hs.torch.Noise(in_torch, parameters), hs.jax.Noise(in_jax, clip_norm=1.0)
    state, compiled = noise.init(PARAMS), jitted(noise)
    batches = [
        list(in_numpy.batches()),
        list(hs.torch.BatchSampler(in_torch)),
        list(hs.jax.BatchSampler(in_jax).batch_iterator(EXAMPLES))[7:],
    ]
    for batch, of_torch, of_jax in zip(*batches, strict=False):
        row = in_numpy.noise(batch)
        assert np.array_equal(of_torch, batch)
        assert np.array_equal(of_jax, batch)
        assert np.array_equal(torch.cat([part.reshape(-1) for part in as_tensors.next(of_torch)]).numpy(), row)
        updates, state = (
            compiled(zeros(), state, len(of_jax)) if in_jax.step % 2 else noise.update(zeros(), state, examples=of_jax)
        )
        assert np.array_equal(flat(updates), row)
    assert in_jax.step == len(batches[1]) + 7


def test_only_noisy_sums_are_rounded_to_the_type_of_the_parameters():
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), PARAMS)
    noise, twin = hs.jax.Noise(run_of(), clip_norm=CLIP), run_of()
    state, batch = noise.init(params), next(noise.run.batches())
    sums = jax.tree.map(lambda leaf: jnp.full(leaf.shape, 0.01), PARAMS)  # of norm 0.21
    updates, _ = noise.update(sums, state, params, examples=batch)
    row = np.float32(0.01) + np.float32(CLIP) * twin.noise(batch)
    assert np.array_equal(flat(updates), row)
    assert np.array_equal(flat(optax.apply_updates(params, updates)), np.asarray(jnp.asarray(row, jnp.bfloat16)))


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_sums_in_narrow_types_are_refused(dtype):
    """Of a bfloat16 sum one example can change the rounding by many clipping norms, under the noise of one."""
    noise = hs.jax.Noise(run_of(), clip_norm=CLIP)
    mixed = zeros() | {"scale": jnp.zeros((), dtype)}
    state = noise.init(mixed)  # the parameters may have any type
    for update in (noise.update, lambda sums, state, examples: jitted(noise)(sums, state, examples)):
        with pytest.raises(UnsupportedError, match=f"Sums of gradients in {jnp.dtype(dtype)} are rounded by more"):
            update(mixed, state, examples=0)
    assert noise.run.step == 0


@pytest.mark.parametrize("place", ["memory", "mapped", "replayed"])
def test_rows_live_where_the_run_says_and_no_update_changes_later(place, tmp_path):
    """Under jit the callback lends JAX the stream's own row, which the next step overwrites."""
    rows = {"memory": None, "mapped": hs.noise.MappedFile(tmp_path), "replayed": hs.noise.Replay()}[place]
    noise, twin = hs.jax.Noise(run_of(rows=rows), clip_norm=1.0), run_of()
    state, compiled, given, expected = noise.init(PARAMS), jitted(noise), [], []
    for batch in twin.batches():
        updates, state = compiled(zeros(), state, len(batch))
        given.append(updates)
        expected.append(twin.noise(batch))
    assert np.array_equal([flat(updates) for updates in given], expected)


def test_rows_on_a_device_are_refused():
    pytest.importorskip("opacus")
    with pytest.raises(UnsupportedError, match=r"must be Memory, MappedFile or Replay .* 'OnDevice'"):
        hs.jax.Noise(run_of(rows=hs.torch.OnDevice("cpu")), clip_norm=1.0)


def test_noise_in_float64():
    with pytest.raises(InvalidInputError, match="needs JAX's 64-bit mode"):
        hs.jax.Noise(run_of(dtype=np.float64), clip_norm=CLIP)
    with jax.enable_x64(True):
        noise, twin = hs.jax.Noise(run_of(dtype=np.float64), clip_norm=CLIP), run_of(dtype=np.float64)
        batch = next(twin.batches())
        updates, _ = jitted(noise)(zeros(jnp.float64), noise.init(PARAMS), len(batch))
        assert flat(updates).dtype == np.float64
        assert np.array_equal(flat(updates), CLIP * twin.noise(batch))


def test_a_chain_and_a_scan_take_every_step_once():
    noise, twin = hs.jax.Noise(run_of(), clip_norm=CLIP), run_of()
    optimizer = optax.chain(noise, optax.scale(1 / noise.run.expected_batch_size), optax.sgd(1.0))
    sizes = jnp.array([len(batch) for batch in twin.batches()])

    def step(carry, size):
        params, state = carry
        updates, state = optimizer.update(zeros(), state, params, examples=size)
        return (optax.apply_updates(params, updates), state), None

    (params, _), _ = jax.jit(lambda carry: jax.lax.scan(step, carry, sizes))((zeros(), optimizer.init(zeros())))
    total = sum(twin.noise(batch).astype(np.float64) for batch in twin.batches())
    assert np.allclose(flat(params), -CLIP * total / twin.expected_batch_size, rtol=1e-4, atol=1e-4)
    assert noise.run.remaining == 0


def test_a_step_is_not_taken_twice_and_not_left_out():
    noise = hs.jax.Noise(run_of(), clip_norm=CLIP)
    first = noise.init(PARAMS)
    batches = noise.run.batches()
    _, second = noise.update(zeros(), first, examples=next(batches))
    with pytest.raises(InvalidInputError, match="is at step 0, but the next step of the run is 1"):
        noise.update(zeros(), first, examples=0)
    with pytest.raises(jax.errors.JaxRuntimeError, match="is at step 0, but the next step of the run is 1"):
        jax.block_until_ready(jitted(noise)(zeros(), first, 0))
    hs.jax.recover()
    with pytest.raises(InvalidInputError, match="is at step 2"):
        noise.update(zeros(), hs.jax.NoiseState(step=second.step + 1), examples=0)
    _, third = noise.update(zeros(), second, examples=next(batches))
    assert noise.run.step == int(third.step) == 2


def test_tracing_takes_no_step():
    noise = hs.jax.Noise(run_of(), clip_norm=CLIP)
    state = noise.init(PARAMS)
    compiled = jitted(noise).lower(zeros(), state, 0).compile()
    jax.eval_shape(lambda sums: noise.update(sums, state, examples=0), zeros())
    assert noise.run.step == 0
    compiled(zeros(), state, len(next(noise.run.batches())))
    jax.effects_barrier()
    assert noise.run.step == 1


def test_noise_does_not_become_a_constant_of_a_compiled_function():
    noise = hs.jax.Noise(run_of(), clip_norm=CLIP)
    state, sums, size = noise.init(PARAMS), zeros(), len(next(noise.run.batches()))
    compiled = jax.jit(lambda: noise.update(sums, state, examples=size)[0])
    compiled.lower().compile()
    assert noise.run.step == 0
    jax.block_until_ready(compiled())
    assert noise.run.step == 1
    with pytest.raises(jax.errors.JaxRuntimeError, match="is at step 0, but the next step of the run is 1"):
        jax.block_until_ready(compiled())
    hs.jax.recover()


def test_an_error_that_jax_raises_again_is_forgotten():
    """As on a GPU, by ``jax.shard_map`` on two devices of a CPU: the step is then taken, with the bits that it has."""
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    command = [sys.executable, Path(__file__).with_name("jax_errors.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.splitlines() == ["ValueError: the old error", "ValueError: the old error 0", "True 1 1"]


def test_mapped_updates_are_refused():
    """One row of noise on two sums would give away their difference."""
    noise = hs.jax.Noise(run_of(), clip_norm=CLIP)
    state = noise.init(PARAMS)
    twice = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), zeros())
    with pytest.raises(ValueError, match="vmap"):
        jax.vmap(lambda sums: noise.update(sums, state, examples=0))(twice)
    with pytest.raises(ValueError, match="vmap"):  # over one leaf of several
        jax.vmap(lambda scale: noise.update(zeros() | {"scale": scale}, state, examples=0))(jnp.zeros(2))
    mesh = jax.make_mesh((1,), ("devices",))
    spec = jax.sharding.PartitionSpec()
    with pytest.raises(UnsupportedError, match="outside"):
        jax.shard_map(lambda sums: noise.update(sums, state, examples=0), mesh=mesh, in_specs=spec, out_specs=spec)(
            zeros()
        )
    assert noise.run.step == 0


def test_sums_over_other_examples_end_the_run():
    for examples in (lambda batch: len(batch) + 1, lambda batch: (batch + 1) % EXAMPLES):
        noise = hs.jax.Noise(run_of(seed=4), clip_norm=CLIP)
        state, batches = noise.init(PARAMS), noise.run.batches()
        batch = next(batches)
        assert len(batch)
        with pytest.raises(ViolationError, match="Step 0 of the run broke"):
            noise.update(zeros(), state, examples=examples(batch))
        with pytest.raises(ViolationError, match="The run ended at step 0"):
            noise.update(zeros(), state, examples=batch)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("factor", [1.02, np.nan, np.inf])
def test_sums_that_were_not_clipped_end_the_run(factor, compiled):
    """Of n examples a sum is at most n clipping norms long, that of none is zero, and noise hides nothing else."""
    promise = "clipping" if np.isfinite(factor) else "finite_gradients"
    for size in (len(next(run_of().batches())), 0):
        noise = hs.jax.Noise(run_of(), clip_norm=CLIP, divisor=3.0)
        state = noise.init(PARAMS)
        update = jitted(noise) if compiled else noise.update
        sums = zeros() | {"scale": jnp.asarray(factor * max(size, 1e-6) * CLIP / 3.0, jnp.float32)}
        with pytest.raises((ViolationError, jax.errors.JaxRuntimeError), match=f"broke the promise '{promise}'"):
            jax.block_until_ready(update(sums, state, examples=size))
        hs.jax.recover()
        assert (noise.run.step, noise.run.record().violations) == (0, (promise,))
    noise = hs.jax.Noise(run_of(), clip_norm=CLIP, divisor=3.0)
    longest = zeros() | {"scale": jnp.asarray(-len(next(noise.run.batches())) * CLIP / 3.0)}
    noise.update(longest, noise.init(PARAMS), examples=len(next(noise.run.batches())))
    assert noise.run.record().violations == ()


def test_what_the_record_says_was_checked_is_what_was_told():
    by_indices, by_numbers = (hs.jax.Noise(run_of(), clip_norm=CLIP) for _ in range(2))
    for noise, told in ((by_indices, lambda batch: np.append(batch, [-1, -1])), (by_numbers, len)):
        state = noise.init(PARAMS)
        for batch in noise.run.batches():
            _, state = noise.update(zeros(), state, examples=told(batch))
    assert "examples_of_the_batch" in by_indices.run.record().checked
    assert "examples_of_the_batch" in by_numbers.run.record().asserted
    assert {"noise_is_added", "public_normaliser", "clipping"} <= set(by_indices.run.record().asserted)


def test_a_run_goes_on_in_another_object(tmp_path):
    noise, whole = hs.jax.Noise(run_of(), clip_norm=CLIP), run_of()
    rows = [whole.noise(batch) for batch in whole.batches()]
    state, batches = noise.init(PARAMS), noise.run.batches()
    for _ in range(11):
        _, state = noise.update(zeros(), state, examples=next(batches))
    noise.run.save(tmp_path / "run.npz")
    again = hs.jax.Noise(run_of(seed=9), clip_norm=CLIP)
    with pytest.raises(InvalidInputError, match="is at step 11, but the next step of the run is 0"):
        again.update(zeros(), state, examples=0)
    again.run.load(tmp_path / "run.npz")
    for batch, row in zip(again.run.batches(), rows[11:], strict=True):
        updates, state = again.update(zeros(), state, examples=batch)
        assert np.array_equal(flat(updates), np.float32(CLIP) * row)
    assert again.run.record().resumed == 1


def test_bad_input():
    with pytest.raises(InvalidInputError, match="'run' argument must be a Run"):
        hs.jax.Noise(mechanism_of(), clip_norm=1.0)
    with pytest.raises(InvalidInputError, match="must be a run with noise"):
        hs.jax.Noise(run_of(shape=None), clip_norm=1.0)
    for wrong in (0.0, -1.0, float("nan"), float("inf"), True, "1"):
        with pytest.raises(InvalidInputError, match="'clip_norm' argument must be a positive number"):
            hs.jax.Noise(run_of(), clip_norm=wrong)
    with pytest.raises(InvalidInputError, match="'noise_multiplier' field is missing"):
        hs.jax.Noise.of(
            hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.1, steps=3)), PARAMS, clip_norm=1.0, num_examples=9
        )
    with pytest.raises(InvalidInputError, match="at least one parameter"):
        hs.jax.Noise.of(mechanism_of(), {}, clip_norm=1.0, num_examples=EXAMPLES)
    noise = hs.jax.Noise(run_of(), clip_norm=1.0)
    with pytest.raises(InvalidInputError, match=f"must have {SIZE} numbers, as the run's noise. Got 3"):
        noise.init(jnp.zeros(3))
    with pytest.raises(InvalidInputError, match="real floating-point"):
        noise.init({"counts": jnp.zeros(SIZE, jnp.int32)})
    with pytest.raises(InvalidInputError, match="'examples' argument of update has to be given"):
        noise.update(zeros(), noise.init(PARAMS))
    with pytest.raises(InvalidInputError, match="'examples' argument must be a row of whole numbers"):
        noise.update(zeros(), noise.init(PARAMS), examples=np.array([0.5]))
    with pytest.raises(InvalidInputError, match="'examples' argument must be a row of whole numbers"):
        noise.update(zeros() | {"scale": jnp.asarray(2.0)}, noise.init(PARAMS), examples=3.0)
    assert noise.run.step == 0


def test_several_processes_are_refused(monkeypatch):
    """Each would have a run with a seed of its own."""
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    with pytest.raises(UnsupportedError, match="Got 2 processes"):
        hs.jax.Noise(run_of(), clip_norm=1.0)


def test_a_step_past_the_plan_is_refused_and_recorded():
    noise = hs.jax.Noise(
        run_of(hs.Mechanism(sampler=hs.Deterministic(bins=2, epochs=1), noise_multiplier=1.0)), clip_norm=1.0
    )
    state = noise.init(PARAMS)
    for batch in noise.run.batches():
        _, state = noise.update(zeros(), state, examples=batch)
    with pytest.raises(InvalidInputError, match="All 2 planned steps were taken"):
        noise.update(zeros(), state, examples=0)
    assert noise.run.record().refused_steps == 1
