"""The training of ``huggingface_training`` with the training argument ``fsdp``, that can be killed at any moment."""

from functools import partial

import huggingface_training
from huggingface_training import EVERY, STEPS

__all__ = ["EVERY", "STEPS", "train"]

train = partial(huggingface_training.train, shards=True)
