"""Audit one run on scikit-learn's digits with canaries, and set what it finds beside the certificate.

    python examples/training/digits_canaries.py
    python examples/training/digits_canaries.py --black-box

500 canaries join the 1,500 digits, and a secret fair coin includes each of them. The white box plants gradients, and
looks for them in the noisy sums that the optimizer releases. The black box plants images of noise with random labels,
and looks at the model's loss on them before and after the run. Needs ``pip install '.[examples]'``; takes
about a minute.

The certificate is about 2,000 examples, because all canaries count. The model is for the audit alone: canaries harm it.
"""

import argparse
from pathlib import Path

import torch
from digits_opacus import accuracy, digits, network
from torch.utils.data import DataLoader, TensorDataset

import hockeystick as hs

PLAN = Path(__file__).parent / "digits_canaries.toml"
CLIP_NORM = 0.5
LEVEL = 0.05


def with_canaries(data: TensorDataset, canaries) -> TensorDataset:
    """The digits, then images of noise with random labels; with each example its weight and its index."""
    generator = torch.Generator().manual_seed(1)
    x, y = data.tensors
    noise = torch.rand(canaries.count, *x.shape[1:], generator=generator)
    labels = torch.randint(10, (canaries.count,), generator=generator)
    weights = torch.tensor(canaries.weights, dtype=torch.float32)
    return TensorDataset(torch.cat([x, noise]), torch.cat([y, labels]), weights, torch.arange(canaries.total))


def losses(model: torch.nn.Module, data: TensorDataset, canaries) -> torch.Tensor:
    """The loss of each canary."""
    x, y = (part[canaries.num_examples :] for part in data.tensors[:2])
    with torch.no_grad():
        return torch.nn.functional.cross_entropy(model(x), y, reduction="none")


def train(engine, data: TensorDataset, canaries, plan: hs.Plan, *, plant: bool) -> tuple[torch.nn.Module, torch.Tensor]:
    """Opacus' training loop with canaries: the model, and by how much the loss of each canary fell."""
    model = network()
    before = losses(model, data, canaries)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=optimizer,
        data_loader=DataLoader(data, batch_size=round(plan.data.batch_size)),
        max_grad_norm=CLIP_NORM,
    )
    for _ in range(round(plan.data.epochs)):
        for x, y, weight, index in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y, reduction="none")
            (weight * loss).mean().backward()
            if plant:
                canaries.plant(optimizer.params, index)
            optimizer.step()
            if plant:
                released = [parameter.grad for parameter in optimizer.params]
                canaries.observe(released, normaliser=optimizer.expected_batch_size)
    return model, before - losses(model, data, canaries)


def main() -> None:
    """Calibrate, train once, audit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plan", type=Path, default=PLAN, help="a plan whose number of examples counts the canaries")
    parser.add_argument("--black-box", action="store_true", help="look at losses, not at gradients")
    parser.add_argument("--seed", type=int, help="of the coins; by default a fresh one")
    parser.add_argument("--out", type=Path, help="write the verdict here")
    arguments = parser.parse_args()
    training, test = digits()
    plan = hs.Plan.load(arguments.plan)
    mechanism = hs.calibrate(plan.mechanism(), epsilon=plan.target.epsilon, delta=plan.target.delta)
    canaries = hs.audit.canaries(
        plan.data.num_examples - len(training),
        num_examples=len(training),
        size=sum(parameter.numel() for parameter in network().parameters()),
        clip_norm=CLIP_NORM,
        seed=arguments.seed,
    )
    torch.manual_seed(0)  # the weights to begin with; batches and noise are seeded by the operating system
    engine = hs.torch.PrivacyEngine(mechanism)
    data = with_canaries(training, canaries)
    model, gains = train(engine, data, canaries, plan, plant=not arguments.black_box)
    certificate = engine.certificate(plan.target.delta)
    scores = gains.numpy() if arguments.black_box else None
    verdict = canaries.verdict(certificate, scores=scores, level=LEVEL)
    print(verdict)
    print(f"accuracy {accuracy(model, test):.3f}")
    if arguments.out is not None:
        arguments.out.write_text(verdict.model_dump_json(indent=2) + "\n")
    raise SystemExit(1 if verdict.refuted else 0)


if __name__ == "__main__":
    main()
