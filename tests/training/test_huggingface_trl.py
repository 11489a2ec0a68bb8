"""TRL's Trainers on a plan: sentences and pairs are trained to a certificate, and what mixes them is refused."""

import importlib
import os
import sys
from pathlib import Path

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.errors import InvalidInputError, UnsupportedError
from hockeystick.training import RunRecord

pytest.importorskip("opacus", reason="needs torch and opacus")
pytest.importorskip("trl", reason="needs trl")

import datasets
import torch
import trl
from adapters import check_what_is_left
from huggingface_training import FIXED
from peft import LoraConfig

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

FOLDER = Path(__file__).parents[2] / "examples" / "training"
CLASSES = {"sft": (trl.SFTTrainer, trl.SFTConfig), "dpo": (trl.DPOTrainer, trl.DPOConfig)}
TEXTS = [{"text": "abc def"[: 3 + at % 4] + " x"} for at in range(60)]
LONG = [{"prompt": "ab" * (at + 1), "completion": "c"} for at in range(60)]
PAIRS = [{"prompt": "ab", "chosen": "cd" + "e" * (at % 3), "rejected": "f" * (1 + at % 4)} for at in range(60)]


@pytest.fixture
def data_of(monkeypatch):
    """The module of the examples' data; nothing is sent or fetched."""
    monkeypatch.setitem(os.environ, "HF_HUB_OFFLINE", "1")
    monkeypatch.setitem(os.environ, "HF_HUB_DISABLE_TELEMETRY", "1")
    monkeypatch.setitem(os.environ, "CI", "1")
    monkeypatch.syspath_prepend(FOLDER)
    datasets.disable_progress_bars()
    return importlib.import_module("trl_data")


@pytest.fixture
def make(data_of, tmp_path):
    """Makes a private Trainer of TRL, with adapters."""

    def made(kind, examples=None, *, whole=False, model=None, config=None, **options):
        base, arguments = CLASSES[kind]
        adapters = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
        run = {"max_steps": 12, "per_device_train_batch_size": 5, "bf16": False, "logging_strategy": "no"}
        return hs.huggingface.private(base)(
            plan=FIXED,
            model=data_of.network() if model is None else model,
            args=arguments(str(tmp_path), **data_of.QUIET | run | (config or {})),
            train_dataset=datasets.Dataset.from_list(examples or (TEXTS if kind == "sft" else PAIRS)),
            processing_class=data_of.tokenizer(),
            peft_config=None if whole else adapters,
            rng=np.random.default_rng(0),
            **options,
        )

    return made


@pytest.mark.parametrize("kind", ["sft", "dpo"])
def test_the_examples_leave_what_they_promise(kind, data_of, tmp_path, monkeypatch, capfd):
    """In bfloat16 and with checkpointed layers, as TRL has it by itself."""
    example = importlib.import_module(f"{kind}_trl")
    monkeypatch.setattr(sys, "argv", [f"{kind}_trl.py", "--out", str(tmp_path)])
    example.main()
    said = "".join(capfd.readouterr())
    assert "verified" in said
    assert "adapter_model.safetensors" in said
    record = RunRecord.load(tmp_path / f"{kind}.run.json")
    assert record.certificate == hs.Certificate.load(tmp_path / f"{kind}.certificate.json")
    assert (record.steps, record.violations) == (20, ())
    assert {"independence_tried", "norms", "noise_is_added"} <= set(record.checked)


INDEPENDENT = ["sigmoid", "ipo", "bco_pair", "apo_zero", "sigmoid_norm"]


@pytest.mark.parametrize("loss", [*INDEPENDENT, "aot", "aot_unpaired", "sft"])
def test_losses_of_pairs_are_told_from_those_of_batches_without_their_names(loss, make):
    """Two of them sort over the batch, one is a mean over its tokens."""
    made = make("dpo", config={"loss_type": [loss]})
    if loss in INDEPENDENT:
        made.get_train_dataloader()
    else:
        with pytest.raises(UnsupportedError, match="must not depend on the examples beside it"):
            made.get_train_dataloader()


def test_reference_scores_that_are_computed_before_are_those_of_their_pair(make):
    made = make("dpo", config={"precompute_ref_log_probs": True})
    made.get_train_dataloader()
    assert "ref_chosen_logps" in made.train_dataset.column_names


@pytest.mark.parametrize(
    ("examples", "config", "error", "message"),
    [
        (None, {"packing": True, "max_length": 16}, InvalidInputError, "into one example"),
        (None, {"shuffle_dataset": True}, InvalidInputError, "into one example"),
        (LONG, {"max_length": 20}, InvalidInputError, "into one example"),
        (None, {"padding_free": True, "max_length": None}, InvalidInputError, "the examples in their first dimension"),
        (None, {"loss_type": "dft"}, UnsupportedError, "The loss of SFTTrainer for a single example is"),
    ],
    ids=["packing", "shuffling", "leaving out", "without padding", "another loss"],
)
def test_what_would_not_keep_sentences_apart_is_refused(examples, config, error, message, make):
    with pytest.raises(error, match=message):
        make("sft", examples, config=config).get_train_dataloader()


def test_all_weights_are_trained_by_sentences_and_not_by_pairs(make, data_of):
    """TRL takes the weights of the last layer of a model for pairs past the layer itself."""
    make("sft", whole=True).get_train_dataloader()
    with pytest.raises(InvalidInputError, match=r"'lm_head\.weight', would be updated without privacy"):
        make("dpo", whole=True, ref_model=data_of.network()).get_train_dataloader()


def test_a_training_that_was_stopped_continues_as_if_it_had_not_been(make, tmp_path):
    """With checkpoints in which TRL's files are."""
    weights = []
    for stops in (False, True):
        config = {"save_strategy": "steps", "save_steps": 6} | ({"max_steps": 6} if stops else {})
        made = make("sft", config=config | {"lr_scheduler_type": "constant"})
        made.train()
        if stops:
            made = make("sft", config={"lr_scheduler_type": "constant"})
            made.train(resume_from_checkpoint=str(tmp_path / "checkpoint-6"))
        weights.append([p.detach().clone() for p in made.model.parameters() if p.requires_grad])
    assert all(torch.equal(one, other) for one, other in zip(*weights, strict=True))


@pytest.mark.parametrize("kind", ["sft", "dpo"])
def test_adapters_that_are_saved_loaded_and_merged_are_those_that_were_trained(kind, make, data_of, tmp_path):
    """The model of the references, which DPO keeps beside the adapters, is in none of the files."""
    tokens = torch.arange(2, 38).reshape(6, 6)
    check_what_is_left(make(kind), data_of.network, tmp_path, tokens)
