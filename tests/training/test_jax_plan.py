"""JAX Privacy's loop over an execution plan executes the mechanism: its batches, its noise, its divisor."""

import itertools
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.errors import InvalidInputError, UnsupportedError, ViolationError
from hockeystick.training import Run

pytest.importorskip("jax_privacy", reason="needs jax, optax and jax-privacy")

import dp_accounting
import jax
import jax.numpy as jnp
from jax_privacy import batch_selection

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

EXAMPLES, CLIP = 60, 0.5
MECHANISM = hs.Mechanism(
    strategy=hs.BandedSquareRoot(bands=4), sampler=hs.Poisson(sampling_prob=0.05, steps=20), noise_multiplier=2.0
)
X = np.random.default_rng(0).standard_normal((EXAMPLES, 6)).astype(np.float32)
Y = np.random.default_rng(1).standard_normal(EXAMPLES).astype(np.float32)
PARAMS = {"weights": jnp.ones(6), "bias": jnp.zeros(())}


def loss(params, x, y):
    return jnp.mean((x @ params["weights"] + params["bias"] - y) ** 2)


def config_of(mechanism=MECHANISM, seed=0, **options):
    needed = {"params": PARAMS, "l2_clip_norm": CLIP, "num_examples": EXAMPLES, "rng": np.random.default_rng(seed)}
    return hs.jax.ExecutionPlanConfig(mechanism, **(needed | options))


def flat(tree):
    return np.concatenate([np.asarray(leaf, np.float64).reshape(-1) for leaf in jax.tree.leaves(tree)])


def clipped_sum(params, batch):
    """The sum of the clipped gradients, example by example, in float64."""
    weights, bias = np.asarray(params["weights"], np.float64), float(params["bias"])
    total = np.zeros(7)
    for example in batch:
        error = 2.0 * (float(X[example] @ weights) + bias - float(Y[example]))
        gradient = np.concatenate([[error], error * X[example]])  # in the order of the leaves
        total += gradient * min(1.0, CLIP / np.linalg.norm(gradient))
    return total


@pytest.mark.parametrize("size", [1, 100, 40_000])
def test_the_smallest_norm_is_clipped_to(size):
    """The first gradient has numbers whose squares are 0; norms a thousandth as large are not clipped to."""
    least = 2.0**-50 * size**0.5
    config = config_of(params=jnp.zeros(size), l2_clip_norm=1.001 * least)
    gradient = config.make().clipped_grad(lambda w, x: jnp.sum(w * x), batch_argnums=1)
    for length in (0.5 * 2.0**-63 * size**0.5, 1.002 * least, 1e3 * least):
        x = np.full((1, size), length / size**0.5, np.float32)
        with patch.object(config, "_counted", return_value=None):
            released = np.asarray(gradient(jnp.zeros(size), x), np.float64) * config.run.expected_batch_size
        assert np.linalg.norm(released) <= 1.001 * least


@dataclass
class Loop:
    """A training as JAX Privacy's users write it."""

    config: Any
    whole: bool = True
    """Compile the whole step, or the gradient alone."""

    def __post_init__(self):
        self.plan = self.config.make()
        gradient = self.plan.clipped_grad(loss, batch_argnums=(1, 2), return_values=True)
        gradient = gradient if self.whole else jax.jit(gradient)
        self.state = self.plan.noise_addition_transform.init(PARAMS)
        self.params = PARAMS

        def step(params, state, x, y, padding):
            mean, aux = gradient(params, x, y, is_padding_example=padding)
            mean, state = self.plan.noise_addition_transform.update(mean, state)
            return mean, state, aux

        self.step = jax.jit(step) if self.whole else step

    def take(self, batch):
        """One step on these examples."""
        batch = batch_selection.pad_to_multiple_of(np.append(batch, -1), 16)
        mean, self.state, aux = self.step(self.params, self.state, X[batch], Y[batch], batch == -1)
        assert aux.values.shape == batch.shape
        self.params = jax.tree.map(lambda weight, change: weight - 0.1 * change, self.params, mean)
        return mean

    def run(self):
        """The means of all steps."""
        for batch in self.plan.batch_selection_strategy.batch_iterator(EXAMPLES, rng=5):
            yield self.params, self.take(batch)


