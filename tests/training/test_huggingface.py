"""The Trainer of transformers executes the mechanism: its batches, its noise, its divisor, and nothing else."""

import copy

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.errors import InvalidInputError, UnsupportedError

for needed in ("opacus", "transformers", "accelerate", "peft"):
    pytest.importorskip(needed, reason="needs torch, opacus, transformers, accelerate and peft")

import peft
import torch
import transformers
from transformers import TrainerCallback, TrainingArguments

from hockeystick.training.huggingface.arguments import REFUSALS
from hockeystick.training.huggingface.losses import losses_of

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"),
    pytest.mark.usefixtures("quiet"),
]

DATA = sentences()
FIXED = hs.Mechanism(sampler=hs.Deterministic(bins=12), noise_multiplier=2.0)
BANDED = hs.Mechanism(
    strategy=hs.BandedSquareRoot(bands=4), sampler=hs.Poisson(sampling_prob=0.05, steps=40), noise_multiplier=2.0
)
CLIP = 1.5
