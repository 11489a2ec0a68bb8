"""Adaptive clipping behind Opacus: joint contributions of norm 1, noise for the count too, and the norm's own rule."""

from inspect import signature

import numpy as np
import pytest
from scipy.stats import chi2

import hockeystick as hs
from hockeystick.errors import InvalidInputError, UnsupportedError, ViolationError

pytest.importorskip("opacus", reason="needs torch and opacus")

import torch
from opacus.optimizers import AdaClipDPOptimizer, DPOptimizer
from torch import distributed

from hockeystick.training.adaptive import split_with_count

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")

SIGMA, CLIP, DEVIATION = 2.0, 1.5, 1.25
OF_COUNT = SIGMA / DEVIATION
OF_GRADIENT = (1.0 - (OF_COUNT / 2.0) ** 2) ** 0.5  # 0.6
ADAPTIVE = {
    "clipping": "adaptive",
    "target_unclipped_quantile": 0.5,
    "clipbound_learning_rate": 0.2,
    "max_clipbound": 5.0,
    "min_clipbound": 0.2,
    "unclipped_num_std": DEVIATION,
}
SINGLES = hs.Deterministic(bins=60, epochs=2)


def mechanism_of(sampler=None, strategy=None):
    sampler = sampler or hs.Poisson(sampling_prob=0.05, steps=40)
    return hs.Mechanism(strategy=strategy or hs.BandedSquareRoot(bands=4), sampler=sampler, noise_multiplier=SIGMA)


def flat(tensors):
    return torch.cat([one.detach().reshape(-1).double() for one in tensors]).cpu().numpy()


def watched(made):
    """At every step: the clipping norm, the sums before noise and what noise made of them, all in one flat row."""
    seen = []
    add_noise = made.optimizer.add_noise

    def look():
        norm = made.optimizer.max_grad_norm
        before = flat([p.summed_grad for p in made.optimizer.params])
        add_noise()
        seen.append((norm, before, flat([p.grad for p in made.optimizer.params])))

    made.optimizer.add_noise = look
    return seen


def every_step(made, largest=None):
    while made.engine.run.remaining:
        if largest is None:
            made.epoch()
        else:
            made.accumulated_epoch(largest)


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
@pytest.mark.parametrize("largest", [None, 1], ids=["whole", "accumulated"])
@pytest.mark.parametrize("strategy", [hs.Identity(), hs.BandedSquareRoot(bands=4)], ids=["white", "correlated"])
def test_gradient_and_count_have_the_noise_of_the_mechanism_in_scaled_coordinates(strategy, largest, mode, training):
    """White under the matrix, with the plan's sigma: false failures below 1e-6, of all numbers and of the count's."""
    options = {"width": 40, "dtype": torch.float64, "noise_dtype": np.float64, "grad_sample_mode": mode}
    made = training(mechanism_of(strategy=strategy), **options, **ADAPTIVE)
    twin = training(mechanism_of(strategy=strategy), width=40, noise_dtype=np.float64, **ADAPTIVE).engine.run
    seen = watched(made)
    every_step(made, largest)
    rows = np.array([(after - before) * OF_GRADIENT / norm for norm, before, after in seen])
    assert len({norm for norm, *_ in seen}) > 30  # or scaled coordinates are the original ones
    assert rows.shape == (40, sum(p.numel() for p in made.model.parameters()) + 1)
    assert np.allclose(rows, [twin.noise(batch) for batch in twin.batches()], rtol=0, atol=1e-9)
    white = made.engine.mechanism.matrix.dot(rows) / SIGMA
    same = np.eye(40)
    assert np.abs((white @ white.T - rows.shape[1] * same) / np.sqrt(rows.shape[1] * (1.0 + same))).max() < 8.0
    assert chi2.ppf(5e-7, 40) < (white[:, -1] ** 2).sum() < chi2.isf(5e-7, 40)
    assert not made.engine.record().violations


@pytest.mark.parametrize(
    ("mode", "dtype"), [("hooks", torch.float32), ("hooks", torch.bfloat16), ("ghost", torch.float32)]
)
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_an_example_contributes_a_vector_of_norm_one_at_most(scale, mode, dtype, training):
    """Batches of one example, in scaled coordinates: attained by gradients that were clipped."""
    made = training(mechanism_of(SINGLES), scale=scale, dtype=dtype, grad_sample_mode=mode, **ADAPTIVE)
    seen = watched(made)
    made.run()
    sums = np.array([before * OF_GRADIENT / norm for norm, before, _ in seen])
    lengths = np.linalg.norm(sums, axis=1)
    assert lengths.shape == (120,)
    assert lengths.max() <= 1.0 + 1e-14
    assert np.allclose(np.abs(sums[:, -1]), OF_COUNT / 2.0, rtol=1e-6)
    clipped = sums[:, -1] < 0.0
    assert lengths[clipped].min(initial=1.0) > 1.0 - 1e-4
    if scale != 1.0:
        assert clipped.sum() > 60 if scale == 1e4 else not clipped.any()