@pytest.mark.parametrize("whole", [True, False], ids=["step", "gradient"])
def test_a_step_is_the_noisy_clipped_sum_over_the_public_batch_size(whole):
    """Empty batches included; padding has no part in anything."""
    config = config_of()
    twin = Run(MECHANISM, num_examples=EXAMPLES, shape=7, rng=np.random.default_rng(0))
    loop, sizes = Loop(config, whole), set()
    for batch, (params, mean) in zip(twin.batches(), loop.run(), strict=True):
        expected = (clipped_sum(params, batch) + CLIP * twin.noise(batch).astype(np.float64)) / (0.05 * EXAMPLES)
        assert np.allclose(flat(mean), expected, rtol=1e-4, atol=1e-5)
        sizes.add(len(batch))
    assert 0 in sizes
    assert len(sizes) > 3
    record = config.record(config.certificate(1e-5, method="gaussian"))
    assert (record.steps, record.violations) == (20, ())
    assert "number_of_examples" in record.checked
    assert {"examples_of_the_batch", "noise_is_added", "public_normaliser", "clipping"} <= set(record.asserted)


@pytest.mark.parametrize(
    "sampler",
    [
        hs.BallsInBins(bins=5, epochs=2),
        hs.BMinSep(min_sep=3, sampling_prob=0.1, steps=10),
        hs.CyclicPoisson(groups=2, sampling_prob=0.1, steps=10),
        hs.Shuffle(batch_size=12, bins=5, epochs=2),
        hs.RandomAllocation(bins=5, epochs=2),
        hs.Deterministic(bins=5, epochs=2),
    ],
    ids=lambda one: one.kind,
)
def test_every_sampler_gives_the_run_s_batches(sampler):
    mechanism = hs.Mechanism(sampler=sampler, noise_multiplier=1.0)
    plan = config_of(mechanism).make()
    assert isinstance(plan.batch_selection_strategy, batch_selection.BatchSelectionStrategy)
    given = list(plan.batch_selection_strategy.batch_iterator(EXAMPLES))
    twin = list(Run(mechanism, num_examples=EXAMPLES, shape=7, rng=np.random.default_rng(0)).batches())
    assert all(np.array_equal(one, other) for one, other in zip(given, twin, strict=True))


def test_sums_in_parts_are_one_step():
    mechanism = hs.Mechanism(sampler=hs.BallsInBins(bins=3, epochs=1), noise_multiplier=1.0)
    config = config_of(mechanism)
    plan = config.make()
    gradient = jax.jit(plan.clipped_grad(loss, batch_argnums=(1, 2)))
    state = plan.noise_addition_transform.init(PARAMS)
    for batch in plan.batch_selection_strategy.batch_iterator(EXAMPLES):
        total = jax.tree.map(jnp.zeros_like, PARAMS)
        for part in batch_selection.split_and_pad_global_batch(batch, minibatch_size=8):
            new = gradient(PARAMS, X[part], Y[part], is_padding_example=jnp.asarray(part == -1))
            total = jax.tree.map(jnp.add, total, new)
        _, state = plan.noise_addition_transform.update(total, state)
    assert config.run.remaining == 0
    assert not config.record().violations


def test_a_batch_of_another_size_ends_the_run():
    """An empty batch that is skipped, so that the next one comes too early, is noticed like any other."""
    config = config_of()
    sizes, loop = [len(batch) for batch in config.run.batches()], Loop(config, whole=False)

    def without_empty_ones():
        for batch in config.run.batches():
            if len(batch):
                loop.take(batch)

    with pytest.raises(ViolationError, match="number_of_examples"):
        without_empty_ones()
    assert config.run.step == sizes.index(0)
    with pytest.raises(ViolationError, match="so no certificate covers it"):
        config.certificate(1e-5)
    assert config.record().certificate is None


@pytest.mark.parametrize("more", [-1, 1])
def test_what_is_told_has_to_agree_with_what_was_counted(more):
    config = config_of()
    noise = config.make().noise_addition_transform
    batch = next(config.run.batches())
    noise.counted(len(batch) + more)
    with pytest.raises(ViolationError, match="number_of_examples"):
        noise.update(PARAMS, noise.init(PARAMS), examples=batch)


def test_batches_from_the_start_after_a_resume_are_refused(tmp_path):
    mechanism = hs.Mechanism(sampler=hs.Shuffle(batch_size=12, bins=5, epochs=2), noise_multiplier=1.0)
    first = Loop(config_of(mechanism))
    for batch in itertools.islice(first.config.run.batches(), 3):
        first.take(batch)
    first.config.run.save(tmp_path / "run.npz")
    again = Loop(config_of(mechanism), whole=False)
    again.config.run.load(tmp_path / "run.npz")
    again.state = first.state
    batches = again.plan.batch_selection_strategy.batch_iterator(EXAMPLES)
    with pytest.raises(jax.errors.JaxRuntimeError, match="that of step 0, but the next step of the run is 3"):
        again.take(next(batches))
    hs.jax.recover()
    next(batches), next(batches)
    for batch in batches:
        again.take(batch)
    assert again.config.run.remaining == 0


