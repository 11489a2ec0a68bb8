"""What would make another mechanism of a training the Trainer refuses, in one sentence that says what to change."""

from types import SimpleNamespace

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.errors import InvalidInputError, UnsupportedError

pytest.importorskip("opacus", reason="needs torch and opacus")
pytest.importorskip("transformers", reason="needs transformers")
pytest.importorskip("accelerate", reason="needs accelerate")
pytest.importorskip("peft", reason="needs peft")

import peft
import torch
import transformers
from huggingface_training import FIXED, QUIET, model_of, sentences
from transformers.training_args import ParallelMode

from hockeystick.training.huggingface.arguments import LAUNCHED, REFUSALS, check_batch_size, checked_arguments
from hockeystick.training.huggingface.checkpoints import Checkpoints
from hockeystick.training.huggingface.private_names import CALLED, OVERRIDDEN, check_names
from hockeystick.training.huggingface.processes import shared

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")

BAD = {
    "deepspeed": {"zero_optimization": {}},
    "parallelism_config": object(),
    "fp16": True,
    "mixed_precision": "fp16",
    "torch_compile": True,
    "use_liger_kernel": True,
    "activation_checkpointing_kwargs": {"use_reentrant": True},
    "auto_find_batch_size": True,
    "dataloader_drop_last": True,
    "dataloader_in_order": False,
    "train_sampling_strategy": "group_by_length",
    "label_smoothing_factor": 0.1,
    "neftune_noise_alpha": 5.0,
    "push_to_hub": True,
    "optim": "galore_adamw_layerwise",
    "max_grad_norm": 0.0,
}


@pytest.fixture
def arguments(tmp_path):
    """Transformers' arguments, which cannot all be made with every value on every machine."""

    def make(**options):
        made = transformers.TrainingArguments(str(tmp_path), **QUIET)
        for name, value in options.items():
            setattr(made, name, value)
        return made

    return make


def test_all_refusals_are_known_here():
    assert set(BAD) == {one.name for one in REFUSALS}


@pytest.mark.parametrize("name", BAD)
def test_arguments_that_break_the_mechanism_are_refused(name, arguments, trainer):
    assert hasattr(arguments(), name), "transformers has this argument no more"
    with pytest.raises(InvalidInputError, match=f"The '{name}' training argument cannot be"):
        checked_arguments(arguments(**{name: BAD[name]}))
    assert checked_arguments(arguments()).gradient_accumulation_steps == 1


