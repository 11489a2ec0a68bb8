"""Trainers of others as private ones: pairs as examples, losses of their own, data that they prepare."""

import copy

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.errors import InvalidInputError, UnsupportedError

pytest.importorskip("opacus", reason="needs torch and opacus")
pytest.importorskip("transformers", reason="needs transformers")
pytest.importorskip("accelerate", reason="needs accelerate")

import torch
import transformers
from huggingface_training import FIXED, QUIET, model_of, sentences
from torch.nn import functional

from hockeystick.training.huggingface.derivatives import dependence_of_mean
from hockeystick.training.huggingface.losses import check_own_loss
from hockeystick.training.huggingface.rows import Rows

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")

PAIRS = [
    {"chosen": sentence["input_ids"][: 3 + at % 4], "rejected": sentence["input_ids"].flip(0), "margin": at / 60}
    for at, sentence in enumerate(sentences())
]
"""The better and the worse of two, and a number for both."""
OWN_LOSS = {
    "has_losses_by_example": False,
    "rows": 2,
    "is_tried": True,
    "grad_sample_mode": "hooks",
    "processes": 1,
    "exact": False,
    "sharded": False,
}
"""What a Trainer of pairs is checked with."""


def padded(examples):
    """The chosen ones, then the rejected ones."""
    rows = [example["chosen"] for example in examples] + [example["rejected"] for example in examples]
    return {
        "input_ids": torch.stack([functional.pad(row, (0, 6 - len(row))) for row in rows]),
        "mask": torch.stack([torch.arange(6) < len(row) for row in rows]),
        "margin": torch.tensor([example["margin"] for example in examples]),
    }


def in_turn(examples):
    """Each rejected one after its chosen one."""
    batch = padded(examples)
    return {name: e if name == "margin" else e.unflatten(0, (2, -1)).flatten(0, 1) for name, e in batch.items()} | {
        name: batch[name].unflatten(0, (2, -1)).transpose(0, 1).flatten(0, 1) for name in ("input_ids", "mask")
    }


def scores(model, inputs):
    """Of the chosen and of the rejected ones: the log-probabilities of their tokens in sum; and those of each token."""
    logits = model(input_ids=inputs["input_ids"]).logits[:, :-1].log_softmax(dim=-1)
    counted = inputs["mask"][:, 1:]
    tokens = logits.gather(2, inputs["input_ids"][:, 1:, None])[..., 0] * counted
    return tokens.sum(dim=1).chunk(2), tokens, counted


class Preferences(transformers.Trainer):
    """The mean over pairs of a loss of two rows."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        (chosen, rejected), _, _ = scores(model, inputs)
        return -functional.logsigmoid(0.1 * (chosen - rejected) - inputs["margin"]).mean()


class Sorted(Preferences):
    """Differences to the scores of the beginning, sorted over the batch."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        if not hasattr(self, "reference"):
            self.reference = copy.deepcopy(model)
        (chosen, rejected), _, _ = scores(model, inputs)
        with torch.no_grad():
            (own, other), _, _ = scores(self.reference, inputs)
        return -functional.logsigmoid(0.1 * ((chosen - rejected).sort()[0] - (own - other).sort()[0])).mean()


class OverTokens(Preferences):
    """The mean over the tokens of all chosen ones."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        _, tokens, counted = scores(model, inputs)
        return -tokens.chunk(2)[0].sum() / counted.chunk(2)[0].sum()


class Summed(Preferences):
    """The sum in place of the mean."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        return super().compute_loss(model, inputs) * len(inputs["margin"])


@pytest.fixture
def pairs(tmp_path):
    """Makes a private Trainer of a class, on pairs unless other data are given."""

    def make(base=Preferences, *, model=None, data=PAIRS, arguments=None, plan=FIXED, **options):
        run = {"max_steps": 12, "per_device_train_batch_size": 5, "save_strategy": "no", "remove_unused_columns": False}
        return hs.huggingface.private(base)(
            plan=plan,
            model=model_of(attention_dropout=0.0) if model is None else model,
            args=transformers.TrainingArguments(str(tmp_path), **QUIET | run | (arguments or {})),
            train_dataset=data,
            rng=np.random.default_rng(0),
            **{"data_collator": padded} | options,
        )

    return make


@pytest.mark.parametrize(("largest", "parts"), [(5, 1), (2, 3), (1, 5)])
def test_the_sum_is_of_gradients_of_pairs_of_which_half_are_clipped(largest, parts, pairs):
    model = model_of(attention_dropout=0.0)
    parameters = list(model.parameters())
    alone = [
        torch.autograd.grad(Preferences.compute_loss(None, model, padded([pair])), parameters) for pair in PAIRS[:5]
    ]
    norms = [float(torch.sqrt(sum((part**2).sum() for part in of_pair))) for of_pair in alone]
    norm = sorted(norms)[2]
    divided = {"per_device_train_batch_size": largest, "gradient_accumulation_steps": parts}
    made = pairs(model=model, arguments=divided | {"max_steps": 1, "max_grad_norm": norm})
    made.get_train_dataloader()
    sums = {}
    add_noise = made.optimizer.add_noise

    def look():
        sums.update({id(p): p.summed_grad.clone().view_as(p) for p in made.optimizer.params})
        add_noise()

    made.optimizer.add_noise = look
    made.train()
    assert len(sums) == len(parameters)
    for at, parameter in enumerate(parameters):
        expected = sum(of_pair[at] * min(1.0, norm / own) for of_pair, own in zip(alone, norms, strict=True))
        np.testing.assert_allclose(sums[id(parameter)], expected, rtol=1e-4, atol=1e-5 * norm)