def by_hand(made, twin):
    """The same training in plain numpy with the batches and noise of an equal run: weights and norms of every step."""
    data, weights, norm, norms = made.data(), made.weights(), CLIP, []
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)).double()
    for batch in twin.batches():
        torch.nn.utils.vector_to_parameters(torch.from_numpy(weights), model.parameters())
        total = np.zeros(weights.size + 1)
        for example in batch:
            x, y = data[example]
            loss = torch.nn.functional.cross_entropy(model(x[None]), y[None])
            row = flat(torch.autograd.grad(loss, list(model.parameters())))
            length = np.linalg.norm(row)
            total[:-1] += OF_GRADIENT * row * min(1.0, norm / length) / norm
            total[-1] += OF_COUNT * (0.5 if length <= norm else -0.5)
        released = total + twin.noise(batch)
        weights = weights - 0.1 * released[:-1] * norm / OF_GRADIENT / twin.expected_batch_size
        unclipped = 0.5 + released[-1] / OF_COUNT / twin.expected_batch_size
        norm = min(max(norm * np.exp(-0.2 * (unclipped - 0.5)), 0.2), 5.0)
        norms.append(norm)
    return weights, norms


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
@pytest.mark.parametrize("largest", [None, 1], ids=["whole", "accumulated"])
def test_norms_and_weights_are_those_of_plain_numpy(largest, mode, training):
    options = {"dtype": torch.float64, "noise_dtype": np.float64, "grad_sample_mode": mode, **ADAPTIVE}
    made, twin = training(mechanism_of(), **options), training(mechanism_of(), **options).engine.run
    expected, norms = by_hand(made, twin)
    seen = watched(made)
    every_step(made, largest)
    assert np.allclose([norm for norm, *_ in seen], [CLIP, *norms[:-1]], rtol=1e-9)
    assert made.optimizer.max_grad_norm == pytest.approx(norms[-1], rel=1e-9)
    assert np.allclose(made.weights(), expected, rtol=0, atol=1e-4)  # factors leave room for rounding
    assert made.engine.record().commitment == twin.record().commitment


@pytest.mark.parametrize(("scale", "end"), [(1e-6, 1.4), (1e6, 1.6)])
def test_the_norm_stays_between_its_bounds(scale, end, training):
    """It falls where nobody is clipped, rises where all are, and a rate that overflows changes nothing about that."""
    bounds = {"min_clipbound": 1.4, "max_clipbound": 1.6}
    sampler = hs.Deterministic(bins=2, epochs=2)  # of 30 examples; the noise of the count has deviation 1.25
    for rate in (1.0, 1e6):
        made = training(mechanism_of(sampler), scale=scale, **ADAPTIVE | bounds | {"clipbound_learning_rate": rate})
        made.run()
        assert made.optimizer.max_grad_norm == end


def test_several_backward_passes_are_one_batch(training):
    once, twice = (training(mechanism_of(hs.Deterministic(bins=20)), **ADAPTIVE) for _ in range(2))
    twice.model.allow_grad_accumulation()
    seen = watched(once), watched(twice)
    once.backward(*next(iter(once.loader)))
    x, y = next(iter(twice.loader))
    twice.optimizer.zero_grad()
    for part in (slice(0, 1), slice(1, 3)):
        twice.criterion(twice.model(x[part]), y[part]).backward()
    for made in (once, twice):
        made.optimizer.step()
    assert np.allclose(seen[0][0][1], seen[1][0][1], rtol=1e-5, atol=1e-6)
    assert once.optimizer.max_grad_norm == pytest.approx(twice.optimizer.max_grad_norm, rel=1e-6)


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_a_state_resumes(mode, training, tmp_path):
    options = {"grad_sample_mode": mode, **ADAPTIVE}
    whole, first, second = (training(mechanism_of(), seed=seed, **options) for seed in (0, 0, 9))
    whole.run()
    for x, y in first.loader:
        first.backward(x, y)
        first.optimizer.step()
        if first.engine.run.step == 17:
            break
    first.engine.save_checkpoint(path=tmp_path / "state.pt", module=first.model, optimizer=first.optimizer)
    second.engine.load_checkpoint(path=tmp_path / "state.pt", module=second.model, optimizer=second.optimizer)
    assert second.optimizer.max_grad_norm == first.optimizer.max_grad_norm != CLIP
    second.run()
    assert np.array_equal(whole.weights(), second.weights())
    assert whole.optimizer.max_grad_norm == second.optimizer.max_grad_norm
    assert not second.engine.record().violations


