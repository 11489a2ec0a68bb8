#!/bin/bash
# Expected: ghost clipping adds no more than the clipping norm for an example, also where frozen layers are in bfloat16,
# as they often are below an adapter.
# Happens: it computes norms in a first backward pass and sums clipped gradients in a second one, whose losses have the
# factors. Frozen layers in 16 bits round the second pass by themselves, so an example adds up to .9 percent more.
# Who is hurt: whoever trains the first layers, or adapters, below frozen layers in bfloat16 with ghost clipping: the
# sensitivity is above the one that the noise is for, and so is epsilon. With grad_sample_mode="hooks" it is not.
# Version: opacus 1.6.0, torch 2.13.0, CPU build. Source: opacus/utils/fast_gradient_clipping_utils.py,
# DPTensorFastGradientClipping.backward.
set -euo pipefail
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
python3 -m venv "$room/venv"
"$room/venv/bin/pip" install --quiet --disable-pip-version-check numpy==2.4.6 torch==2.13.0 opacus==1.6.0
OMP_NUM_THREADS=1 "$room/venv/bin/python" -W ignore - <<'PYTHON'
import opacus
import torch
from opacus import PrivacyEngine

DEPTH, WIDTH, CLIP = 16, 64, 1.0


class Network(torch.nn.Module):
    """A trained layer below frozen ones."""

    def __init__(self, dtype):
        super().__init__()
        self.first = torch.nn.Linear(WIDTH, WIDTH)
        layers = [part for _ in range(DEPTH) for part in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh())]
        self.frozen = torch.nn.Sequential(*layers).requires_grad_(False).to(dtype)

    def forward(self, x):
        return self.frozen(self.first(x).to(self.frozen[0].weight.dtype)).float()


def longest(dtype, mode):
    """The longest clipped gradient of one example, over ten networks without noise."""
    lengths = []
    for seed in range(10):
        torch.manual_seed(seed)
        model, x = Network(dtype), torch.randn(1, WIDTH)
        data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, torch.randint(WIDTH, (1,))), batch_size=1)
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        parts = PrivacyEngine().make_private(
            module=model, optimizer=torch.optim.SGD(trained, lr=0.0), data_loader=data,
            criterion=torch.nn.CrossEntropyLoss(reduction="mean"), noise_multiplier=0.0, max_grad_norm=CLIP,
            poisson_sampling=False, grad_sample_mode=mode,
        )
        model, optimizer = parts[:2]
        criterion = parts[2] if mode == "ghost" else torch.nn.CrossEntropyLoss()
        optimizer.zero_grad()
        criterion(1e6 * model(x), data.dataset.tensors[1]).backward()
        optimizer.step()
        lengths.append(float(torch.cat([parameter.grad.double().flatten() for parameter in trained]).norm()))
    return max(lengths)


narrow, wide, hooks = longest(torch.bfloat16, "ghost"), longest(torch.float32, "ghost"), longest(torch.bfloat16, "hooks")
print(f"opacus {opacus.__version__}, torch {torch.__version__}: the longest clipped gradient for a clipping norm of {CLIP:g} "
      f"is {narrow:.4f} through frozen layers in bfloat16, {wide:.6f} through layers in float32, {hooks:.6f} with hooks")
assert narrow > 1.001 and wide < 1.00001 and hooks < 1.00001
PYTHON
