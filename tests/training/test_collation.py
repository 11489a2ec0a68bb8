"""Batches without examples have the form that the collation gives the others, whatever that is."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

from hockeystick.errors import InvalidInputError

pytest.importorskip("opacus", reason="needs torch and opacus")

import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, TensorDataset

from hockeystick.training.torch.collation import CollateWithEmpty

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")

DATA = TensorDataset(torch.zeros(3, 2, 5), torch.tensor([4, 5, 6]))
SENTENCES = [(torch.arange(length), length) for length in (3, 1, 7)]
"""Examples of different lengths, which a collation pads."""


class Pair(NamedTuple):
    x: Any
    y: Any


@dataclass(frozen=True)
class Record:
    x: Any
    name: str
    weights: Any = None


def empty(collate=None, data=DATA):
    made = CollateWithEmpty(DataLoader(data, collate_fn=collate))
    assert len(data) == 3
    return made([])


def xs(examples):
    return torch.stack([x for x, _ in examples])


def padded(examples, batch_first):
    return pad_sequence([x for x, _ in examples], batch_first=batch_first), [length for _, length in examples]


def test_tensors_are_cut_where_they_grow():
    x, y = empty()
    assert (x.shape, y.shape, y.dtype) == ((0, 2, 5), (0,), torch.long)
    assert empty(lambda examples: xs(examples).transpose(0, 1)).shape == (2, 0, 5)
    assert empty(lambda examples: xs(examples).movedim(0, 2)).shape == (2, 5, 0)
    assert empty(lambda examples: xs(examples).flatten(0, 1)).shape == (0, 5)
    assert empty(lambda examples: torch.eye(len(examples))).shape == (0, 0)
    assert empty(lambda examples: torch.cat([torch.zeros(1, 5), xs(examples)[:, 0]])).shape == (1, 5)
    assert empty(lambda examples: xs(examples).numpy()).shape == (0, 2, 5)


@pytest.mark.parametrize("batch_first", [True, False])
def test_sequences_that_are_padded(batch_first):
    x, lengths = empty(lambda examples: padded(examples, batch_first), SENTENCES)
    assert x.shape == ((0, 3) if batch_first else (3, 0))
    assert lengths == []


def test_an_entry_for_each_example_is_an_empty_list():
    assert empty(lambda examples: [x for x, _ in examples]) == []
    assert empty(lambda examples: tuple(examples)) == ()
    assert empty(lambda examples: {"text": ["a"] * len(examples), "x": xs(examples)})["text"] == []
    assert empty(lambda examples: [{"x": x} for x, _ in examples]) == []


def test_what_belongs_to_the_batch_stays():
    weights = torch.tensor([0.2, 0.8])

    def collate(examples):
        return {
            "x": xs(examples),
            "weights": weights,
            "scale": torch.tensor(0.5),
            "names": ["yes", "no"],
            "none": None,
            "text": "text",
            "classes": 2,
            "flag": True,
            "share": 0.5,
            "count": len(examples),
            "total": torch.tensor(len(examples)),
        }

    batch = empty(collate)
    assert batch["x"].shape == (0, 2, 5)
    assert torch.equal(batch["weights"], weights)
    assert float(batch["scale"]) == 0.5
    assert [batch[name] for name in ("names", "none", "text", "classes", "flag", "share")] == [
        ["yes", "no"], None, "text", 2, True, 0.5,
    ]  # fmt: skip
    assert (batch["count"], int(batch["total"])) == (0, 0)


def test_named_tuples_dataclasses_and_nested_ones():
    pair = empty(lambda examples: Pair(xs(examples), {"y": [torch.tensor([y for _, y in examples])]}))
    assert (type(pair), pair.x.shape, pair.y["y"][0].shape) == (Pair, (0, 2, 5), (0,))
    record = empty(lambda examples: Record(xs(examples), "a", torch.ones(2)))
    assert (type(record), record.x.shape, record.name, record.weights.shape) == (Record, (0, 2, 5), "a", (2,))


def test_every_batch_without_examples_is_one_of_its_own():
    made = CollateWithEmpty(DataLoader(DATA, collate_fn=lambda examples: [xs(examples), torch.ones(2)]))
    made([])[1].zero_()
    assert made([])[1].tolist() == [1.0, 1.0]


def test_the_collation_may_change_its_examples():
    def collate(examples):
        return torch.stack([example.pop("x") for example in examples])

    data = [{"x": torch.zeros(2)} for _ in range(3)]
    assert empty(collate, data).shape == (0, 2)
    assert all("x" in example for example in data)


@pytest.mark.parametrize(
    ("collate", "message"),
    [
        (lambda examples: 3, "must give tensors or lists that grow .* 'int'"),
        (lambda examples: examples[0], "must give tensors or lists that grow"),
        (lambda examples: object(), "must give tensors, .* 'object'"),
        (lambda examples: {len(examples): xs(examples)}, "of one structure"),
        (lambda examples: xs(examples) if len(examples) > 1 else None, "of one structure"),
        (lambda examples: xs(examples).squeeze(0), "of one structure"),
    ],
)
def test_what_has_no_form_without_examples_is_refused(collate, message):
    with pytest.raises(InvalidInputError, match=message):
        empty(collate)


def test_lists_of_examples_train_where_the_loop_says_that_there_are_none(training):
    """As with ``leave_no_examples`` for models that cannot run on nothing."""

    def collate(examples):
        return [x for x, _ in examples], [y for _, y in examples]

    for mode in ("hooks", "ghost"):
        made, plain = training(loader={"collate_fn": collate}, grad_sample_mode=mode), training(grad_sample_mode=mode)
        nothing = 0
        while made.engine.run.remaining:
            for x, y in made.loader:
                made.optimizer.zero_grad()
                if x:
                    made.criterion(made.model(torch.stack(x)), torch.stack(y)).backward()
                else:
                    nothing += 1
                    made.optimizer.leave_no_examples()
                made.optimizer.step()
        plain.run()
        assert nothing > 0
        assert np.array_equal(made.weights(), plain.weights())
        assert not made.engine.record().violations