def test_states_of_other_clipping_are_refused(training):
    adaptive, plain = training(mechanism_of(), **ADAPTIVE), training(mechanism_of())
    with pytest.raises(InvalidInputError, match="'hockeystick_clipping_norm' entry"):
        adaptive.optimizer.load_state_dict(plain.optimizer.state_dict())
    with pytest.raises(InvalidInputError, match="noise of shape"):
        plain.optimizer.load_state_dict(adaptive.optimizer.state_dict())
    state = adaptive.optimizer.state_dict() | {"hockeystick_clipping_norm": float("nan")}
    with pytest.raises(InvalidInputError, match="must be positive"):
        adaptive.optimizer.load_state_dict(state)
    assert adaptive.optimizer.max_grad_norm == CLIP


@pytest.mark.parametrize("name", [name for name in ADAPTIVE if name != "clipping"])
def test_a_state_of_another_rule_is_refused(name, training):
    """The norms of its first steps followed the other."""
    value = ADAPTIVE[name]
    saved, other = training(mechanism_of(), **ADAPTIVE), training(mechanism_of(), **ADAPTIVE | {name: 1.1 * value})
    state = saved.optimizer.state_dict()
    with pytest.raises(InvalidInputError, match=f"The '{name}' argument must be that of the saved run, {value}"):
        other.optimizer.load_state_dict(state)
    assert other.engine.run.resumed == 0
    with pytest.raises(InvalidInputError, match="'hockeystick_clipping_rule' entry"):
        saved.optimizer.load_state_dict({key: state[key] for key in state if key != "hockeystick_clipping_rule"})


@pytest.mark.parametrize("name", ["max_grad_norm", "of_gradient", "of_count", "noise_multiplier"])
def test_a_norm_that_somebody_else_changes_ends_the_run(name, training):
    made = training(mechanism_of(SINGLES), **ADAPTIVE)
    batches = iter(made.loader)
    made.backward(*next(batches))
    made.optimizer.step()
    made.backward(*next(batches))
    setattr(made.optimizer, name, getattr(made.optimizer, name) * 0.99)
    with pytest.raises(ViolationError, match="clipping_norm"):
        made.optimizer.step()
    assert made.engine.record().violations == ("clipping_norm",)


def test_a_sum_that_is_too_long_for_the_norm_of_its_step_ends_the_run(training):
    """The first norm would let it pass."""
    made = training(mechanism_of(SINGLES), scale=1e-6, **ADAPTIVE | {"clipbound_learning_rate": 3.0})
    batches = iter(made.loader)
    while made.optimizer.max_grad_norm > CLIP / 2.0:
        made.backward(*next(batches))
        made.optimizer.step()
    made.backward(*next(batches))
    clip = made.optimizer.clip_and_accumulate

    def longer():
        clip()
        first = made.optimizer.params[0].summed_grad
        first.add_(CLIP / OF_GRADIENT / first.numel() ** 0.5)

    made.optimizer.clip_and_accumulate = longer
    with pytest.raises(ViolationError, match="clipping"):
        made.optimizer.step()


def test_gradients_that_were_used_are_refused(training):
    made = training(mechanism_of(SINGLES), **ADAPTIVE)
    batches = iter(made.loader)
    made.backward(*next(batches))
    made.optimizer.step()
    with pytest.raises(ValueError, match="haven't been cleared"):
        made.optimizer.step()
    assert made.engine.run.step == 1


@pytest.mark.parametrize("options", [ADAPTIVE, {"dtype": torch.bfloat16}], ids=["adaptive", "narrow"])
def test_sums_that_were_used_are_not_added_to(options, training):
    """The model's zero_grad clears per-sample gradients, but not their sums, which had noise in their own step."""
    made = training(mechanism_of(SINGLES), **options)
    batches = iter(made.loader)
    made.backward(*next(batches))
    made.optimizer.step()
    made.model.zero_grad()
    x, y = next(batches)
    made.criterion(made.model(x), y).backward()
    with pytest.raises(ValueError, match="haven't been cleared"):
        made.optimizer.step()
    assert made.engine.run.step == 1


