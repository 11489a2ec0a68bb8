"""The Trainer of transformers with exact sums: whole numbers of numpy, whatever the physical batches."""

from types import SimpleNamespace

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.errors import InvalidInputError, UnsupportedError

pytest.importorskip("opacus", reason="needs torch and opacus")
pytest.importorskip("transformers", reason="needs transformers")
pytest.importorskip("accelerate", reason="needs accelerate")

import torch
from huggingface_training import model_of, sentences
from transformers import TrainerCallback
from transformers.trainer_utils import get_last_checkpoint
from whole_numbers import CLIP, DATA, MECHANISM, Sum, expected

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")

EXAMPLES = [{"x": torch.from_numpy(row), "labels": torch.tensor(0)} for row in DATA]


class Model(Sum):
    """The gradient of an example is the example, exactly."""

    def forward(self, x):
        return SimpleNamespace(logits=super().forward(x))


class Look(TrainerCallback):
    """Keeps what was in ``p.grad`` at every step."""

    def __init__(self):
        self.rows = []

    def on_optimizer_step(self, args, state, control, optimizer=None, **unused):
        self.rows.append(torch.cat([p.grad.reshape(-1) for p in optimizer.params]).numpy().copy())


class StopAt(TrainerCallback):
    """Saves and stops after some steps."""

    def on_step_end(self, args, state, control, **unused):
        if state.global_step == 5:
            control.should_save = control.should_training_stop = True


def sums(trainer, plan=MECHANISM, rows=4, **options):
    """A Trainer whose gradients are the data, in physical batches of so many rows."""
    arguments = {"per_device_train_batch_size": rows, "gradient_accumulation_steps": -(-5 // rows), "optim": "sgd"}
    arguments |= {"max_grad_norm": CLIP, "label_names": ["labels"], "remove_unused_columns": False}
    given = {"example_losses": lambda outputs, labels: outputs.logits[:, 0], "try_independence": False} | options
    return trainer(plan, Model(), EXAMPLES, arguments=arguments, **given)


@pytest.mark.parametrize("rows", [2, 4, 32])
def test_every_step_is_that_of_whole_numbers_for_any_physical_batches(rows, trainer):
    look = Look()
    made = sums(trainer, rows=rows, callbacks=[look])
    made.train()
    assert np.array_equal(look.rows, expected(divisor=made.engine.run.expected_batch_size))
    record = made.record()
    assert record.violations == ()
    assert {"exact_sums", "one_shape", "norms", "batches_in_step"} <= set(record.checked)
    assert "batch_invariance" in record.asserted
    assert record.noise_dtype == "int32"


def test_the_loss_is_that_of_the_examples_and_not_of_what_fills_up(trainer, monkeypatch):
    made, seen = sums(trainer), []
    step = made.training_step

    def kept(model, inputs, *given):
        real = inputs["x"].abs().sum(dim=1) > 0.0
        with torch.no_grad():
            losses = model(inputs["x"]).logits[real, 0]
        seen.append((float(step(model, inputs, *given)), float(losses.mean()) if len(losses) else 0.0))
        return torch.zeros(())

    monkeypatch.setattr(made, "training_step", kept)
    made.train()
    np.testing.assert_allclose(*np.array(seen).T, rtol=1e-5)


def test_a_stated_change_of_the_others_is_covered_and_said(trainer):
    plain = MECHANISM.model_copy(update={"exact": False})
    look = Look()
    made = sums(trainer, plain, exact=True, invariance=0.01, callbacks=[look])
    made.train()
    divisor = made.engine.run.expected_batch_size
    assert np.array_equal(look.rows, expected(divisor=divisor, rho=0.01))
    assert made.record().rho == 0.01


def language(trainer, **options):
    """A transformer without dropout on sentences of one length."""
    arguments = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2} | options.pop("arguments", {})
    data = sentences(40)
    return trainer(MECHANISM, options.pop("model", None) or still(), data, arguments=arguments, **options)


def still(**options):
    return model_of(attention_dropout=0.0, **options)


def test_a_training_that_was_resumed_has_the_same_bits(trainer, tmp_path):
    whole = language(trainer, folder="whole")
    whole.train()
    language(trainer, callbacks=[StopAt()]).train()
    second = language(trainer, model=still(seed=1), seed=1)
    second.train(resume_from_checkpoint=get_last_checkpoint(str(tmp_path / "out")))
    for left, right in zip(whole.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(left, right)
    assert second.record().commitment == whole.record().commitment
    assert {"exact_sums", "independence_tried"} <= set(whole.record().checked)


def test_dropout_in_functions_of_a_model_is_refused_before_any_noise(trainer):
    """No layer of this model draws; its attention does."""
    made = language(trainer, model=model_of(attention_dropout=0.2))
    with pytest.raises(UnsupportedError, match="drew random numbers by the place in the batch"):
        made.train()
    assert made.engine.run.step == 0


def test_texts_of_several_lengths_are_refused(trainer):
    data = sentences(20) + sentences(20, length=4)
    arguments = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 5}
    made = trainer(MECHANISM, still(), data, arguments=arguments, try_independence=False)
    with pytest.raises(InvalidInputError, match="of one shape for exact sums, so pad all texts to one length"):
        made.train()


def test_what_has_no_exact_sums_is_refused_in_one_sentence(trainer):
    with pytest.raises(UnsupportedError, match=r"'grad_sample_mode' argument must be 'hooks', except .* Got 'ghost'"):
        sums(trainer, grad_sample_mode="ghost")
    with pytest.raises(InvalidInputError, match="'exact' argument must be True or left out"):
        sums(trainer, exact=False)


def test_a_plan_can_say_it(trainer):
    data = {"num_examples": 40, "batch_size": 5, "steps": 6}
    tables = {"data": data, "sampler": {"kind": "poisson"}, "noise_multiplier": 2.0, "noise": {"exact": True}}
    made = sums(trainer, hs.Plan.parse(tables).mechanism())
    made.train()
    assert "exact_sums" in made.record().checked
