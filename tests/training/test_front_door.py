"""What a script for Opacus may ask for: any plan, none, a target, any size and any number of epochs."""

import itertools
import warnings
from copy import deepcopy
from fractions import Fraction

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.errors import InvalidInputError

pytest.importorskip("opacus", reason="needs torch and opacus")

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
)

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")
KINDS = ("poisson", "random_allocation", "balls_in_bins", "fixed_size")
SIZES = [(1_500, 64), (50_000, 512), (60_000, 512), (60_000, 1_024), (180_000, 2_048)]


def plan_of(examples, batch, epochs, kind="poisson", **more):
    data = {"num_examples": examples, "batch_size": batch, "epochs": epochs}
    return hs.Plan.parse({"data": data, "sampler": {"kind": kind}} | more)


def private(engine, examples=60, *, with_epsilon=False, **options):
    """A tiny model on so many examples; ``loader`` has arguments of the DataLoader."""
    data = TensorDataset(torch.zeros(examples, 1), torch.zeros(examples, 1))
    model = torch.nn.Linear(1, 1)
    loader = options.pop("loader", {})
    loader = loader(data) if callable(loader) else loader
    asked = {
        "module": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "data_loader": DataLoader(data, **loader),
        "max_grad_norm": 1.0,
    }
    return (engine.make_private_with_epsilon if with_epsilon else engine.make_private)(**asked | options)


def passes(run, epochs):
    """The steps of each pass of a batch sampler."""
    sampler = hs.torch.BatchSampler(run, epochs=epochs)
    taken = []
    for _ in range(epochs):
        announced, before = len(sampler), run.step
        for batch in sampler:
            run.noise(np.array(batch, dtype=int))
        taken.append(run.step - before)
        assert taken[-1] == announced
    return taken


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("examples", "batch"), SIZES)
def test_the_batch_size_of_the_plan_is_that_of_the_loader(examples, batch, kind):
    plan = plan_of(examples, batch, 2, kind, noise_multiplier=1.0)
    for size in (batch, 1):
        made = private(hs.torch.PrivacyEngine(plan), examples, loader={"batch_size": size})
        assert made[2].batch_sampler.run.steps == plan.numbers().steps
    engine = hs.torch.PrivacyEngine(plan.mechanism())  # which does not say the batch size
    private(engine, examples, loader={"batch_size": batch})
    with pytest.raises(InvalidInputError, match=f"batch_size = {batch}, which the plan expects"):
        private(hs.torch.PrivacyEngine(plan), examples, loader={"batch_size": 2 * batch})


def test_fixed_batches_have_the_size_that_the_plan_states():
    for remainder in ("short", "drop"):
        sampler = {"kind": "shuffle", "remainder": remainder}
        plan = plan_of(1000, 64, 1, sampler=sampler, noise_multiplier=1.0)
        private(hs.torch.PrivacyEngine(plan), 1000, loader={"batch_size": 64})


@pytest.mark.parametrize(
    ("loader", "said"),
    [
        ({"shuffle": True}, "shuffle=True"),
        ({"batch_size": 3, "drop_last": True}, "drop_last=True"),
        ({"batch_size": 3, "shuffle": True, "drop_last": True}, "shuffle=True and drop_last=True"),
        (lambda data: {"sampler": RandomSampler(data, replacement=True)}, "replacement=True"),
        (lambda data: {"sampler": DistributedSampler(data, 2, 0)}, "the DistributedSampler"),
        (lambda data: {"batch_sampler": BatchSampler(RandomSampler(data), 3, False)}, "shuffle=True"),
    ],
    ids=["shuffle", "drop_last", "both", "replacement", "distributed", "batches"],
)
def test_other_ways_to_draw_are_replaced_and_one_line_says_so(loader, said):
    plan = plan_of(60, 3, 2, "balls_in_bins", noise_multiplier=1.0)
    with pytest.warns(UserWarning, match=f"In place of {said}, the run draws balls-in-bins batches of 3 ") as caught:
        made = private(hs.torch.PrivacyEngine(plan), loader=loader)
    ours = [str(one.message) for one in caught if "In place of" in str(one.message)]
    assert ours == [
        f"In place of {said}, the run draws balls-in-bins batches of 3 examples on average, 20 to an epoch."
    ]
    assert len(made[2]) == 20


