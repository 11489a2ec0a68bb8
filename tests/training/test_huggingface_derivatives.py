"""The loss of an example has no derivative by what another one is: exactly none, in all kinds of models."""

import pytest

from hockeystick.errors import UnsupportedError

pytest.importorskip("opacus", reason="needs torch and opacus")
pytest.importorskip("transformers", reason="needs transformers")
pytest.importorskip("accelerate", reason="needs accelerate")
pytest.importorskip("peft", reason="needs peft")

import peft
import torch
import transformers
from huggingface_training import model_of
from torch.nn import functional

from hockeystick.training.huggingface.losses import classes, next_tokens, tokens

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")

EXAMPLES = 60
SIZES = {"vocab_size": 16, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 8}
ENDS = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}


def adapted(model, *targets, **options):
    """With adapters that already change the outputs."""
    return peft.get_peft_model(
        model, peft.LoraConfig(r=2, target_modules=list(targets), init_lora_weights=False, **options)
    )


def llama(attention="sdpa"):
    config = transformers.LlamaConfig(**SIZES, **ENDS, attn_implementation=attention)
    return adapted(transformers.LlamaForCausalLM(config), "q_proj", "v_proj")


def gpt2(attention="sdpa"):
    sizes = {"vocab_size": 16, "n_positions": 16, "n_embd": 8, "n_layer": 2, "n_head": 2}
    config = transformers.GPT2Config(**sizes, **ENDS, attn_implementation=attention)
    return adapted(transformers.GPT2LMHeadModel(config), "c_attn", fan_in_fan_out=True)


def bert(attention="sdpa"):
    config = transformers.BertConfig(**SIZES, **ENDS, num_labels=3, attn_implementation=attention)
    return adapted(transformers.BertForSequenceClassification(config), "query", "value")


def t5(attention="sdpa"):
    del attention  # the position bias needs its own
    sizes = {"vocab_size": 16, "d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 2, "num_heads": 2}
    config = transformers.T5Config(**sizes, eos_token_id=0, pad_token_id=0, decoder_start_token_id=0)
    return adapted(transformers.T5ForConditionalGeneration(config), "q", "v")


def xlnet(attention="sdpa"):
    """Its layers have tokens in the first dimension and examples in the second; the one that is trained does not."""
    del attention  # there is one
    config = transformers.XLNetConfig(vocab_size=16, d_model=8, n_layer=2, n_head=2, d_inner=8, **ENDS, num_labels=3)
    model = transformers.XLNetForSequenceClassification(config).requires_grad_(False)
    model.logits_proj.requires_grad_(True)
    return model


FAMILIES = {
    "llama": (llama, next_tokens, "lm_head"),
    "gpt2": (gpt2, next_tokens, "lm_head"),
    "bert": (bert, classes, "bert.pooler.dense"),
    "t5": (t5, tokens, "encoder.final_layer_norm"),
    "xlnet": (xlnet, classes, "transformer.layer.1.ff.layer_2"),
}
"""A model of which a part is trained, its losses, and one of its frozen layers."""


def examples_of(family, shortest=3):
    """Sentences of three lengths, but for XLNet, which classifies by the last token, be it padding."""
    generator = torch.Generator().manual_seed(0)
    data = []
    for at in range(EXAMPLES):
        length = shortest + (at % 3 if family != "xlnet" else 0)
        words = torch.randint(1, 16, (length,), generator=generator)
        example = {"input_ids": words, "attention_mask": torch.ones_like(words)}
        if family == "t5":
            example["decoder_input_ids"] = words.flip(0)
        data.append(example | {"labels": torch.tensor(at % 3) if FAMILIES[family][1] is classes else words})
    return data


def padded(examples):
    """Of one length, by zeros without labels or attention."""
    batch = {}
    for name in examples[0]:
        parts, fill = [example[name] for example in examples], -100 if name == "labels" else 0
        if parts[0].dim():
            batch[name] = torch.nn.utils.rnn.pad_sequence(parts, batch_first=True, padding_value=fill)
        else:
            batch[name] = torch.stack(parts)
    return batch


@pytest.fixture
def family_trainer(trainer):
    """Makes a Trainer of a family, and tries two examples when its loader is asked for."""

    def make(family, mode, *, change=None, attention="sdpa", shortest=3, arguments=None):
        torch.manual_seed(0)
        model, losses, layer = FAMILIES[family]
        made = model(attention)
        if change is not None:
            base = made.get_base_model() if isinstance(made, peft.PeftModel) else made
            base.get_submodule(layer).register_forward_hook(change)
        return trainer(
            model=made,
            data=examples_of(family, shortest),
            data_collator=padded,
            example_losses=losses,
            grad_sample_mode=mode,
            arguments={"max_steps": 2} | (arguments or {}),
        )

    return make


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
@pytest.mark.parametrize("family", FAMILIES)
def test_models_that_do_not_mix_are_trained(family, mode, family_trainer):
    """Padding, masks, positions and an encoder beside the decoder are no dependence."""
    made = family_trainer(family, mode)
    made.train()
    assert made.engine.run.step == 2


@pytest.mark.parametrize(
    ("attention", "arguments"),
    [("eager", {}), ("sdpa", {"bf16": True}), ("sdpa", {"gradient_checkpointing": True})],
    ids=["eager", "bf16", "checkpointing"],
)
@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "xlnet"])
def test_zero_is_exact_in_any_precision_and_with_layers_that_run_again(family, attention, arguments, family_trainer):
    family_trainer(family, "hooks", attention=attention, arguments=arguments).get_train_dataloader()


