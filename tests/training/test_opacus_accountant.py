"""The accountant behind Opacus' own engine: the rate and the steps that it counts, and the runs that it refuses."""

import warnings
from types import SimpleNamespace

import pytest

import hockeystick as hs
from hockeystick.errors import UnsupportedError

torch = pytest.importorskip("torch")
opacus = pytest.importorskip("opacus")
pytest.importorskip("hockeystick.training.torch")
get_noise_multiplier = opacus.accountants.utils.get_noise_multiplier
BatchMemoryManager = pytest.importorskip("opacus.utils.batch_memory_manager").BatchMemoryManager
DataLoader, TensorDataset = torch.utils.data.DataLoader, torch.utils.data.TensorDataset


def made(data_loader, *, target=None, **options):
    """Opacus' engine with our accountant, and the optimizer and the loader that it made."""
    model = torch.nn.Linear(1, 2)
    given = {
        "module": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "data_loader": data_loader,
        "max_grad_norm": 1.0,
    } | options
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        engine = opacus.PrivacyEngine(accountant="hockeystick")
        if target is None:
            parts = engine.make_private(**{"noise_multiplier": 1.0} | given)
        else:
            parts = engine.make_private_with_epsilon(target_epsilon=target, target_delta=1e-5, **given)
    return engine, *parts


def of_length(length: int, size: int = 1):
    return DataLoader(TensorDataset(torch.ones(length * size, 1), torch.zeros(length * size, dtype=int)), size)


def trained(model, optimizer, loader, epochs: int) -> None:
    """The loop of Opacus' tutorial."""
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()


@pytest.mark.parametrize(
    ("length", "epochs"),
    [(93, 2), (75, 3), (20, 2), *(pytest.param(length, 1, marks=pytest.mark.weekly) for length in (99, 117))],
)
def test_a_calibrated_run_ends_at_its_target(length, epochs):
    """93, and weekly 99 and 117, lose a batch of each epoch; of 75 Opacus plans 224 steps in 3, and takes 225."""
    engine, model, optimizer, loader = made(of_length(length), target=2.0, epochs=epochs)
    trained(model, optimizer, loader, epochs)
    ((_, rate, steps),) = engine.accountant.history
    assert (rate, steps) == (1 / length, epochs * int(1 / (1 / length)))
    assert 1.95 < engine.get_epsilon(1e-5) <= 2.0


def test_a_calibration_knows_how_short_the_norms_of_the_model_may_be():
    """The noise of a tensor of a million numbers is divided by 1.03, after the run and before."""
    wide = torch.nn.Linear(1000, 1000)
    options = {"module": wide, "optimizer": torch.optim.SGD(wide.parameters(), lr=0.1), "epochs": 2}
    data = TensorDataset(torch.ones(20, 1000), torch.zeros(20, dtype=int))
    engine, model, optimizer, loader = made(DataLoader(data, 1), target=2.0, **options)
    trained(model, optimizer, loader, 2)
    assert engine.accountant.excess > 1.03
    assert 1.95 < engine.get_epsilon(1e-5) <= 2.0


def test_calibrations_are_for_every_step_that_is_taken(monkeypatch):
    """For all lengths to 200 and several epochs, of which Opacus leaves out a step in some."""
    planned = []

    def certify(mechanism, delta):
        planned.append((mechanism.sampler.sampling_prob, mechanism.sampler.steps))
        return SimpleNamespace(epsilon=1 / mechanism.sigma)

    monkeypatch.setattr("hockeystick.training.torch.accountant.certify", certify)
    short = 0
    for length in range(1, 201):
        for epochs in (1, 3, 10):
            planned.clear()
            options = {"target_epsilon": 2.0, "target_delta": 1e-5, "accountant": "hockeystick"}
            get_noise_multiplier(sample_rate=1 / length, epochs=epochs, **options)
            assert {steps for _, steps in planned} == {epochs * length}
            assert all(rate >= min(1 / length + 2**-24, 1.0) for rate, _ in planned)
            short += int(epochs / (1 / length)) < epochs * int(1 / (1 / length))
    assert short > 0


def test_the_rate_of_the_sampler_is_read_at_every_step():
    engine, model, optimizer, loader = made(of_length(10))
    trained(model, optimizer, loader, 1)
    loader.batch_sampler.sample_rate = 0.5
    trained(model, optimizer, loader, 1)
    assert [rate for _, rate, _ in engine.accountant.history] == [0.1, 0.5]
    with pytest.raises(UnsupportedError, match="changed during the run"):
        engine.get_epsilon(1e-5)


