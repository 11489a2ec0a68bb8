"""What layers draw random numbers from, as a number to compare."""

import hashlib

import torch


def random_state(device: torch.device) -> int:
    """A hash of the state of torch's generator on the CPU, and of that on a CUDA device; 63 bits."""
    digest = hashlib.sha256(torch.get_rng_state().numpy().tobytes())
    if device.type == "cuda":
        digest.update(torch.cuda.get_rng_state(device).numpy().tobytes())
    return int.from_bytes(digest.digest()[:8], "big") >> 1
