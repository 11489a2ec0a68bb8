"""The Trainer of transformers executes the mechanism: its batches, its noise, its divisor, and nothing else."""

import copy
import importlib
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.training import RunRecord

pytest.importorskip("opacus", reason="needs torch and opacus")
pytest.importorskip("transformers", reason="needs transformers")
pytest.importorskip("accelerate", reason="needs accelerate")
pytest.importorskip("peft", reason="needs peft")

import peft
import torch
from adapters import check_what_is_left
from huggingface_training import model_of, sentences
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    TrainerCallback,
    default_data_collator,
)
from transformers.trainer_utils import get_last_checkpoint

from hockeystick.training.huggingface.losses import losses_of, next_tokens

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")

DATA = sentences()
BANDED = hs.Mechanism(
    strategy=hs.BandedSquareRoot(bands=4), sampler=hs.Poisson(sampling_prob=0.05, steps=40), noise_multiplier=2.0
)
SIGMA = 2.0


def with_adapters(**options):
    """A frozen model with low-rank adapters that change what it says."""
    config = {"r": 2, "target_modules": ["q_proj", "v_proj"], "init_lora_weights": False, "lora_dropout": 0.1}
    return peft.get_peft_model(model_of(attention_dropout=0.0), peft.LoraConfig(**config | options))


def gpt2():
    """Its word embeddings are those of its last layer too, and its positions are the same for all examples."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 16, "n_positions": 8, "n_embd": 8, "n_layer": 1, "n_head": 2, "bos_token_id": 0}
    still = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return GPT2LMHeadModel(GPT2Config(**sizes, **still, eos_token_id=0))


def classifier():
    """BERT for three classes, with adapters."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = BertConfig(vocab_size=16, max_position_embeddings=8, num_labels=3, pad_token_id=0, **sizes, **still)
    adapters = peft.LoraConfig(r=2, target_modules=["query"], init_lora_weights=False, task_type="SEQ_CLS")
    return peft.get_peft_model(BertForSequenceClassification(config), adapters)


class Look(TrainerCallback):
    """Calls a function after every step of the optimizer, when ``p.grad`` still has what was used."""

    def __init__(self, look):
        self.look = look

    def on_optimizer_step(self, args, state, control, **unused):
        self.look()


class StopAt(TrainerCallback):
    """Saves and stops after some steps."""

    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **unused):
        if state.global_step == self.step:
            control.should_save = control.should_training_stop = True


def weights(made):
    return torch.cat([p.detach().reshape(-1) for p in made.model.parameters()])


def trained(model):
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def test_the_certificate_is_that_of_the_mechanism(trainer):
    plan = hs.Mechanism(sampler=BANDED.sampler, noise_multiplier=SIGMA)
    made = trainer(plan, arguments={"per_device_train_batch_size": 3})
    made.train()
    expected = hs.certify(plan, delta=1e-5)
    assert made.certificate(1e-5) == expected
    record = made.record(expected)
    assert (record.steps, record.resumed, record.violations, record.certificate) == (40, 0, (), expected)
    assert {"noise_is_added", "public_normaliser", "batches_in_step"} <= set(record.checked)