def test_a_poisson_loader_of_ones_own_is_accounted_at_its_rate():
    loader = opacus.data_loader.DPDataLoader(
        TensorDataset(torch.ones(9, 1), torch.zeros(9, dtype=int)), sample_rate=0.3
    )
    engine, model, optimizer, same = made(loader, poisson_sampling=False)
    assert same is loader
    trained(model, optimizer, loader, 1)
    assert engine.accountant.history == [(1.0, 0.3, 3)]
    exact = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.3, steps=3), noise_multiplier=1.0)
    assert engine.get_epsilon(1e-5) >= hs.certify(exact, delta=1e-5).epsilon.lower


def test_steps_on_batches_of_another_loader_are_refused():
    """The loader that ``make_private`` was given shuffles, and has other batches than the accountant is for."""
    raw = of_length(4, 5)
    engine, model, optimizer, loader = made(raw)
    with pytest.raises(UnsupportedError, match=r"number 1, .* has given batches for 0 so far;"):
        trained(model, optimizer, raw, 1)
    engine, model, optimizer, loader = made(raw)
    trained(model, optimizer, loader, 2)
    with pytest.raises(UnsupportedError, match=r"number 9, .* has given batches for 8 so far;"):
        trained(model, optimizer, raw, 1)
    assert len(engine.accountant) == 8


def test_two_steps_on_one_batch_are_refused():
    _, model, optimizer, loader = made(of_length(4, 5))
    for x, y in loader:
        for step in range(2):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            if step:
                with pytest.raises(UnsupportedError, match=r"number 2, .* has given batches for 1 so far;"):
                    optimizer.step()
            else:
                optimizer.step()
        break


@pytest.mark.parametrize("workers", [0, 1])
def test_batches_are_counted_where_they_are_split_and_read_ahead(workers):
    data = TensorDataset(torch.ones(60, 1), torch.zeros(60, dtype=int))
    engine, model, optimizer, loader = made(DataLoader(data, 20, num_workers=workers))
    with BatchMemoryManager(data_loader=loader, max_physical_batch_size=7, optimizer=optimizer) as split:
        trained(model, optimizer, split, 2)
    assert len(engine.accountant) == 6


def test_made_up_examples_for_empty_batches_are_refused():
    """Opacus accounts for a change of one clipping norm; here the example and the made-up one differ by two."""
    with pytest.raises(UnsupportedError, match="rand_on_empty"):
        made(of_length(4), rand_on_empty=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        engine = opacus.PrivacyEngine()
        model = torch.nn.Linear(1, 2)
        *_, loader = engine.make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            data_loader=of_length(4),
            noise_multiplier=1.0,
            max_grad_norm=1.0,
            rand_on_empty=True,
        )
    loader.collate_fn([(torch.ones(1), torch.tensor(0))])
    assert len(loader.collate_fn([])[0]) == 1


def test_opacus_adaptive_clipping_is_refused():
    """Its clipping norm follows from a count over the size of the batch, which has no noise."""
    options = {
        "target_unclipped_quantile": 0.5,
        "clipbound_learning_rate": 0.2,
        "max_clipbound": 10.0,
        "min_clipbound": 0.1,
        "unclipped_num_std": 1.0,
    }
    with pytest.raises(UnsupportedError, match="AdaClipDPOptimizer"):
        made(of_length(4), clipping="adaptive", **options)


def words_in_four_places(positions):
    """Of examples with four words; a layer adds a vector for each place, of which ``positions`` gives the numbers."""

    def forward(x):
        return model["out"]((model["words"](x) + model["places"](positions(x))).mean(dim=1))

    words, places, out = torch.nn.Embedding(9, 3), torch.nn.Embedding(4, 3), torch.nn.Linear(3, 2)
    model = torch.nn.ModuleDict({"words": words, "places": places, "out": out})
    model.forward = forward
    return model


def by_layers(model, loader, **options):
    norms = [0.5] * len(list(model.parameters()))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return made(loader, module=model, optimizer=optimizer, max_grad_norm=norms, clipping="per_layer", **options)