def test_a_checkpoint_goes_on_bit_for_bit(tmp_path):
    whole = Loop(config_of())
    for _ in whole.run():
        pass
    first = Loop(config_of())
    for batch in itertools.islice(first.config.run.batches(), 7):
        first.take(batch)
    key = jax.random.key(3)
    half = jnp.asarray([1.5, 2.5], jnp.bfloat16)
    tree = {"params": first.params, "state": first.state, "half": half, "scalar": half[0], "key": key, "epoch": 4}
    first.config.save_checkpoint(tmp_path / "checkpoint.npz", tree)
    assert (tmp_path / "checkpoint.npz").stat().st_mode & 0o077 == 0
    again = Loop(config_of(seed=8))
    like = {
        "params": PARAMS,
        "state": again.state,
        "half": half * 0,
        "scalar": half[1],
        "key": jax.random.key(0),
        "epoch": 0,
    }
    read = again.config.load_checkpoint(tmp_path / "checkpoint.npz", like)
    assert jax.tree.structure(read) == jax.tree.structure(tree)
    assert read["key"] == key
    assert int(read["epoch"]) == 4
    assert read["half"].dtype == jnp.bfloat16
    assert read["half"].tolist() == [1.5, 2.5]
    assert read["scalar"].shape == ()
    again.params, again.state = read["params"], read["state"]
    for batch in again.config.run.batches():
        again.take(batch)
    assert np.array_equal(flat(again.params), flat(whole.params))
    assert again.config.record().commitment == whole.config.record().commitment


def test_checkpoints_of_something_else_are_refused(tmp_path):
    config, path = config_of(), tmp_path / "checkpoint.npz"
    config.save_checkpoint(path, PARAMS)
    with pytest.raises(InvalidInputError, match="another structure"):
        config.load_checkpoint(path, PARAMS | {"more": jnp.zeros(2)})
    with pytest.raises(InvalidInputError, match="other shapes or types"):
        config.load_checkpoint(path, PARAMS | {"bias": jnp.zeros(2)})
    with pytest.raises(InvalidInputError, match="run of another mechanism; resume with the same plan"):
        config_of(MECHANISM.with_noise(3.0)).load_checkpoint(path, PARAMS)
    with pytest.raises(InvalidInputError, match="belongs to a run on 60 examples; this one has 80"):
        config_of(num_examples=80).load_checkpoint(path, PARAMS)
    (tmp_path / "other.npz").write_bytes(b"nothing")
    with pytest.raises(InvalidInputError, match="does not hold a run"):
        config.load_checkpoint(tmp_path / "other.npz", PARAMS)
    config.run.save(tmp_path / "run.npz")
    with pytest.raises(InvalidInputError, match="does not hold a run with a tree"):
        config.load_checkpoint(tmp_path / "run.npz", PARAMS)
    assert config.run.record().resumed == 0


@pytest.mark.parametrize("wrong", [{"rng": 0}, {"dtype": "float16"}, {"rows": 3}, {"max_bytes": "1GB"}], ids=str)
def test_options_are_refused_before_a_plan_is_calibrated(wrong, monkeypatch):
    monkeypatch.setattr(hs.jax.ExecutionPlanConfig, "_settle", lambda self: pytest.fail("It was calibrated."))
    with pytest.raises(InvalidInputError, match=f"'{next(iter(wrong))}'"):
        config_of(**wrong)


def test_bad_input():
    with pytest.raises(InvalidInputError, match="'plan' argument must be a Plan or a Mechanism"):
        config_of(MECHANISM.sampler)
    with pytest.raises(InvalidInputError, match="'noise_multiplier' field is missing"):
        config_of(hs.Mechanism(sampler=MECHANISM.sampler))
    with pytest.raises(InvalidInputError, match="'num_examples' argument has to be given"):
        config_of(num_examples=None)
    plan = hs.Plan.parse(
        {
            "data": {"num_examples": 60, "batch_size": 6, "epochs": 2},
            "sampler": {"kind": "poisson"},
            "noise_multiplier": 1.0,
            "target": {"epsilon": 9.0, "delta": 1e-5},
        }
    )
    with pytest.raises(
        InvalidInputError, match=r"'num_examples' argument must be the plan's 60, or be left out. Got 61"
    ):
        config_of(plan, num_examples=61)
    assert config_of(plan, num_examples=None).certificate(method="gaussian").delta == 1e-5
    with pytest.raises(InvalidInputError, match="'l2_clip_norm' argument must be a positive number"):
        config_of(l2_clip_norm=0.0)
    with pytest.raises(InvalidInputError, match=r"'l2_clip_norm' argument must be at least 2\.35e-15 for 7 parameters"):
        config_of(l2_clip_norm=2e-15)
    with pytest.raises(InvalidInputError, match="at least one parameter"):
        config_of(params=())
    made = config_of().make()
    with pytest.raises(InvalidInputError, match=r"'num_examples' argument must be the plan's 60. Got 59"):
        made.batch_selection_strategy.batch_iterator(59)
    for name in ("l2_clip_norm", "normalize_by", "rescale_to_unit_norm", "nan_safe"):
        with pytest.raises(InvalidInputError, match=f"The '{name}' option of clipped_grad must be left out"):
            made.clipped_grad(loss, **{name: 1.0})
    for dtype in (jnp.bfloat16, np.float16, None):  # None is the type of the parameters, whichever that is
        with pytest.raises(InvalidInputError, match="'dtype' option of clipped_grad must be float32 or float64"):
            made.clipped_grad(loss, dtype=dtype)
        with pytest.raises(InvalidInputError, match="'dtype' option of clipped_grad must be float32 or float64"):
            config_of().make(PerformanceFlags(dtype=dtype)).clipped_grad(loss)


