"""The Trainer with a model of ``fully_shard``, in one process; two are in ``test_huggingface_processes.py``."""

from types import SimpleNamespace

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.errors import InvalidInputError, UnsupportedError

pytest.importorskip("opacus", reason="needs torch and opacus")
pytest.importorskip("transformers", reason="needs transformers")
pytest.importorskip("peft", reason="needs peft")

import shards_on_a_cpu
import torch
from huggingface_training import FIXED, QUIET, model_of, sentences, shared_out
from peft import LoraConfig, get_peft_model
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from hockeystick.training.huggingface.losses import next_tokens
from hockeystick.training.huggingface.shards import share_out

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"),
    shards_on_a_cpu.needed,
]


@pytest.fixture(scope="module", autouse=True)
def group():
    """Of this process alone."""
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.fixture
def sharded(trainer):
    """Makes a Trainer of a model of fully_shard."""

    def make(model=None, **options):
        model = model_of(attention_dropout=0.0) if model is None else model
        return trainer(model=shared_out(model), **{"grad_sample_mode": "ghost"} | options)

    return make


def adapters(model):
    torch.manual_seed(0)
    return get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj", "v_proj"]))


def weights(made):
    """All of them, flat."""
    whole = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in made.model.parameters()]
    return torch.cat([p.detach().reshape(-1) for p in whole]).numpy()


