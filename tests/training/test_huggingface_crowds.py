"""What two examples do not show of a collator or a loss: chance, counts, and rows that are missing or doubled."""

import pytest

from hockeystick.errors import InvalidInputError, UnsupportedError

pytest.importorskip("opacus", reason="needs torch and opacus")
pytest.importorskip("transformers", reason="needs transformers")
pytest.importorskip("accelerate", reason="needs accelerate")

import torch
from torch.nn import functional
from transformers.modeling_outputs import SequenceClassifierOutput

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")


class Scores(torch.nn.Module):
    """Two classes of four numbers."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(4, 2)

    def forward(self, x):
        return SequenceClassifierOutput(logits=self.layer(x))


def classified(trainer, collator, losses, copies=1):
    """A training of 60 examples in two classes; the tenth has so many rows."""
    numbers = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    data = [
        {"x": row, "labels": torch.tensor(at % 2), "copies": copies if at == 9 else 1} for at, row in enumerate(numbers)
    ]
    return trainer(
        model=Scores(),
        data=data,
        arguments={"label_names": ["labels"], "remove_unused_columns": False},
        data_collator=collator,
        example_losses=losses,
    )


def stacked(examples):
    rows = [example for example in examples for _ in range(example["copies"])]
    x = torch.stack([torch.zeros(4), *(row["x"] for row in rows)])[1:]
    return {"x": x, "labels": torch.tensor([int(row["labels"]) for row in rows])}


def cross_entropies(outputs, labels):
    return functional.cross_entropy(outputs.logits, labels["labels"], reduction="none")


def test_single_examples_train(trainer):
    made = classified(trainer, stacked, cross_entropies)
    made.train()
    assert made.engine.run.step == 12


@pytest.mark.parametrize("seed", range(6))
def test_a_collator_that_mixes_examples_by_chance_is_refused(seed, trainer):
    """Mixup: a permutation of two changes nothing in one half of all cases."""

    def mixup(examples):
        batch = stacked(examples)
        share, order = torch.rand(()), torch.randperm(len(examples))
        whole = functional.one_hot(batch["labels"], 2)
        return {
            "x": share * batch["x"] + (1 - share) * batch["x"][order],
            "labels": share * whole + (1 - share) * whole[order],
        }

    def losses(outputs, labels):
        return -(labels["labels"] * outputs.logits.log_softmax(1)).sum(1)

    made = classified(trainer, mixup, losses)
    torch.manual_seed(seed)
    with pytest.raises(UnsupportedError, match="must not depend on the examples beside it"):
        made.train()


def test_weights_that_balance_the_classes_of_a_batch_are_refused(trainer):
    """Of two examples, of one class or of two, each has the weight 1."""

    def balanced(outputs, labels):
        counts = torch.bincount(labels["labels"], minlength=2)
        weights = len(labels["labels"]) / ((counts > 0).sum() * counts[labels["labels"]])
        return weights * cross_entropies(outputs, labels)

    with pytest.raises(UnsupportedError, match="in a batch of 5: the loss or the collator mixes them"):
        classified(trainer, stacked, balanced).train()


@pytest.mark.parametrize("copies", [0, 2])
def test_an_example_of_no_row_or_of_two_is_refused(copies, trainer):
    with pytest.raises(InvalidInputError, match=f"must give a row for each example. Got {copies} for example 9"):
        classified(trainer, stacked, cross_entropies, copies).train()