def test_sums_that_devices_share_are_refused():
    gradient = config_of().make().clipped_grad(loss, batch_argnums=(1, 2))
    mesh, spec = jax.make_mesh((1,), ("devices",)), jax.sharding.PartitionSpec()
    with pytest.raises(UnsupportedError, match="sum over the devices first"):
        jax.shard_map(lambda x, y: gradient(PARAMS, x, y), mesh=mesh, in_specs=spec, out_specs=spec)(X, Y)


@dataclass(frozen=True)
class PerformanceFlags:
    """Those of later versions of JAX Privacy."""

    dtype: Any = np.float32
    noise_seed: int | None = None
    intermediate_strategy: Any = None
    microbatch_size: int | None = None
    spmd_axis_name: str | None = None
    keep_batch_dim: bool = True


def test_performance_flags_change_nothing_but_performance():
    config, twin = config_of(), config_of()
    made, plain = config.make(PerformanceFlags(microbatch_size=4)), twin.make()
    gradients = [plan.clipped_grad(loss, batch_argnums=(1, 2)) for plan in (made, plain)]
    batch = batch_selection.pad_to_multiple_of(next(config.run.batches()), 4)
    padding = jnp.asarray(batch == -1)
    sums = [flat(jax.jit(one)(PARAMS, X[batch], Y[batch], is_padding_example=padding)) for one in gradients]
    assert np.allclose(*sums, rtol=1e-6)
    assert not flat(gradients[0](PARAMS, X[:0], Y[:0])).any()  # nobody, outside of jit, in parts
    assert [one.sensitivity() for one in gradients] == pytest.approx([CLIP / 3.0] * 2, rel=1e-12)
    with pytest.raises(InvalidInputError, match="'noise_seed' performance flag must be left out"):
        config.make(PerformanceFlags(noise_seed=1))


def test_the_event_is_answered_for_by_hockeystick_and_by_nobody_else():
    mechanism = hs.Mechanism(sampler=MECHANISM.sampler, noise_multiplier=2.0)
    config = config_of(mechanism)
    event = config.make().dp_event
    assert event.mechanism == mechanism
    certificate = config.certificate(1e-5)
    accountant = hs.jax.Accountant().compose(event)
    assert accountant.get_epsilon(1e-5) == certificate.epsilon.upper
    assert accountant.get_delta(certificate.epsilon.upper) <= 1e-5 * (1 + 1e-6)
    assert accountant.supports(dp_accounting.dp_event.NoOpDpEvent())
    assert hs.jax.Accountant().get_epsilon(1e-5) == hs.jax.Accountant().get_delta(1.0) == 0.0
    for other in (dp_accounting.pld.PLDAccountant(), dp_accounting.rdp.RdpAccountant()):
        assert not other.supports(event)
        with pytest.raises(dp_accounting.UnsupportedEventError):
            other.compose(event)


def test_the_accountant_refuses_what_it_cannot_account():
    event = hs.jax.MechanismDpEvent(MECHANISM)
    for composed in (
        lambda: hs.jax.Accountant().compose(dp_accounting.GaussianDpEvent(1.0)),
        lambda: hs.jax.Accountant().compose(event, 2),
        lambda: hs.jax.Accountant().compose(event).compose(event),
        lambda: hs.jax.Accountant().compose(dp_accounting.SelfComposedDpEvent(event, 2)),
        lambda: hs.jax.Accountant(dp_accounting.NeighboringRelation.REPLACE_ONE).compose(event),
    ):
        with pytest.raises(dp_accounting.UnsupportedEventError):
            composed()
    hs.jax.Accountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE).compose(event)
    fixed = hs.jax.MechanismDpEvent(hs.Mechanism(sampler=hs.Deterministic(bins=2, epochs=1), noise_multiplier=1.0))
    with pytest.raises(dp_accounting.UnsupportedEventError, match="does not hold for ADD_OR_REMOVE_ONE"):
        hs.jax.Accountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE).compose(fixed)
