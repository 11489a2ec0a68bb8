"""``python -m benchmarks.language_model_canaries``: audits of single runs of what ``language_model`` trains.

500 of its documents are canaries: a secret coin decides for each whether it has a gradient of the clipping norm in a
direction of its own, which is then looked for in the noisy sums that the run releases (``hockeystick.audit.canaries``).
Both samplers are calibrated to epsilon 8 with independent noise. The last run is wrong on purpose: it has a quarter of
the noise that its certificate is about, and the audit has to see that.
"""

import argparse
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

import hockeystick as hs
from benchmarks.language_model import CLIP_NORM, DELTA, MOMENTUM, SETTING, Setting, data_of, public_model, with_adapters

CANARIES, EPSILON, LEVEL = 500, 8.0, 0.05
RUNS = (("deterministic", 1.0), ("poisson", 1.0), ("deterministic", 0.25))
"""The sampler, and the share of the certified noise that the run adds."""


def audited(setting: Setting, model: Any, documents: Any, sampler: str, share: float, seed: int) -> Any:
    """The verdict on a run of the training loop that everybody writes, at a learning rate of 0.25."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    mechanism = setting.plan(sampler, EPSILON).mechanism()
    certificate = hs.calibrate_and_certify(mechanism, epsilon=EPSILON, delta=DELTA)
    noisy = certificate.mechanism
    engine = hs.torch.PrivacyEngine(noisy.with_noise(share * noisy.sigma), rng=np.random.default_rng(seed))
    adapted = with_adapters(model, seed)
    trained = [parameter for parameter in adapted.parameters() if parameter.requires_grad]
    canaries = hs.audit.canaries(
        CANARIES,
        num_examples=setting.documents - CANARIES,
        size=sum(parameter.numel() for parameter in trained),
        clip_norm=CLIP_NORM,
        seed=seed,
    )
    adapted, optimizer, loader = engine.make_private(
        module=adapted,
        optimizer=torch.optim.SGD(trained, lr=0.25, momentum=MOMENTUM),
        data_loader=DataLoader(TensorDataset(documents, torch.arange(len(documents))), batch_size=setting.batch_size),
        max_grad_norm=CLIP_NORM,
    )
    for _ in range(setting.epochs):
        for tokens, index in loader:
            optimizer.zero_grad()
            logits = adapted(input_ids=tokens).logits[:, :-1].transpose(1, 2)
            losses = torch.nn.functional.cross_entropy(logits, tokens[:, 1:], ignore_index=0, reduction="none")
            losses.mean(dim=1).mean().backward()
            canaries.plant(optimizer.params, index)
            optimizer.step()
            released = [parameter.grad for parameter in optimizer.params]
            canaries.observe(released, normaliser=optimizer.expected_batch_size)
    return canaries.verdict(certificate, level=LEVEL)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the verdicts; 1 if one is not what it should be."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.language_model_canaries",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, default=1, help="of the coins, the batches and the noise")
    options = parser.parse_args(arguments)
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    data = data_of(SETTING)
    model = public_model(SETTING, data.public)
    right = True
    for sampler, share in RUNS:
        verdict = audited(SETTING, model, data.training, sampler, share, options.seed)
        right &= verdict.refuted == (share < 1.0)
        print(f"{sampler}, {share:g} of the noise:\n{verdict}\n", flush=True)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