@pytest.mark.parametrize("size", [5, 2])
def test_one_process_trains_as_without_shards(size, sharded, trainer):
    """With batches in one part and in several, and up to roundings, as ``test_two_processes_are_one_run`` says."""
    arguments = {"per_device_train_batch_size": size, "gradient_accumulation_steps": -(-5 // size)}
    arguments |= {"optim": "sgd", "learning_rate": 0.5}
    made = sharded(arguments=arguments)
    plain = trainer(model=model_of(attention_dropout=0.0), grad_sample_mode="ghost", arguments=arguments)
    for one in (made, plain):
        one.train()
    assert np.allclose(weights(made), weights(plain), rtol=0, atol=1e-5)
    assert not np.allclose(weights(made), weights(sharded()), rtol=0, atol=0.1)
    assert made.record().violations == ()
    assert {"independence_tried", "noise_is_added", "clipping_norm"} <= set(made.record().checked)
    assert made.record().checked == plain.record().checked


EXACT = hs.Mechanism(
    strategy=hs.BandedSquareRoot(bands=3),
    sampler=hs.Poisson(sampling_prob=1 / 12, steps=12),
    noise_multiplier=2.0,
    exact=True,
)


@pytest.mark.parametrize("of", [adapters, lambda model: model], ids=["adapters", "all"])
@pytest.mark.parametrize("norm", [0.5, 1e3], ids=["clipped", "short"])
def test_whole_numbers_are_those_without_shards(of, norm, sharded, trainer):
    """Up to the last bits, with batches in one part and in several: 12 steps of the grid in each step at most.

    Opacus' hooks have gradients that flow together in a layer added up before those from elsewhere, which rounds them
    in another order.
    """
    arguments = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "max_grad_norm": norm}
    arguments |= {"optim": "sgd", "learning_rate": 0.5 / norm}
    options = {"plan": EXACT, "arguments": arguments, "invariance": 0.01}
    made = sharded(of(model_of(attention_dropout=0.0)), **options)
    plain = trainer(model=of(model_of(attention_dropout=0.0)), grad_sample_mode="hooks", **options)
    for one in (made, plain):
        one.train()
    assert np.allclose(weights(made), weights(plain), rtol=0, atol=12 * 0.5 * 12 / made.optimizer.steps / 5)
    assert not np.allclose(weights(made), weights(sharded(of(model_of()))), rtol=0, atol=0.1)
    assert made.record().violations == ()
    assert made.record().rho == 0.01
    assert {"exact_sums", "independence_tried", "norms"} <= set(made.record().checked)
    assert made.record().checked == plain.record().checked


@pytest.mark.parametrize("name", ["param_dtype", "reduce_dtype", "output_dtype"])
def test_whole_numbers_are_summed_past_the_types_of_shards(name, trainer):
    """The trial compares with gradients that went through them."""
    policy = MixedPrecisionPolicy(**{name: torch.bfloat16})
    model = fully_shard(model_of(attention_dropout=0.0), mesh=init_device_mesh("cpu", (1,)), mp_policy=policy)
    arguments = {"per_device_train_batch_size": 32, "max_steps": 2}
    made = trainer(model=model, plan=EXACT, grad_sample_mode="ghost", arguments=arguments)
    made.train()
    assert {"exact_sums", "independence_tried"} <= set(made.record().checked)


@pytest.mark.parametrize("plan", [FIXED, EXACT], ids=["float32", "exact"])
@pytest.mark.parametrize("of", [adapters, lambda model: model], ids=["adapters", "all"])
def test_a_training_that_was_stopped_continues_as_if_it_had_not_been(of, plan, sharded, tmp_path):
    """With Adam; evaluation between steps leaves some weights whole in every process."""
    arguments = {"save_strategy": "steps", "save_steps": 6, "lr_scheduler_type": "constant", "learning_rate": 0.1}
    arguments |= {"eval_strategy": "steps", "eval_steps": 3}
    if plan.exact:
        arguments |= {"per_device_train_batch_size": 32, "gradient_accumulation_steps": 1}
    ends = []
    for stop in (12, 6, None):
        made = sharded(
            of(model_of(attention_dropout=0.0)),
            plan=plan,
            arguments=arguments | {"max_steps": stop or 12},
            eval_dataset=sentences(16),
            folder="whole" if stop == 12 else "stopped",
        )
        made.train(resume_from_checkpoint=not stop)
        ends.append(weights(made))
    assert np.array_equal(ends[0], ends[2])
    assert not np.array_equal(ends[0], ends[1])
    assert (tmp_path / "stopped" / "checkpoint-6").stat().st_mode & 0o777 == 0o700
    secret = [entry for entry in made.artefacts().entries if "optimizer_shard_0.pt" in entry.name]
    assert {(str(entry.cover), entry.reason) for entry in secret} == {
        ("not covered", "holds the state of the run, from which its noise follows")
    }


def test_checkpoints_without_the_shard_of_a_process_or_of_others_are_refused(sharded, trainer, tmp_path):
    arguments = {"save_strategy": "steps", "save_steps": 6, "max_steps": 6}
    trainer(model=model_of(attention_dropout=0.0), grad_sample_mode="ghost", arguments=arguments).train()
    with pytest.raises(InvalidInputError, match=r"must have the shard of process 0, 'optimizer_shard_0\.pt'"):
        sharded().train(resume_from_checkpoint=True)
    sharded(arguments=arguments, folder="other").train()
    with pytest.raises(InvalidInputError, match="must be of this model, shared out in the same way"):
        sharded(model_of(hidden_size=16)).train(resume_from_checkpoint=str(tmp_path / "other" / "checkpoint-6"))


def beside(outputs, labels):
    """Each loss has a part of the mean of all."""
    own = next_tokens(outputs, labels)
    return own - 0.1 * own.mean()


def counted(outputs, labels):
    """The gradient counts the tokens of the batch, the value of the loss does not."""
    own, tokens = next_tokens(outputs, labels), (labels["labels"][:, 1:] != -100).sum(dim=1)
    divided = own * tokens / tokens.sum() * len(tokens)
    return own.detach() + divided - divided.detach()


def turned(outputs, labels):
    """The gradient points the other way beside another example, and has its norm."""
    own = next_tokens(outputs, labels)
    return own if len(own) == 1 else 2.0 * own.detach() - own


@pytest.mark.parametrize(
    ("losses", "message"),
    [
        (beside, "the derivative of a loss by the embeddings or inputs of another example"),
        (counted, "a gradient changes by .* of its norm beside another example"),
        (turned, "a gradient changes by .* of its norm beside another example"),
    ],
)
@pytest.mark.parametrize("plan", [FIXED, EXACT], ids=["float32", "exact"])
def test_examples_that_depend_on_each_other_are_refused(losses, message, plan, sharded):
    """Also where gradients are shorter than what is rounded off in the grid steps of the run."""
    with pytest.raises(UnsupportedError, match=message):
        sharded(plan=plan, example_losses=losses, arguments={"max_grad_norm": 1e5}).train()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"grad_sample_mode": "hooks"}, r"must be 'ghost' for a model of fully_shard, .* Got 'hooks'"),
        (
            {"grad_sample_mode": "hooks", "exact": True, "arguments": {"per_device_train_batch_size": 32}},
            r"must be 'ghost' for a model of fully_shard, .* Got 'hooks'",
        ),
        (
            {"arguments": {"activation_checkpointing": True}},
            "'activation_checkpointing' training argument must be False",
        ),
        (
            {
                "arguments": {"load_best_model_at_end": True, "save_strategy": "best", "eval_strategy": "steps"},
                "eval_dataset": sentences(16),
            },
            "'load_best_model_at_end' training argument must be False",
        ),
    ],
    ids=["hooks", "exact", "checkpointing", "best"],
)
def test_what_a_model_of_shards_cannot_have_is_refused(options, message, sharded):
    with pytest.raises(UnsupportedError, match=message):
        sharded(**options).train()