@pytest.mark.parametrize(
    ("positions", "refused"),
    [(lambda x: torch.arange(4), True), (lambda x: torch.arange(4).expand(len(x), 4), False)],
    ids=["without_examples", "for_each_example"],
)
def test_layers_that_are_clipped_along_another_dimension_are_refused(positions, refused):
    """Of flat clipping Opacus says so itself, as the norms have different lengths."""
    data = TensorDataset(torch.randint(9, (12, 4)), torch.zeros(12, dtype=int))
    _, model, optimizer, loader = by_layers(words_in_four_places(positions), DataLoader(data, 12))
    if refused:
        with pytest.raises(UnsupportedError, match="different numbers of rows, 4 to 12"):
            trained(model, optimizer, loader, 1)
    else:
        trained(model, optimizer, loader, 1)


@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_a_schedule_that_moves_the_noise_alone_is_refused(factor):
    engine, model, optimizer, loader = by_layers(torch.nn.Linear(1, 2), of_length(2))
    schedule = opacus.schedulers.ExponentialGradClip(optimizer, gamma=factor)
    trained(model, optimizer, loader, 1)
    schedule.step()
    if factor < 1:
        with pytest.raises(UnsupportedError, match=r"for a norm of 0.353553, but its layers are clipped to 0.707107"):
            trained(model, optimizer, loader, 1)
    else:
        trained(model, optimizer, loader, 1)
        assert len(engine.accountant) == 4


@pytest.mark.parametrize("wrapped", [True, False])
@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (torch.nn.BatchNorm1d(1).requires_grad_(False), "takes its statistics from whole batches"),
        (torch.nn.Embedding(3, 1, max_norm=1.0), "has max_norm=1.0"),
    ],
    ids=["batch_norm", "max_norm"],
)
def test_layers_that_change_without_noise_are_refused(layer, message, wrapped):
    model = torch.nn.Sequential(layer, torch.nn.Linear(1, 2))
    with pytest.raises(UnsupportedError, match=message):
        made(of_length(2), module=model, optimizer=torch.optim.SGD(model[1].parameters(), 0.1), wrap_model=wrapped)


def test_steps_of_several_batches_are_refused():
    _, model, optimizer, loader = made(of_length(4, 5))
    model.allow_grad_accumulation()
    batches = iter(loader)
    optimizer.zero_grad()
    for _ in range(2):
        x, y = next(batches)
        torch.nn.functional.cross_entropy(model(x), y).backward()
    with pytest.raises(UnsupportedError, match="adds up 2 batches"):
        optimizer.step()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_coins_of_a_narrow_type_are_refused(dtype):
    """At the rate .001 they come up in more than .0011 of the draws; a failure by chance is 30 deviations away."""
    _, _, optimizer, loader = made(of_length(4, 5))
    torch.set_default_dtype(dtype)
    try:
        coins = torch.rand(2**22, generator=torch.Generator().manual_seed(0)) < 0.001
        assert float(coins.double().mean()) > 0.0011
        with pytest.raises(UnsupportedError, match=f"Got {dtype} on 'cpu'"):
            made(of_length(4))
        with pytest.raises(UnsupportedError, match=f"Got {dtype} on 'cpu'"):
            optimizer.step_hook(optimizer)
    finally:
        torch.set_default_dtype(torch.float32)
    assert len(list(loader)) == 4


def test_coins_on_another_device_are_refused():
    _, _, optimizer, _ = made(of_length(4))
    with torch.device("meta"), pytest.raises(UnsupportedError, match=r"Got torch\.float32 on 'meta'"):
        optimizer.step_hook(optimizer)


def compared(change):
    """A classifier of what ``change`` makes of a batch."""
    model = torch.nn.Sequential(torch.nn.Identity(), torch.nn.Linear(1, 2))
    model[0].forward = change
    return model


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda x: x - x.mean(dim=0), "changes when the others of a batch"),
        (lambda x: torch.ones(x.shape[0], 1), ""),
        (lambda x: torch.ones(4, 1), "rows both for"),
    ],
)
def test_models_that_mix_examples_are_refused(change, says):
    """A mean over the batch, and as many positions as examples."""
    model = compared(change)
    data = TensorDataset(torch.randn(4, 1, generator=torch.Generator().manual_seed(0)), torch.zeros(4, dtype=int))
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    _, private, optimizer, loader = made(DataLoader(data, batch_size=4), module=model, optimizer=sgd)
    if says:
        with pytest.raises(UnsupportedError, match=says):
            trained(private, optimizer, loader, 1)
    else:
        trained(private, optimizer, loader, 1)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_an_example_that_makes_the_model_nan_is_caught(value):
    """Opacus' factors do not clip it; a number whose gradient is finite is clipped, however large."""
    x = torch.ones(4, 1)
    x[2] = value
    data = TensorDataset(x, torch.zeros(4, dtype=int))
    engine, model, optimizer, loader = made(DataLoader(data, batch_size=4))
    with pytest.raises(UnsupportedError, match="A sum of gradients is not finite"):
        trained(model, optimizer, loader, 1)
    assert all(parameter.isfinite().all() for parameter in model.parameters())
    again = hs.torch.Accountant()
    again.load_state_dict(engine.accountant.state_dict())
    for accountant in (engine.accountant, again):
        with pytest.raises(UnsupportedError, match="A sum of gradients is not finite"):
            accountant.get_epsilon(1e-5)


