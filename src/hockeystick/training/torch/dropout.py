"""Passes without dropout, for comparisons of what layers compute."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch.nn import functional

DROPOUTS = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
"""Functions of ``torch.nn.functional`` that give their input as it is, for as long as the examples are tried."""
ATTENTION = "scaled_dot_product_attention"


@contextmanager
def without_dropout() -> Iterator[None]:
    """Layers in training mode, but for dropout, also where they run again in the backward pass."""
    attention = getattr(functional, ATTENTION)

    def attend(query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, **named: Any) -> Any:
        del dropout_p
        return attention(query, key, value, attn_mask, **named)

    with ExitStack() as patches:
        for name in DROPOUTS:
            patches.enter_context(patch.object(functional, name, _same))
        patches.enter_context(patch.object(functional, ATTENTION, attend))
        yield


def _same(input: torch.Tensor, *args: Any, **named: Any) -> torch.Tensor:
    del args, named
    return input