def test_plain_loaders_are_replaced_without_a_word():
    for loader in ({"batch_size": 3}, lambda data: {"batch_sampler": BatchSampler(SequentialSampler(data), 3, False)}):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            made = private(hs.torch.PrivacyEngine(plan_of(60, 3, 1, noise_multiplier=1.0)), loader=loader)
            private(hs.torch.PrivacyEngine(plan_of(60, 3, 1, noise_multiplier=1.0)), data_loader=made[2])
        assert not [one for one in caught if "In place of" in str(one.message)]


def test_the_epoch_of_the_warning_is_that_of_the_plan():
    """Batches that are cut below the expected size do not make the epoch longer."""
    sampler = {"kind": "poisson", "truncated_batch_size": 5}
    plan = hs.Plan.parse(
        {"data": {"num_examples": 60, "batch_size": 6, "epochs": 2}, "sampler": sampler} | {"noise_multiplier": 1.0}
    )
    with pytest.warns(UserWarning, match="In place of shuffle=True, the run draws Poisson .*, 10 to an epoch"):
        made = private(hs.torch.PrivacyEngine(plan), loader={"batch_size": 6, "shuffle": True})
    assert len(made[2]) == 10


def test_loaders_that_cannot_be_replaced_are_refused_for_what_they_do():
    loaders = {
        "'SubsetRandomSampler'; .* torch.utils.data.Subset": {"sampler": SubsetRandomSampler(range(30))},
        "must have a batch_size, .* Got batch_size = None": {"batch_size": None},
    }
    for message, loader in loaders.items():
        with pytest.raises(InvalidInputError, match=message):
            private(hs.torch.PrivacyEngine(), loader=loader, noise_multiplier=1.0)


def test_batches_are_poisson_where_a_script_asks_for_none():
    with pytest.warns(UserWarning, match="In place of poisson_sampling=False, the run draws Poisson batches of 3 "):
        private(hs.torch.PrivacyEngine(), loader={"batch_size": 3}, noise_multiplier=1.0, poisson_sampling=False)


def test_a_share_of_the_batch_is_one_process_s():
    from hockeystick.training.torch.loader import check_batch_size

    promises = hs.Poisson(sampling_prob=0.1, steps=2).promises(200)
    for size in (20, 10, 1):
        check_batch_size(promises, size, None, 2)
    with pytest.raises(InvalidInputError, match="batch_size = 20"):
        check_batch_size(promises, 10, None, 1)


EPOCHS = [(1_000, 280, 10), (60, 25, 20), (60, 50, 7), (60, 50, 12), (99, 98, 98), (60, 60, 3), (7, 3, 5), (93, 1, 2)]


@pytest.mark.parametrize("kind", ["poisson", "random_allocation"])
@pytest.mark.parametrize(("examples", "batch", "epochs"), EPOCHS)
def test_as_many_passes_as_epochs_are_the_plan_s_steps(examples, batch, epochs, kind):
    mechanism = plan_of(examples, batch, epochs, kind, noise_multiplier=1.0).mechanism()
    steps = mechanism.sampler.steps
    taken = passes(hs.training.Run(mechanism, num_examples=examples, shape=None), epochs)
    assert (sum(taken), len(taken)) == (steps, epochs)
    assert max(taken) - min(taken) <= 1 <= min(taken)
    sampler = hs.torch.BatchSampler(hs.training.Run(mechanism, num_examples=examples, shape=None))
    assert abs(sampler.epoch_length - Fraction(steps, epochs)) < Fraction(1, 2)  # a mechanism alone says no epochs


def test_cifar_10_by_512():
    """From 284 epochs on the rounding of an epoch was more than an epoch."""
    for epochs in (283, 284, 300):
        mechanism = plan_of(50_000, 512, epochs, noise_multiplier=1.0).mechanism()
        run = hs.training.Run(mechanism, num_examples=50_000, shape=None)
        for sampler in (hs.torch.BatchSampler(run, epochs=epochs), hs.torch.BatchSampler(run)):
            ends = [sampler._end(epoch) for epoch in range(epochs)]
            assert ends[-1] == mechanism.sampler.steps
            assert {after - before for before, after in itertools.pairwise([0, *ends])} == {97, 98}


@pytest.mark.parametrize("epochs", [2.5, 0.3])
def test_a_part_of_an_epoch_is_a_shorter_pass(epochs):
    mechanism = plan_of(60, 25, epochs, noise_multiplier=1.0).mechanism()
    run = hs.training.Run(mechanism, num_examples=60, shape=None)
    sampler = hs.torch.BatchSampler(run, epochs=epochs)
    while run.remaining:
        for batch in sampler:
            run.noise(np.array(batch, dtype=int))
    assert run.step == mechanism.sampler.steps
    with pytest.raises(InvalidInputError, match="planned steps were taken"):
        next(iter(sampler))