def test_a_clipping_norm_that_is_left_out_is_refused(arguments):
    with pytest.raises(InvalidInputError, match="The 'max_grad_norm' training argument cannot be None"):
        checked_arguments(arguments(max_grad_norm=None))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"version": 1}, "must have version = 2 in private training. Got 1 instead"),
        ({"cpu_offload": True}, "must have cpu_offload = False"),
        ({"activation_checkpointing": True}, "must have activation_checkpointing = False"),
        ({"cpu_ram_efficient_loading": True}, "must have cpu_ram_efficient_loading = False"),
        ({"auto_wrap_policy": "SIZE_BASED_WRAP"}, "must have auto_wrap_policy = 'TRANSFORMER_BASED_WRAP'"),
        ({"state_dict_type": "SHARDED_STATE_DICT"}, "must have state_dict_type = 'FULL_STATE_DICT'"),
        ({"xla": True}, "must have xla = False"),
        ({"reshard_after_forward": False}, "needs several processes; start them with torchrun"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_other_ways_to_share_a_model_out_than_fully_shard_are_refused(config, message, monkeypatch, tmp_path):
    monkeypatch.setenv("FSDP_CPU_RAM_EFFICIENT_LOADING", "false")  # transformers sets it
    given = transformers.TrainingArguments(str(tmp_path), fsdp=True, fsdp_config=config, **QUIET)
    with pytest.raises(InvalidInputError, match=message):
        checked_arguments(given)


@pytest.mark.parametrize("name", LAUNCHED)
def test_accelerate_is_not_told_to_share_a_model_out(name, arguments, monkeypatch):
    given = arguments()
    monkeypatch.setenv(name, "true")
    with pytest.raises(InvalidInputError, match=f"The {name} environment variable must be unset, .* with torchrun"):
        checked_arguments(given)


def test_several_devices_are_refused(arguments):
    made = arguments()
    made._n_gpu = 2
    with pytest.raises(InvalidInputError, match="at most one device per process; this process has 2"):
        checked_arguments(made)


def test_models_that_transformers_has_shared_out_are_refused():
    loaded = torch.nn.Linear(2, 2)
    loaded.is_distributed_loading_by_transformers = True
    with pytest.raises(UnsupportedError, match="must be whole in every process"):
        shared(loaded, SimpleNamespace(num_processes=1))


def test_processes_of_another_kind_are_refused(arguments, monkeypatch):
    monkeypatch.setattr(transformers.TrainingArguments, "world_size", 2)
    with pytest.raises(InvalidInputError, match=r"must be those of torch\.distributed.*Got 'not_parallel' instead"):
        checked_arguments(arguments())


def test_several_processes_have_one_place_for_checkpoints(arguments, monkeypatch):
    monkeypatch.setattr(transformers.TrainingArguments, "world_size", 2)
    monkeypatch.setattr(transformers.TrainingArguments, "parallel_mode", ParallelMode.DISTRIBUTED)
    with pytest.raises(InvalidInputError, match="'save_on_each_node' training argument cannot be True"):
        checked_arguments(arguments(save_on_each_node=True))
    check_batch_size(arguments(per_device_train_batch_size=2, gradient_accumulation_steps=3), 12)
    with pytest.raises(InvalidInputError, match=r"must be 3, .* is 2, on 2 processes\. Got 1 instead"):
        check_batch_size(arguments(per_device_train_batch_size=2), 12)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"per_device_train_batch_size": 2}, "'gradient_accumulation_steps' training argument must be 3"),
        ({"gradient_accumulation_steps": 2}, "'gradient_accumulation_steps' training argument must be 1"),
        ({"max_steps": 13}, "'max_steps' training argument must lead to the plan's 12 steps.*Got 13, 13 steps"),
        ({"max_steps": -1, "num_train_epochs": 2}, "'num_train_epochs' .* the plan's 12 steps.*Got 2, 24 steps"),
        ({"max_steps": -1, "num_train_epochs": 0.5}, "'num_train_epochs' .* the plan's 12 steps.*Got 0.5, 6 steps"),
    ],
)
def test_other_batches_and_steps_than_the_plan_s_are_refused(given, message, trainer):
    made = trainer(arguments=given)
    before = made.model.lm_head.weight.clone()
    with pytest.raises(InvalidInputError, match=message):
        made.train()
    assert torch.equal(made.model.lm_head.weight, before)
    assert made.engine._run is None


def test_objects_that_do_not_suit_are_refused(trainer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where a Trainer without arguments makes its folder
    with pytest.raises(InvalidInputError, match="'model_init' argument must be left out"):
        trainer(model_init=model_of)
    with pytest.raises(InvalidInputError, match="'compute_loss_func' argument must be left out"):
        trainer(compute_loss_func=lambda *given, **options: 0.0)
    with pytest.raises(InvalidInputError, match="must be a Plan or a Mechanism"):
        hs.huggingface.Trainer(plan=3, model=model_of())
    with pytest.raises(InvalidInputError, match="noise_multiplier"):
        trainer(plan=hs.Mechanism(sampler=FIXED.sampler)).train()
    with pytest.raises(UnsupportedError, match="no per-example loss for a model of type 'Linear'"):
        trainer(model=torch.nn.Linear(2, 2))
    with pytest.raises(InvalidInputError, match="must be a multiple of bins = 12"):
        trainer(data=sentences(61)).train()
    with pytest.raises(InvalidInputError, match="'train_dataset' argument has to be given"):
        hs.huggingface.Trainer(plan=FIXED, model=model_of()).train()
    with pytest.raises(UnsupportedError, match="A search trains several models"):
        trainer().hyperparameter_search()


def refused(made, message, error=InvalidInputError):
    with pytest.raises(error, match=message):
        made.train()
    assert made.engine._run is None or made.engine.run.step == 0


def test_losses_that_are_not_one_for_each_example_are_refused(trainer):
    refused(
        trainer(example_losses=lambda outputs, labels: outputs.logits.sum()),
        r"one loss for each example, 2 here\. Got shape \(\)",
    )
    refused(trainer(example_losses=lambda outputs, labels: 0.0), "Got type 'float'")
    refused(trainer(data=[{"input_ids": torch.tensor([1, 2])}] * 60), "must have labels, named labels")
    unlike = {"data_collator": lambda examples: {"input_ids": torch.zeros(1, 3), "labels": torch.zeros(2, 3)}}
    refused(trainer(**unlike), r"must give a row for each example\. Got 1 for 2")
    nameless = {"data_collator": lambda examples: torch.zeros(len(examples), 3)}
    refused(trainer(**nameless), "must give named tensors or lists with the examples in their first dimension")
    grow = "must give tensors or lists that grow with the number of examples"
    same = {"data_collator": lambda examples: {"input_ids": torch.zeros(1, 3), "labels": torch.zeros(1, 3)}}
    refused(trainer(try_independence=False, **same), grow)


def test_trained_parameters_of_16_bits_are_refused_and_frozen_ones_are_not(trainer):
    refused(trainer(model=model_of().to(torch.bfloat16)), "must be float32 or float64.*torch.bfloat16")
    base = model_of().to(torch.bfloat16)
    made = trainer(model=peft.get_peft_model(base, peft.LoraConfig(r=2, target_modules=["q_proj"])))
    made.train()
    assert made.engine.run.step == 12


def test_parameters_that_would_not_be_protected_are_refused(trainer):
    adapters = peft.LoraConfig(r=2, target_modules=["embed_tokens", "q_proj"])
    refused(trainer(model=peft.get_peft_model(model_of(), adapters)), "would be updated without privacy")
    part = model_of()
    some = torch.optim.SGD(part.lm_head.parameters(), lr=0.1)
    refused(trainer(model=part, optimizers=(some, None)), "must have every parameter of the module")
    refused(trainer(model=model_of().requires_grad_(False)), "'model' argument must have at least one parameter that")
    refused(
        trainer(model=peft.get_peft_model(model_of(), adapters), grad_sample_mode="ghost"),
        "would be updated without privacy",
    )


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            peft.LoraConfig(r=2, target_modules=["q_proj"], use_dora=True),
            "'.*lora_magnitude_vector.default' of type Dora",
        ),
        (peft.IA3Config(target_modules=["k_proj"], feedforward_modules=[]), "'.*ia3_l.default', would be updated"),
        (peft.VeraConfig(r=2, target_modules=["q_proj"]), "vera_lambda_.*, would be updated without privacy"),
    ],
    ids=["dora", "ia3", "vera"],
)
def test_adapters_without_per_sample_gradients_are_refused(config, message, trainer):
    refused(trainer(model=peft.get_peft_model(model_of(), config)), message, (InvalidInputError, UnsupportedError))