@pytest.mark.parametrize(("mode", "what"), [("hooks", "Per-sample gradients"), ("ghost", "Gradients")])
def test_gradients_without_samples_are_refused(mode, what, training):
    made = training(mechanism_of(), grad_sample_mode=mode, **ADAPTIVE)
    with pytest.raises(InvalidInputError, match=f"{what} are missing"):
        made.optimizer.step()


def test_norms_of_ghost_clipping_are_used_once(training):
    """The count of a step without a backward pass of its own would be that of the step before."""
    made = training(mechanism_of(SINGLES), grad_sample_mode="ghost", **ADAPTIVE)
    made.backward(*next(iter(made.loader)))
    made.optimizer.step()
    with pytest.raises(InvalidInputError, match="gradients of this step were not clipped"):
        made.optimizer.step()
    assert made.engine.run.step == 1
    made.model.max_grad_norm = 2.0
    with pytest.raises(ViolationError, match="clipping_norm"):
        made.backward(*made.loader.dataset[:1])


def test_the_certificate_and_the_promises_are_those_of_a_fixed_norm(training):
    adaptive, plain = training(mechanism_of(), **ADAPTIVE), training(mechanism_of())
    assert adaptive.engine.certificate(1e-5, method="gaussian") == plain.engine.certificate(1e-5, method="gaussian")
    adaptive.epoch()
    plain.epoch()
    assert adaptive.engine.record().checked == plain.engine.record().checked
    assert "clipping_norm" in adaptive.engine.record().checked


def test_the_split_is_that_of_andrew_and_others():
    """Theorem 1 of their paper: the noise multipliers of gradient and count, with the count's sensitivity of 1/2."""
    for sigma, deviation in [(1.0, 0.6), (2.0, 10.0), (0.5, 0.2500001)]:
        a, c = split_with_count(sigma, deviation)
        assert (sigma / a) ** -2 + (2.0 * sigma / c) ** -2 == pytest.approx(sigma**-2, rel=1e-12)
        assert sigma / c == pytest.approx(deviation, rel=1e-12)
        assert a * a + c * c / 4.0 <= 1.0 + 1e-15


def test_the_arguments_are_those_of_opacus():
    own, plain = (signature(kind.__init__).parameters for kind in (AdaClipDPOptimizer, DPOptimizer))
    assert set(own) - set(plain) == set(ADAPTIVE) - {"clipping"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target_unclipped_quantile": 1.1}, "'target_unclipped_quantile' argument must be from 0 to 1"),
        ({"clipbound_learning_rate": -0.1}, "'clipbound_learning_rate' argument must be positive"),
        ({"min_clipbound": 0.0}, "'min_clipbound' argument must be positive"),
        ({"max_clipbound": 0.2}, "'max_clipbound' argument must be above min_clipbound"),
        ({"max_clipbound": float("inf")}, "'max_clipbound' argument must be a finite number"),
        ({"unclipped_num_std": SIGMA / 2.0}, "'unclipped_num_std' argument must be finite and above 1.0"),
        ({"unclipped_num_std": None}, "'unclipped_num_std' argument must be a finite number"),
        ({"max_grad_norm": [1.0] * 4}, "'max_grad_norm' argument must be finite and at least"),
    ],
    ids=str,
)
def test_arguments_outside_their_range_are_named(change, message, training):
    with pytest.raises(InvalidInputError, match=message):
        training(mechanism_of(), **ADAPTIVE | change)


@pytest.mark.parametrize(
    "options",
    [
        {"grad_sample_mode": "functorch"},
        {"optimizer_of": hs.torch.ScaledAdam},
        {"optimizer_of": hs.torch.IndependentAdam},
    ],
    ids=str,
)
def test_what_adaptive_clipping_cannot_do_is_refused(options, training):
    with pytest.raises(UnsupportedError, match=r"Adaptive clipping is for|IndependentAdam needs flat clipping"):
        training(mechanism_of(), **ADAPTIVE | options)


def test_several_processes_are_refused(training, tmp_path):
    model = torch.nn.Linear(6, 3)
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        wrapped = torch.nn.parallel.DistributedDataParallel(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with pytest.raises(UnsupportedError, match="in one process"):
            training(mechanism_of(), module=wrapped, optimizer=optimizer, **ADAPTIVE)
    finally:
        distributed.destroy_process_group()