def test_a_large_number_is_clipped():
    x = torch.ones(4, 1)
    x[2] = 1e15
    engine, model, optimizer, loader = made(DataLoader(TensorDataset(x, torch.zeros(4, dtype=int)), batch_size=4))
    trained(model, optimizer, loader, 1)
    assert engine.get_epsilon(1e-5) > 0.0


def started(seed: int, *, noise: int | None = None, coins: int | None = None):
    """A script that begins by seeding torch, and may give the noise and the loader generators of their own."""
    torch.manual_seed(seed)
    of_noise, of_coins = (own if own is None else torch.Generator().manual_seed(own) for own in (noise, coins))
    data = TensorDataset(torch.ones(20, 1), torch.zeros(20, dtype=int))
    return made(DataLoader(data, 5, generator=of_coins), noise_generator=of_noise)


@pytest.mark.parametrize(
    ("first", "second", "refused"),
    [
        ({"seed": 1}, {"seed": 1}, "noise"),
        ({"seed": 1}, {"seed": 2}, None),
        ({"seed": 1, "noise": 3}, {"seed": 2, "noise": 3}, "noise"),
        ({"seed": 1, "noise": 3}, {"seed": 1, "noise": 4}, "batches"),
        ({"seed": 1, "coins": 3}, {"seed": 2, "coins": 3}, "batches"),
        ({"seed": 1, "noise": 3, "coins": 4}, {"seed": 1, "noise": 5, "coins": 6}, None),
    ],
)
def test_a_resumed_run_that_would_draw_again_what_it_drew_is_refused(first, second, refused, tmp_path):
    """Opacus' checkpoints have no state of a generator: a script with a seed begins anew."""
    engine, model, optimizer, loader = started(**first)
    trained(model, optimizer, loader, 2)
    engine.save_checkpoint(path=tmp_path / "checkpoint", module=model, optimizer=optimizer)
    engine, model, optimizer, loader = started(**second)
    engine.load_checkpoint(path=tmp_path / "checkpoint", module=model, optimizer=optimizer)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    if refused is None:
        trained(model, optimizer, loader, 2)
        assert len(engine.accountant) == 16
        return
    with pytest.raises(UnsupportedError, match=f"generator of the {refused} is in the state"):
        trained(model, optimizer, loader, 1)
    assert all(map(torch.equal, before, model.parameters()))  # nothing was released


def test_a_resumed_run_may_go_on_where_its_generator_was(tmp_path):
    engine, model, optimizer, loader = started(1)
    trained(model, optimizer, loader, 1)
    engine.save_checkpoint(path=tmp_path / "checkpoint", module=model, optimizer=optimizer)
    state = torch.get_rng_state()
    engine, model, optimizer, loader = started(1)
    engine.load_checkpoint(path=tmp_path / "checkpoint", module=model, optimizer=optimizer)
    torch.set_rng_state(state)
    trained(model, optimizer, loader, 1)
    engine.save_checkpoint(path=tmp_path / "later", module=model, optimizer=optimizer)
    engine.load_checkpoint(path=tmp_path / "later", module=model, optimizer=optimizer)
    torch.set_rng_state(state)  # where the second part began
    with pytest.raises(UnsupportedError, match="generator of the noise"):
        trained(model, optimizer, loader, 1)


def test_a_seed_in_the_loop_is_refused():
    """Every epoch would have the noise of the first."""
    _, model, optimizer, loader = started(1)
    with pytest.raises(UnsupportedError, match="generator of the noise"):  # noqa: PT012
        for _ in range(2):
            torch.manual_seed(5)
            trained(model, optimizer, loader, 1)