def test_prefix_tuning_trains(trainer):
    """The trial compares its gradients with those of single examples."""
    config = peft.PrefixTuningConfig(num_virtual_tokens=2, task_type="CAUSAL_LM")
    made = trainer(model=peft.get_peft_model(model_of(), config))
    made.train()
    assert made.engine.run.step == 12
    assert "independence_tried" in made.record().checked


class Stream(torch.utils.data.IterableDataset):
    """Examples without an end."""

    def __iter__(self):
        yield from sentences()


PLAN = hs.Plan.parse(
    {
        "data": {"num_examples": 60, "batch_size": 5, "epochs": 1},
        "sampler": {"kind": "poisson"},
        "noise_multiplier": 2.0,
        "target": {"delta": 1e-5},
    }
)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "'train_dataset' argument must have the plan's 60 examples. Got 0 instead"),
        (sentences(61), "'train_dataset' argument must have the plan's 60 examples. Got 61 instead"),
        (Stream(), "'train_dataset' argument must have a length and give examples by index"),
        (iter(sentences()), "'train_dataset' argument must have a length and give examples by index"),
        (
            torch.utils.data.TensorDataset(torch.zeros(60, 6, dtype=torch.long), torch.zeros(60, 6)),
            "must give mappings from the names of the model's inputs, or .* Got an example of type 'tuple'",
        ),
    ],
    ids=["empty", "size", "stream", "iterator", "tensors"],
)
def test_datasets_that_do_not_suit_are_refused(data, message, tmp_path):
    arguments = transformers.TrainingArguments(str(tmp_path), per_device_train_batch_size=5, **QUIET)
    with pytest.raises(InvalidInputError, match=message) as raised:
        hs.huggingface.Trainer(plan=PLAN, model=model_of(), args=arguments, train_dataset=data)
    assert str(raised.value).count(". ") <= 1


def test_a_dataset_without_examples_is_refused_by_plans_of_any_size(trainer):
    empty = torch.utils.data.TensorDataset(torch.zeros(0, 6))
    with pytest.raises(InvalidInputError, match="must have at least one example"):
        trainer(data=empty)


def test_tensors_are_fine_with_a_collator_that_names_them(trainer):
    data = torch.utils.data.TensorDataset(torch.stack([one["input_ids"] for one in sentences()]))

    def collate(examples):
        tokens = torch.stack([tokens for (tokens,) in examples])
        return {"input_ids": tokens, "labels": tokens}

    made = trainer(data=data, data_collator=collate)
    made.train()
    assert made.engine.run.step == 12