@pytest.mark.parametrize(("examples", "batch", "epochs"), EPOCHS[:2])
def test_the_loop_of_a_script_takes_all_steps(examples, batch, epochs):
    """As ``for epoch in range(epochs): for batch in loader``, with a model."""
    plan = plan_of(examples, batch, epochs, noise_multiplier=1.0)
    engine = hs.torch.PrivacyEngine(plan)
    model, optimizer, loader = private(engine, examples, loader={"batch_size": batch})
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
    assert (engine.run.step, engine.run.remaining) == (plan.numbers().steps, 0)


TARGET = {"target": {"epsilon": 3.0, "delta": 1e-5}}


@pytest.mark.parametrize("kind", KINDS)
def test_a_plan_with_a_target_is_calibrated_once(kind, capsys):
    plan = plan_of(60, 6, 2, kind, **TARGET)
    engine = hs.torch.PrivacyEngine(plan)
    made = private(engine)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "hockeystick: calibrating the noise for epsilon = 3.0 at delta = 1e-05"
    assert lines[-1].startswith(f"hockeystick: noise_multiplier = {made[1].noise_multiplier!r}, in ")
    assert made[1].noise_multiplier == hs.calibrate(plan).sigma
    assert 2.97 < engine.certificate().epsilon.upper <= 3.0
    for wrong, message in (
        ({"noise_multiplier": 1.0}, "must be left out, as it follows from the target epsilon = 3.0"),
        ({"with_epsilon": True, "target_epsilon": 2.0, "target_delta": 1e-5}, "'target_epsilon' .* the plan's, 3.0"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            private(hs.torch.PrivacyEngine(plan), **wrong)


@pytest.mark.parametrize("plan", [None, plan_of(60, 6, 2), plan_of(60, 6, 2, **TARGET), plan_of(60, 6, 2).mechanism()])
def test_a_target_epsilon_with_a_plan_and_without(plan):
    engine = hs.torch.PrivacyEngine(plan)
    asked = {"target_epsilon": 3.0, "target_delta": 1e-5, "with_epsilon": True, "loader": {"batch_size": 6}}
    made = private(engine, **asked, epochs=2)
    assert engine.mechanism.sampler == hs.Poisson(sampling_prob=0.1, steps=20)
    assert 2.97 < engine.certificate().epsilon.upper <= 3.0
    assert made[1].noise_multiplier == hs.get_noise_multiplier(
        target_epsilon=3.0, target_delta=1e-5, sample_rate=0.1, epochs=2
    )
    if plan is None:
        with pytest.raises(InvalidInputError, match="'epochs' argument has to be given"):
            private(hs.torch.PrivacyEngine(), **asked)
        with pytest.raises(InvalidInputError, match="must be the engine's, 3"):
            private(hs.torch.PrivacyEngine(epochs=3), **asked, epochs=2)
    else:
        with pytest.raises(InvalidInputError, match=r"'epochs' argument must be the plan's, 2, or be left out\. Got 3"):
            private(hs.torch.PrivacyEngine(plan), **asked, epochs=3)
        with pytest.raises(InvalidInputError, match=r"noise_multiplier = 1\.5 already"):
            private(hs.torch.PrivacyEngine(plan_of(60, 6, 2, noise_multiplier=1.5)), **asked)


def test_noise_is_the_plan_s_or_the_argument_s_or_missing():
    engine = hs.torch.PrivacyEngine(plan_of(60, 6, 2))
    with pytest.raises(InvalidInputError, match="'noise_multiplier' field is missing"):
        private(engine)
    assert private(engine, noise_multiplier=1.5)[1].noise_multiplier == 1.5  # after a call that was refused
    with pytest.raises(InvalidInputError, match="'noise_multiplier' field is missing"):
        private(hs.torch.PrivacyEngine())


def test_without_a_plan_the_run_has_no_end():
    """Poisson batches at one over the length of the loader, as Opacus draws them, and epsilon of what was executed."""
    engine = hs.torch.PrivacyEngine()
    with pytest.warns(UserWarning, match=r"In place of drop_last=True, the run draws Poisson batches"):
        made = private(engine, 93, loader={"batch_size": 2, "drop_last": True}, noise_multiplier=1.2)
    assert (len(made[2]), engine.run.expected_batch_size) == (46, pytest.approx(93 / 46))
    assert engine.get_epsilon(1e-5) == 0.0
    with pytest.raises(InvalidInputError, match="no certificate before the first step"):
        engine.certificate(1e-5)
    taken = 0
    for _ in range(3):
        for x, y in made[2]:
            made[1].zero_grad()
            torch.nn.functional.mse_loss(made[0](x), y).backward()
            made[1].step()
            taken += 1
    assert taken == 3 * 46
    certificate = engine.certificate(1e-5)
    executed = hs.Mechanism(sampler=hs.Poisson(sampling_prob=1 / 46, steps=taken), noise_multiplier=1.2)
    assert certificate == hs.certify(executed, delta=1e-5)
    record = engine.record(certificate, stopped_without_looking=True)
    assert (record.steps, record.violations) == (taken, ())
    with pytest.raises(InvalidInputError, match="stopped_without_looking=True"):
        engine.record(certificate)


def test_a_run_without_an_end_resumes():
    def start():
        engine = hs.torch.PrivacyEngine(rng=np.random.default_rng(0))
        return engine, private(engine, loader={"batch_size": 6}, noise_multiplier=1.0)

    def step(made):
        x, y = next(iter(made[2]))
        made[1].zero_grad()
        torch.nn.functional.mse_loss(made[0](x), y).backward()
        made[1].step()

    engine, made = start()
    step(made)
    model, optimizer = deepcopy(made[0].state_dict()), deepcopy(made[1].state_dict())
    step(made)
    other, again = start()
    again[0].load_state_dict(model)
    again[1].load_state_dict(optimizer)
    step(again)
    assert torch.equal(*(next(iter(one[0].parameters())).detach() for one in (made, again)))
    assert other.run.step == engine.run.step == 2


@pytest.mark.parametrize("kind", ["random_allocation", {"kind": "b_min_sep", "min_sep": 2}])
def test_other_samplers_and_strategies_without_a_plan_need_epochs(kind):
    for asked in ({"sampler": kind}, {"strategy": hs.BandedSquareRoot(bands=2)}):
        with pytest.raises(InvalidInputError, match="'epochs' argument has to be given"):
            private(hs.torch.PrivacyEngine(**asked), loader={"batch_size": 6}, noise_multiplier=1.0)
    engine = hs.torch.PrivacyEngine(sampler=kind, strategy=hs.BandedSquareRoot(bands=2), epochs=2)
    private(engine, loader={"batch_size": 6}, noise_multiplier=1.0)
    assert engine.mechanism.sampler.kind == (kind if isinstance(kind, str) else kind["kind"])
    assert (engine.mechanism.sampler.steps, engine.mechanism.strategy.bands) == (20, 2)
    with pytest.raises(InvalidInputError, match="'epochs' argument must be left out, as the plan says it"):
        hs.torch.PrivacyEngine(plan_of(60, 6, 2), epochs=2)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"sampler": "possion"}, r"Got 'possion' instead \(did you mean 'poisson'\?\)\.$"),
        ({"sampler": {"kind": "possion"}}, r"Got 'possion' instead \(did you mean 'poisson'\?\)\.$"),
        ({"sampler": {"kind": "b_min_sep"}}, "'sampler.min_sep' field is missing"),
        ({"sampler": hs.Poisson(sampling_prob=0.1, steps=9)}, "'sampler' argument must be the kind"),
        ({"strategy": "bsr"}, "'strategy' argument must be a strategy"),
        ({"epochs": -1}, "'epochs' field must be at least"),
        ({"rng": 0}, "'rng' argument must be a numpy.random.Generator"),
        ({"rng": np.random.default_rng(0), "secure_mode": True}, "'rng' argument must not be given with secure=True"),
        ({"dtype": "float16"}, "'dtype' parameter must be float32 or float64"),
        ({"dtype": "float64", "exact": True}, "'dtype' parameter must be int32"),
        ({"max_bytes": "1GB"}, "'max_bytes' field must be a number"),
        ({"rows": 3}, "'rows' argument must be a place for rows"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_what_no_run_has_is_refused_by_the_constructor(wrong, message):
    with pytest.raises(InvalidInputError, match=message):
        hs.torch.PrivacyEngine(**wrong)


def test_another_accountant_is_said_to_be_ours():
    for name in ("rdp", "gdp", "prv"):
        with pytest.warns(UserWarning, match=f"accountant='{name}' is not used: epsilon is hockeystick's"):
            hs.torch.PrivacyEngine(accountant=name)
    with pytest.raises(InvalidInputError, match=r"'accountant' argument must be .* Got 'moments' instead"):
        hs.torch.PrivacyEngine(accountant="moments")
    hs.torch.PrivacyEngine(accountant="hockeystick")