def slightly(layer, inputs, output):
    """A layer's outputs, with a trace of the batch's mean."""
    return output + 1e-12 * output.mean()


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_trace_of_the_batch_in_a_layer_is_seen_and_the_layer_is_named(family, mode, family_trainer):
    """A dependence below float32's precision, in values and in gradients."""
    layer = FAMILIES[family][2].replace(".", r"\.")
    with pytest.raises(UnsupportedError, match=rf"derivative of a loss.*first layer that mixes them is '\S*{layer}'"):
        family_trainer(family, mode, change=slightly).get_train_dataloader()


@pytest.mark.parametrize("arguments", [{"bf16": True}, {"gradient_checkpointing": True}], ids=["bf16", "checkpointing"])
def test_a_trace_is_seen_in_16_bits_and_through_layers_that_run_again(arguments, family_trainer):
    with pytest.raises(UnsupportedError, match=r"first layer that mixes them is '\S*lm_head'"):
        family_trainer("llama", "hooks", change=slightly, arguments=arguments).get_train_dataloader()


def test_position_biases_of_as_many_tokens_as_examples_are_not_taken_for_examples(family_trainer):
    """T5 embeds the distances of tokens: a square of two by two, of which both rows act on both examples."""
    examples = [example for example in examples_of("t5", shortest=2) if len(example["input_ids"]) == 2]
    made = family_trainer("t5", "hooks")
    made.train_dataset = (examples * 3)[:EXAMPLES]
    made.get_train_dataloader()


def smoothed_over_the_batch(outputs, labels):
    """Losses beside a mean over all tokens of the batch."""
    smooth = -functional.log_softmax(outputs.logits[:, :-1], dim=-1).mean()
    return 0.9 * next_tokens(outputs, labels) + 0.1 * smooth


def against_the_others(outputs, labels):
    """Every example's last logits are told from those of the others in its batch."""
    last = outputs.logits[:, -1]
    return functional.cross_entropy(last @ last.mT, torch.arange(len(last)), reduction="none")


def against_those_before(outputs, labels):
    """The last logits of an example are held against those of the examples before, so that one of two is alone."""
    last = outputs.logits[:, -1]
    return next_tokens(outputs, labels) + 1e-6 * (last @ last.mT).tril(-1).sum(dim=1)


def behind_the_loss(outputs, labels):
    """The values of the losses are their own; their gradients reach the other example."""
    own = next_tokens(outputs, labels)
    return own + 1e-6 * (own.mean() - own.mean().detach())


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
@pytest.mark.parametrize(
    ("losses", "weights"),
    [
        (smoothed_over_the_batch, 0.001),
        (smoothed_over_the_batch, 0.02),
        (smoothed_over_the_batch, 1.0),
        (against_the_others, 0.02),
        (against_the_others, 1.0),
        (against_those_before, 0.02),
        (behind_the_loss, 0.02),
    ],
)
def test_losses_that_look_at_the_batch_are_refused_at_any_scale(losses, weights, mode, trainer):
    """Nearly uniform logits, and saturated ones, where the other example's part is too small for a comparison."""
    made = trainer(model=model_of(initializer_range=weights), example_losses=losses, grad_sample_mode=mode)
    with pytest.raises(UnsupportedError, match="no layer mixes them, so the loss does"):
        made.train()
    assert made.engine.run.step == 0


def test_a_softmax_that_is_saturated_to_zero_is_seen_with_small_outputs(trainer):
    """Logits so far apart that the derivative by the other example is zero in float32."""
    model = model_of(initializer_range=1.0)
    with torch.no_grad():
        model.lm_head.weight *= 30.0
    with pytest.raises(UnsupportedError, match="no layer mixes them, so the loss does"):
        trainer(model=model, example_losses=against_the_others).train()


class Numbers(torch.nn.Module):
    """A linear model of numbers instead of tokens, which may subtract their mean over the batch."""

    def __init__(self, centred):
        super().__init__()
        self.layer, self.centred = torch.nn.Linear(4, 3), centred

    def forward(self, numbers, labels=None):
        if self.centred:
            numbers = numbers - 1e-9 * numbers.mean(dim=0)
        return transformers.modeling_outputs.SequenceClassifierOutput(logits=self.layer(numbers))


def test_inputs_that_are_numbers_are_differentiated_by(trainer):
    generator = torch.Generator().manual_seed(0)
    data = [{"numbers": torch.randn(4, generator=generator), "labels": torch.tensor(at % 3)} for at in range(EXAMPLES)]
    options = {"data": data, "example_losses": classes}
    trainer(model=Numbers(False), **options).get_train_dataloader()
    with pytest.raises(UnsupportedError, match="first layer that mixes them is 'layer' of type Linear"):
        trainer(model=Numbers(True), **options).get_train_dataloader()