@pytest.mark.parametrize(
    ("largest", "mode"), [(3, "hooks"), (1, "hooks"), (1, "ghost")], ids=["whole", "accumulated", "ghost"]
)
def test_the_noise_in_the_gradients_is_white_under_the_matrix(largest, mode, trainer):
    """No entry of the Gram matrix of C times the noise is 8 standard deviations from that of white noise.

    The probability of a false failure is below 1e-6 for 403 columns, as in ``test_engine.py``, and falls with more.
    """
    rows: list[torch.Tensor] = []

    def look():
        rows.append(torch.cat([p.grad.reshape(-1) for p in made.optimizer.params]))

    made = trainer(
        BANDED,
        arguments={"per_device_train_batch_size": largest, "gradient_accumulation_steps": 3 // largest},
        example_losses=lambda outputs, labels: 0.0 * outputs.logits.sum(dim=(1, 2)),
        callbacks=[Look(look)],
        grad_sample_mode=mode,
    )
    made.train()
    noise = np.array([row.to(torch.float64).numpy() for row in rows]) * made.engine.run.expected_batch_size
    white = BANDED.matrix.dot(noise / made.args.max_grad_norm) / SIGMA
    assert white.shape[0] == 40
    assert white.shape[1] > 403
    same = np.eye(40)
    deviations = (white @ white.T - white.shape[1] * same) / np.sqrt(white.shape[1] * (1.0 + same))
    assert np.abs(deviations).max() < 8.0
    assert made.record().violations == ()


MODELS = {
    "whole": (lambda: model_of(attention_dropout=0.0), DATA),
    "adapters": (lambda: with_adapters(lora_dropout=0.0), DATA),
    "saved modules": (lambda: with_adapters(lora_dropout=0.0, modules_to_save=["lm_head"]), DATA),
    "classes": (classifier, [one | {"labels": at % 3} for at, one in enumerate(DATA)]),
    "tied": (gpt2, [one | {"position_ids": torch.arange(6)} for one in DATA]),
}


def gradients_alone(model, data):
    """Of each example by itself, by autograd, over all trained parameters, and their norms."""
    parameters = list(trained(model).values())
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    found = []
    for example in data:
        batch = default_data_collator([example])
        labels = {"labels": batch.pop("labels")}
        found.append(torch.autograd.grad(losses_of(base)(model(**batch), labels).sum(), parameters))
    return found, [float(torch.sqrt(sum((part**2).sum() for part in parts))) for parts in found]


@pytest.mark.parametrize(
    ("kind", "mode"), [*((kind, "hooks") for kind in MODELS), *((kind, "ghost") for kind in MODELS if kind != "tied")]
)
def test_the_sum_is_of_gradients_that_each_depend_on_one_example(kind, mode, trainer):
    """Half of them are clipped. Labels have several lengths, and parts of the batch two sizes."""
    model, data = MODELS[kind][0](), MODELS[kind][1]
    alone, norms = gradients_alone(copy.deepcopy(model).train(), data[:5])
    norm = sorted(norms)[2]
    parts_of_two = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 3}
    arguments = parts_of_two | {"max_steps": 1, "max_grad_norm": norm}
    made = trainer(model=model, data=data, arguments=arguments, grad_sample_mode=mode)
    made.get_train_dataloader()
    names = {id(parameter): name for name, parameter in trained(model).items()}
    sums: dict[str, torch.Tensor] = {}
    add_noise = made.optimizer.add_noise

    def look():
        sums.update({names[id(p)]: p.summed_grad.clone().view_as(p) for p in made.optimizer.params})
        add_noise()

    made.optimizer.add_noise = look
    made.train()
    assert set(sums) == set(names.values())
    for at, name in enumerate(names.values()):
        expected = sum(parts[at] * min(1.0, norm / own) for parts, own in zip(alone, norms, strict=True))
        np.testing.assert_allclose(sums[name], expected, rtol=1e-4, atol=1e-5 * norm)


def test_the_losses_are_those_of_transformers():
    """For one example, where the mean over a batch is no other."""
    model = model_of(attention_dropout=0.0).eval()
    for example in DATA[:4]:
        batch = {name: entry[None] for name, entry in example.items()}
        outputs = model(**batch)
        ours = next_tokens(outputs, batch)
        np.testing.assert_allclose(ours.detach(), [outputs.loss.detach()], rtol=1e-6)


