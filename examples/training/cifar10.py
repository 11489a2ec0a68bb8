"""Train on CIFAR-10 or CINIC-10, if you have them, with Opacus' loop.

    python examples/training/cifar10.py --data cifar-10-batches-bin --epsilon 8 --out cifar10

``--data`` names the folder; cifar_data.py says which formats it may have. ``--plan`` takes another plan, such as one
for CINIC-10, which has 90,000 images. Needs ``pip install '.[examples]'``. On two cores an epoch of CIFAR-10 takes
minutes: this is for larger machines.

A certificate is about one model. If you publish several models, or the plot, account for all of them together.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
from cifar_data import NoDataError, Pictures, load
from digits_opacus import accuracy_by_epsilon, add_arguments
from torch.utils.data import TensorDataset

import hockeystick as hs

PLAN = Path(__file__).parents[1] / "plans" / "cifar10-poisson.toml"


def network() -> torch.nn.Module:
    """Three pairs of a convolution and a pooling, with group norms, which keep examples apart; 120,000 parameters."""
    layers: list[torch.nn.Module] = []
    for before, after in ((3, 32), (32, 64), (64, 128)):
        layers += [torch.nn.Conv2d(before, after, 3, padding=1), torch.nn.GroupNorm(8, after), torch.nn.Tanh()]
        layers += [torch.nn.MaxPool2d(2)]
    return torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(128 * 4 * 4, 10))


def tensors(pictures: Pictures) -> TensorDataset:
    """Floats around 0."""
    points, labels = pictures
    return TensorDataset(torch.from_numpy(points.astype(np.float32) / 127.5 - 1.0), torch.from_numpy(labels))


def main() -> None:
    """Train once for each epsilon."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser, out="cifar10", epsilons=[8.0])
    parser.add_argument("--data", type=Path, required=True, help="folder of CIFAR-10 or CINIC-10")
    parser.add_argument("--plan", type=Path, default=PLAN)
    arguments = parser.parse_args()
    plan = hs.Plan.load(arguments.plan)
    try:
        training, test = (tensors(pictures) for pictures in load(arguments.data))
    except NoDataError as error:
        sys.exit(str(error))
    if len(training) != plan.data.num_examples:
        sys.exit(
            f"The plan {arguments.plan} says num_examples = {plan.data.num_examples}, and {arguments.data} has "
            f"{len(training)}; write a plan for them."
        )
    options = {"make_model": network, "learning_rate": 1.0, "max_grad_norm": 1.0}
    accuracy_by_epsilon(plan, training, test, epsilons=arguments.epsilon, out=arguments.out, **options)


if __name__ == "__main__":
    main()
