"""What is left of adapters that were trained: saved, loaded on the model that they were trained on, and merged."""

import peft
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

FLOAT32 = 2.0**-23


def check_what_is_left(made, base, folder, tokens) -> None:
    """Train, and compare what is saved, loaded and merged with what was trained.

    Args:
        made: the Trainer, of a model without dropout.
        base: makes the model without adapters, with the weights that it had before training.
        tokens: what models are compared on, of shape (sentences, tokens).
    """
    before = _state(peft.get_peft_model_state_dict(made.model))
    made.train()
    trained = _state(peft.get_peft_model_state_dict(made.model))
    assert not any(torch.equal(before[name], trained[name]) for name in trained)
    made.save_model(folder / "adapters")
    assert_same(load_file(folder / "adapters" / "adapter_model.safetensors"), trained)

    loaded = peft.PeftModel.from_pretrained(base(), folder / "adapters")
    said = _said(made.model, tokens)
    assert torch.equal(_said(loaded, tokens), said)

    apart = {name: _parts(layer) for name, layer in _layers(loaded)}
    merged = loaded.merge_and_unload()
    weights = dict(merged.named_parameters())
    for name, (frozen, first, second, scale) in apart.items():
        # rank products of float32, their sum, the scale and the last sum, all rounded
        bound = FLOAT32 * (len(first) + 2) * (frozen.abs() + scale * second.abs() @ first.abs())
        change = weights[f"{name}.weight"].double() - (frozen + scale * second @ first)
        assert (change.abs() <= bound).all(), name
    assert_same(_state(made.model.merge_and_unload().state_dict()), _state(merged.state_dict()))

    merged.save_pretrained(folder / "merged")
    again = AutoModelForCausalLM.from_pretrained(folder / "merged")
    assert_same(_state(again.state_dict()), _state(merged.state_dict()))
    assert torch.equal(_said(again, tokens), _said(merged, tokens))


def assert_same(found, wanted) -> None:
    """The same names, and for each the same bits."""
    assert found.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert torch.equal(found[name], tensor), name


def _state(tensors):
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def _said(model, tokens):
    model.eval()
    with torch.no_grad():
        return model(input_ids=tokens).logits


def _layers(model):
    """The layers with adapters, by their names in the model without."""
    layers = peft.tuners.lora.LoraLayer
    return [(name, layer) for name, layer in model.base_model.model.named_modules() if isinstance(layer, layers)]


def _parts(layer):
    """The frozen weights, both factors and the scale of a layer, in float64."""
    factors = [layer.base_layer.weight, layer.lora_A["default"].weight, layer.lora_B["default"].weight]
    return *(factor.detach().double() for factor in factors), layer.scaling["default"]