def test_frozen_weights_stay_and_no_norm_or_token_count_is_looked_at(trainer):
    made = trainer(model=with_adapters(), eval_dataset=DATA[:7], arguments={"logging_strategy": "steps"})
    before = {name: parameter.clone() for name, parameter in made.model.named_parameters()}
    made.train()
    changed = {n for n, parameter in made.model.named_parameters() if not torch.equal(parameter, before[n])}
    assert changed == set(trained(made.model))
    assert not any("grad_norm" in line for line in made.state.log_history)
    assert made.evaluate()["eval_loss"] > 0.0
    assert made.callback_handler.train_dataloader is made.get_train_dataloader() is made.engine._loader


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_a_training_that_was_stopped_within_an_epoch_continues_as_if_it_had_not_been(mode, trainer, tmp_path):
    """Bit-identical weights, with dropout and Adam."""
    trainer = partial(trainer, grad_sample_mode=mode)
    plan = hs.Mechanism(strategy=BANDED.strategy, sampler=hs.BallsInBins(bins=12, epochs=2), noise_multiplier=1.0)
    whole = trainer(plan, folder="whole")
    whole.train()
    first = trainer(plan, callbacks=[StopAt(17)])
    first.train()
    assert first.engine.run.step == 17
    path = get_last_checkpoint(str(tmp_path / "out"))
    second = trainer(plan, model_of(seed=1), seed=1)
    second.train(resume_from_checkpoint=path)
    assert torch.equal(weights(second), weights(whole))
    record = second.record()
    assert (record.steps, record.resumed, record.commitment) == (24, 1, whole.record().commitment)
    assert second.state.epoch == whole.state.epoch == 2.0
    second.train(resume_from_checkpoint=path)  # again from there, in the same process
    assert torch.equal(weights(second), weights(whole))


def test_a_checkpoint_that_was_not_finished_is_none(trainer, tmp_path, monkeypatch):
    made = trainer(arguments={"save_strategy": "steps", "save_steps": 3, "max_steps": 6})
    monkeypatch.setattr(made, "_save_rng_state", lambda folder: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        made.train()
    assert get_last_checkpoint(str(tmp_path / "out")) is None
    again = trainer(arguments={"save_strategy": "steps", "save_steps": 3, "max_steps": 6, "save_total_limit": 1})
    again.train()
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["checkpoint-6"]
    assert (tmp_path / "out" / "checkpoint-6").stat().st_mode & 0o077 == 0


def test_the_best_checkpoint_is_found_where_it_was_moved(trainer, tmp_path):
    made = trainer(
        eval_dataset=DATA[:7],
        arguments={
            "save_strategy": "steps",
            "save_steps": 3,
            "eval_strategy": "steps",
            "eval_steps": 3,
            "load_best_model_at_end": True,
        },
    )
    made.train()
    best = made.state.best_model_checkpoint
    assert Path(best).parent == tmp_path / "out"
    assert Path(best).is_dir()
    assert made.engine.run.step == 12


@pytest.mark.parametrize("options", [[], ["--bf16", "--gradient-checkpointing"]], ids=["float32", "bf16"])
def test_the_example_leaves_what_it_promises(options, tmp_path, monkeypatch, capfd):
    """With less text than it has by itself."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "examples" / "training")
    example = importlib.import_module("lora_text")
    plan = tmp_path / "plan.toml"
    text = example.PLAN.read_text()
    for whole, less in (("num_examples = 3500", "num_examples = 1750"), ("epochs = 5", "epochs = 1")):
        assert whole in text
        text = text.replace(whole, less)
    plan.write_text(text)
    monkeypatch.setattr(example, "PLAN", plan)
    given = ["lora_text.py", "--public-steps", "2", "--out", str(tmp_path / "lora"), *options]
    monkeypatch.setattr(sys, "argv", given)
    example.main()
    assert "verified" in "".join(capfd.readouterr())
    record = RunRecord.load(tmp_path / "lora" / "lora.run.json")
    assert record.certificate == hs.Certificate.load(tmp_path / "lora" / "lora.certificate.json")
    assert (record.steps, record.violations) == (10, ())
    assert (tmp_path / "lora" / "adapters" / "adapter_model.safetensors").is_file()


@pytest.mark.parametrize("also", [[], ["lm_head"]], ids=["adapters", "and a whole layer"])
@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_adapters_that_are_saved_loaded_and_merged_are_those_that_were_trained(also, mode, trainer, tmp_path):
    made = trainer(model=with_adapters(lora_dropout=0.0, modules_to_save=also or None), grad_sample_mode=mode)
    tokens = torch.stack([sentence["input_ids"] for sentence in DATA])
    check_what_is_left(made, lambda: model_of(attention_dropout=0.0), tmp_path, tokens)