def test_a_training_on_pairs_ends_with_its_certificate(pairs):
    plan = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.05, steps=12), noise_multiplier=2.0)
    made = pairs(plan=plan, arguments={"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2})
    made.train()
    record = made.record(made.certificate(1e-5))
    assert (record.steps, record.violations) == (12, ())
    assert {"independence_tried", "number_of_examples"} <= set(record.checked)


@pytest.mark.parametrize(
    ("base", "options", "message"),
    [
        (Sorted, {}, "the derivative of their loss by the embeddings or inputs of one changes"),
        (OverTokens, {}, "the derivative of their loss by the embeddings or inputs of one changes"),
        (Summed, {}, "their loss together is 1 of it from the mean"),
        (Preferences, {"data_collator": in_turn}, "must not depend on the examples beside it, but"),
    ],
    ids=["sorted", "over tokens", "summed", "rows of a pair in turn"],
)
def test_losses_and_rows_that_mix_pairs_are_refused(base, options, message, pairs):
    made = pairs(base, **options)
    with pytest.raises(UnsupportedError, match=message):
        made.train()
    assert made.engine.run.step == 0


def test_weights_and_random_numbers_are_as_they_were_after_the_trial(pairs):
    made = pairs()
    before, state = [p.clone() for p in made.model.parameters()], torch.get_rng_state()
    made.get_train_dataloader()
    assert all(torch.equal(one, other) for one, other in zip(made.model.parameters(), before, strict=True))
    assert torch.equal(torch.get_rng_state(), state)


def test_what_pairs_and_losses_of_ones_own_cannot_have_is_refused(pairs):
    for options, message in (
        ({"try_independence": False}, "'try_independence' argument must be True for a collator that makes several"),
        ({"grad_sample_mode": "ghost"}, "'grad_sample_mode' argument must be 'hooks' for a loss of the Trainer's own"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            pairs(**options).train()
    with pytest.raises(InvalidInputError, match="must be True for the loss of Preferences in several processes"):
        check_own_loss("Preferences", **(OWN_LOSS | {"processes": 2, "rows": 1, "is_tried": False}))
    with pytest.raises(InvalidInputError, match="'exact' argument must be False for a loss of the Trainer's own"):
        check_own_loss("Preferences", **(OWN_LOSS | {"exact": True}))
    with pytest.raises(InvalidInputError, match="must be whole in every process for the loss of Preferences"):
        check_own_loss("Preferences", **(OWN_LOSS | {"sharded": True, "grad_sample_mode": "ghost"}))
    with pytest.raises(InvalidInputError, match="'base' argument must be a Trainer of transformers or TRL"):
        hs.huggingface.private(dict)
    with pytest.raises(InvalidInputError, match="'args' argument has to be given"):
        hs.huggingface.private(Preferences)(plan=FIXED, model=model_of(), train_dataset=PAIRS)


def test_rows_of_examples_are_counted_cut_and_joined():
    rows = Rows(padded(PAIRS[:1]))
    batch = padded(PAIRS[:5]) | {"names": [f"{side}{at}" for side in "cr" for at in range(5)]}
    rows._of["names"] = 2
    assert (rows.most, rows.examples_in(batch), Rows().most) == (2, 5, 1)
    part = rows.part(batch, 3, 9)
    assert part["names"] == ["c3", "c4", "r3", "r4"]
    assert torch.equal(part["input_ids"], padded(PAIRS[3:5])["input_ids"])
    with pytest.raises(InvalidInputError, match="the examples in their first dimension"):
        rows.examples_in(batch | {"margin": torch.zeros(4)})
    weight = torch.nn.Parameter(torch.zeros(1))
    weight.grad_sample = torch.tensor([[2.0], [4.0], [6.0], [8.0]])
    rows.join([weight])
    assert weight.grad_sample.tolist() == [[4.0], [6.0]]


class Labelled(transformers.Trainer):
    """The loss of transformers over the batch's tokens, to some power, and figures beside it."""

    power = 1

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        self._metrics["train"].append(1)
        return model(**inputs).loss ** self.power


class Squared(Labelled):
    power = 2


def test_losses_by_example_take_the_place_of_those_that_agree_on_single_examples(pairs):
    made = {}
    for base in (Labelled, Squared):
        made[base] = pairs(base, data=sentences(), data_collator=None)
        made[base]._metrics = {"train": []}
    made[Labelled].train()
    assert made[Labelled].engine.run.step == 12
    assert made[Labelled]._metrics == {"train": []}
    with pytest.raises(UnsupportedError, match=r"loss of Squared for a single example is .*'example_losses' has"):
        made[Squared].train()
    own = pairs(Squared, data=sentences(), data_collator=None, example_losses=made[Labelled].example_losses)
    own._metrics = {"train": []}
    own.get_train_dataloader()


class Table(torch.utils.data.Dataset):
    """As much of a table of examples as preparation needs."""

    def __init__(self, examples):
        self.examples = examples

    def __len__(self):
        return len(self.examples)

    def __getitem__(self, at):
        return [e[at] for e in self.examples] if isinstance(at, str) else self.examples[at]

    @property
    def column_names(self):
        return list(self.examples[0])

    def add_column(self, name, column):
        return Table([e | {name: entry} for e, entry in zip(self.examples, column, strict=True)])

    def remove_columns(self, names):
        gone = [names] if isinstance(names, str) else names
        return Table([{name: entry for name, entry in e.items() if name not in gone} for e in self.examples])


def packed(table):
    halves = zip(table.examples[::2], table.examples[1::2], strict=True)
    return Table([{"input_ids": torch.cat([one["input_ids"], other["input_ids"]])} for one, other in halves])


PREPARATIONS = {
    "kept": lambda table: Table(list(table.examples)),
    "packed": packed,
    "left out": lambda table: Table(table.examples[:-1]),
    "moved": lambda table: Table(table.examples[::-1]),
    "without numbers": lambda table: Table([{"input_ids": one["input_ids"]} for one in table.examples]),
}


@pytest.mark.parametrize("how", PREPARATIONS)
def test_preparation_that_does_not_keep_examples_and_their_order_is_refused(how, pairs):
    class Prepares(transformers.Trainer):
        def __init__(self, *, train_dataset, **options):
            super().__init__(train_dataset=PREPARATIONS[how](train_dataset), **options)

    data = Table([sentence | {"number": 1} for sentence in sentences()])
    if how == "kept":
        made = pairs(Prepares, data=data, data_collator=None)
        assert set(made.train_dataset.column_names) == {"input_ids", "labels", "number"}
        return
    with pytest.raises(InvalidInputError, match="must turn each example of 'train_dataset' into one example"):
        pairs(Prepares, data=data, data_collator=None)


def test_evaluation_on_the_training_data_after_it_is_refused(trainer):
    data = sentences()
    made = trainer(data=data)
    for evaluated in (data, torch.utils.data.Subset(data, [0])):
        for look, name in ((made.evaluate, "eval_dataset"), (made.predict, "test_dataset")):
            with pytest.raises(InvalidInputError, match=f"'{name}' argument must not be the training data"):
                look(evaluated)


def test_artefacts_are_listed_each_with_whether_it_is_covered(trainer, tmp_path):
    made = trainer(arguments={"save_strategy": "steps", "save_steps": 6})
    made.train()
    made.save_model(tmp_path / "model")
    (tmp_path / "model" / "samples.txt").write_text("?")
    listed = made.artefacts(tmp_path / "model")
    covers = {entry.name.removeprefix(str(tmp_path)): entry.cover for entry in listed.entries}
    covered = {name for name, cover in covers.items() if cover == hs.huggingface.Cover.COVERED}
    assert covered == {f"/{folder}/model.safetensors" for folder in ("model", "out/checkpoint-6", "out/checkpoint-12")}
    assert covers["the log, and what was printed or sent to trackers"] == "not covered"
    for name in ("model/samples.txt", "out/checkpoint-6/optimizer.pt", "out/checkpoint-6/trainer_state.json"):
        assert covers[f"/{name}"] == "not covered"
    assert {covers[f"/{name}"] for name in ("model/training_args.bin", "model/config.json")} == {"settings"}
    listed.save(tmp_path / "artefacts.json")
    assert '"cover": "not covered"' in (tmp_path / "artefacts.json").read_text()
    assert str(listed).count("\n") == len(listed.entries) - 1
    with pytest.raises(InvalidInputError, match="'folders' argument must name folders that exist"):
        made.artefacts(tmp_path / "none")


def test_a_mean_that_needs_no_other_example_is_known_by_its_derivative():
    """A small dependence, far below what comparisons of losses allow, is seen; none is seen where there is none."""
    torch.manual_seed(0)  # with some weights the product of all losses is next to nothing
    model = torch.nn.Sequential(torch.nn.Embedding(4, 3), torch.nn.Linear(3, 1))
    examples = [torch.tensor([at, (at * 2 + 1) % 4]) for at in range(4)]

    def loss_of(batch, mixed):
        each = model(torch.stack(batch)).square().mean(dim=(1, 2))
        return each.mean() + mixed * each.prod()

    assert dependence_of_mean(model, examples, lambda batch: loss_of(batch, 0.0), 0.0) is None
    assert "changes by" in dependence_of_mean(model, examples, lambda batch: loss_of(batch, 1e-3), 1e-5)
