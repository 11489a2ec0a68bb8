"""What layers, noise and coins draw random numbers from, as a number to compare."""

import hashlib

import torch


def random_state(device: torch.device) -> int:
    """A hash of the state of torch's generator on the CPU, and of that on a CUDA device; 63 bits."""
    digest = hashlib.sha256(torch.get_rng_state().numpy().tobytes())
    if device.type == "cuda":
        digest.update(torch.cuda.get_rng_state(device).numpy().tobytes())
    return int.from_bytes(digest.digest()[:8], "big") >> 1


def generator_state(generator: torch.Generator | None, device: torch.device) -> int | None:
    """A hash of the state of a generator, or of torch's own for a device; 63 bits. None on devices but CPU and CUDA."""
    if generator is not None:
        state = generator.get_state()
    elif device.type == "cuda":
        state = torch.cuda.get_rng_state(device)
    elif device.type == "cpu":
        state = torch.get_rng_state()
    else:
        return None
    return int.from_bytes(hashlib.sha256(state.numpy().tobytes()).digest()[:8], "big") >> 1