@pytest.mark.parametrize("again", [True, False])
def test_the_layers_that_arguments_name_are_shared_out_and_then_the_rest(again):
    def shared(**config):
        plugin = {"reshard_after_forward": again}
        arguments = {"fsdp_config": config, "fsdp_plugin_args": plugin, "device": torch.device("cpu"), "world_size": 1}
        made = share_out(model_of(), SimpleNamespace(**arguments))
        assert share_out(made, None) is made
        return [name for name, part in made.named_modules() if isinstance(part, FSDPModule)]

    assert shared() == ["", "model.layers.0"]
    assert shared(transformer_layer_cls_to_wrap=["LlamaMLP"]) == ["", "model.layers.0.mlp"]
    with pytest.raises(InvalidInputError, match=r"classes of .*Got \['Another'\] for .* 'LlamaForCausalLM'"):
        shared(transformer_layer_cls_to_wrap=["Another"])


def test_pairs_are_refused_in_one_sentence(tmp_path):
    """TRL copies adapters to its reference, which it cannot do with shards."""
    trl = pytest.importorskip("trl", reason="needs trl")
    import trl_ranks

    given = trl.DPOConfig(str(tmp_path), max_steps=12, per_device_train_batch_size=5, bf16=False, **QUIET)
    with pytest.raises(UnsupportedError, match="DPOTrainer cannot be made of a model of fully_shard; give"):
        hs.huggingface.private(trl.DPOTrainer)(
            plan=FIXED,
            model=shared_out(adapters(model_of(attention_dropout=0.0))),
            args=given,
            train_dataset=trl_ranks.datasets.Dataset.from_list(trl_ranks.PAIRS),
            processing_class=trl_ranks.trl_data.tokenizer(),
            grad_sample_mode="ghost",
        )


def layers_alone(model):
    for layer in model.model.layers:
        fully_shard(layer, mesh=init_device_mesh("cpu", (1,)))
    return model


@pytest.mark.parametrize("of", [layers_alone, lambda model: adapters(shared_out(model))], ids=["layers", "adapters"])
def test_models_of_which_a_part_is_in_shards_are_refused(of, trainer):
    with pytest.raises(
        UnsupportedError, match=r"adapters first \(with get_peft_model\), and then call fully_shard on all"
    ):
        trainer(model=of(model_of()), grad_sample_mode="ghost").train()


def test_weights_of_two_layers_and_sums_in_16_bits_are_refused(sharded, trainer):
    with pytest.raises(UnsupportedError, match="takes norms layer by layer: untie them"):
        sharded(model_of(tie_word_embeddings=True, attention_dropout=0.0)).train()
    policy = MixedPrecisionPolicy(reduce_dtype=torch.bfloat16)
    model = fully_shard(model_of(), mesh=init_device_mesh("cpu", (1,)), mp_policy=policy)
    with pytest.raises(UnsupportedError, match=r"added up in torch\.bfloat16"):
        trainer(model=model, grad_sample_mode="ghost", plan=FIXED).train()