def test_other_gradient_modes_and_shared_weights_with_ghost_clipping_are_refused(trainer):
    with pytest.raises(InvalidInputError, match="'grad_sample_mode' argument must be 'hooks' or 'ghost'"):
        trainer(grad_sample_mode="ew")
    made = trainer(model=model_of(tie_word_embeddings=True), grad_sample_mode="ghost")
    with pytest.raises(
        UnsupportedError, match="no norms for weights that several layers share, such as tied embeddings"
    ):
        made.train()
    assert made.engine.run.step == 0


def test_positions_that_all_examples_share_are_refused(trainer):
    config = transformers.GPT2Config(vocab_size=16, n_positions=8, n_embd=8, n_layer=1, n_head=2)
    refused(
        trainer(model=transformers.GPT2LMHeadModel(config)),
        "'transformer.wpe.weight' has gradients of 1 examples, where .* of 2; .* position ids included",
    )


def test_a_second_training_is_refused(trainer):
    made = trainer()
    made.train()
    with pytest.raises(InvalidInputError, match="at step 12 already; continue it by train"):
        made.train()
    with pytest.raises(InvalidInputError, match="A search trains several models"):
        made.train(trial={})


def test_checkpoints_without_their_run_are_refused(trainer, tmp_path):
    saved = {"save_strategy": "steps", "save_steps": 6}
    trainer(arguments=saved).train()
    trainer(arguments=saved | {"save_only_model": True}, folder="weights").train()
    with pytest.raises(InvalidInputError, match="is of step 6 and has no run of that step"):
        trainer().train(resume_from_checkpoint=str(tmp_path / "weights" / "checkpoint-6"))
    other = hs.Mechanism(sampler=FIXED.sampler, noise_multiplier=3.0)
    with pytest.raises(InvalidInputError, match="another mechanism; resume with the same plan"):
        trainer(other).train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-6"))
    plain = transformers.Trainer(
        model=model_of(),
        args=transformers.TrainingArguments(str(tmp_path / "plain"), max_steps=1, **QUIET),
        train_dataset=sentences(),
    )
    plain.train()
    with pytest.raises(InvalidInputError, match="'hockeystick_run' entry of the optimizer's state is missing"):
        trainer().train(resume_from_checkpoint=str(tmp_path / "plain" / "checkpoint-1"))


def test_a_layer_that_all_examples_share_is_refused_with_clipping_by_layers(training):
    """There a sum over all examples would be clipped as if it were one."""

    class Shared(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.own = torch.nn.Linear(6, 3)
            self.shared = torch.nn.Linear(6, 3)

        def forward(self, x):
            return self.own(x) + self.shared(torch.ones(1, 6))

    model = Shared()
    made = training(
        hs.Mechanism(sampler=hs.Deterministic(bins=20), noise_multiplier=1.0),
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        clipping="per_layer",
        max_grad_norm=[0.5] * 4,
    )
    before = made.weights()
    with pytest.raises(InvalidInputError, match=r"'shared.weight' has gradients of 1 examples"):
        made.epoch()
    assert np.array_equal(made.weights(), before)


def test_the_batch_size_of_the_plan_needs_no_second_part():
    """Balls in bins draw 65.2 examples on average where the plan states 64."""
    given = SimpleNamespace(per_device_train_batch_size=64, gradient_accumulation_steps=1, world_size=1)
    check_batch_size(given, 1_500 / 23, 64)
    with pytest.raises(InvalidInputError, match="'gradient_accumulation_steps' training argument must be 2"):
        check_batch_size(given, 1_500 / 23)


def test_a_release_without_a_method_that_is_taken_over_is_refused():
    class Other:
        """A Trainer whose gradient norms are logged elsewhere."""

    for name in (*OVERRIDDEN, *CALLED):
        if name != "_get_grad_norm":
            setattr(Other, name, lambda self: None)
    with pytest.raises(UnsupportedError, match=r"needs the method '_get_grad_norm' of transformers\.Trainer"):
        check_names(Other)
    own = vars(hs.huggingface.Trainer) | vars(Checkpoints)
    assert set(OVERRIDDEN) <= set(own)
    private = {name for name in own if hasattr(transformers.Trainer, name)}
    assert {name for name in private if name.startswith("_") and not name.endswith("__")} <= set(OVERRIDDEN)
