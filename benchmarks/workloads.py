"""What is measured. Names are stable: they are what ``--only`` matches."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One question to every contestant that can answer it.

    Attributes:
        kind: "allocation", "poisson", "poisson calibration", "calibration" or "sampling"; decides who competes.
        asks: "epsilon", "delta", "noise multiplier" or "batches".
        noise_multiplier, steps: sigma and t, or T; steps are those of one epoch.
        participations, epochs: k of t, and fresh epochs; for calibration the bins are replayed in every epoch.
        rate: of Poisson sampling.
        delta, epsilon: what is given.
        scheme, num_examples: for sampling.
    """

    name: str
    kind: str
    asks: str = "epsilon"
    noise_multiplier: float = 0.0
    steps: int = 1
    participations: int = 1
    epochs: int = 1
    rate: float = 0.0
    delta: float = 0.0
    epsilon: float = 0.0
    scheme: str = ""
    num_examples: int = 0


def allocation(name: str, sigma: float, steps: int, delta: float, participations: int = 1, epochs: int = 1) -> Workload:
    """epsilon of random allocation."""
    return Workload(
        name=name,
        kind="allocation",
        noise_multiplier=sigma,
        steps=steps,
        participations=participations,
        epochs=epochs,
        delta=delta,
    )


def poisson(sigma: float, steps: int, delta: float, rate: float | None = None) -> Workload:
    """epsilon of Poisson sampling; one participation on average where no rate is given."""
    name = f"poisson sigma={sigma:g} T={steps} delta={delta:g}" + ("" if rate is None else f" q={rate:g}")
    rate = 1.0 / steps if rate is None else rate
    return Workload(name=name, kind="poisson", noise_multiplier=sigma, steps=steps, rate=rate, delta=delta)


def sampling(scheme: str) -> Workload:
    """1,000 batches of 1,000 from 1,000,000 examples."""
    name = f"sampler {scheme}, 1000 batches of 1000 of 1000000"
    return Workload(
        name=name, kind="sampling", asks="batches", scheme=scheme, steps=1000, rate=1e-3, num_examples=1_000_000
    )


_ALL = [
    Workload(
        name="quick: poisson sigma=1 T=10 q=0.1 delta=1e-5",
        kind="poisson",
        noise_multiplier=1.0,
        steps=10,
        rate=0.1,
        delta=1e-5,
    ),
    allocation("allocation sigma=1 t=1000 delta=1e-6", 1.0, 1000, 1e-6),
    allocation("allocation sigma=0.5 t=10000 delta=1e-6", 0.5, 10_000, 1e-6),
    allocation("allocation sigma=2 t=100 delta=1e-5", 2.0, 100, 1e-5),
    allocation("allocation sigma=1 t=1000000 delta=1e-10", 1.0, 1_000_000, 1e-10),
    allocation("allocation sigma=1 10 of 1000 delta=1e-6", 1.0, 1000, 1e-6, participations=10),
    allocation("allocation sigma=1 t=1000 x 10 epochs delta=1e-6", 1.0, 1000, 1e-6, epochs=10),
    Workload(
        name="allocation sigma=0.3 t=1000 epsilon=10",
        kind="allocation",
        asks="delta",
        noise_multiplier=0.3,
        steps=1000,
        epsilon=10.0,
    ),
    poisson(0.5, 10_000, 1e-6),
    poisson(1.3, 10_000, 1e-6),
    poisson(0.4, 100_000, 1e-6),
    poisson(1.0, 2000, 1e-5, rate=0.01),
    allocation("allocation sigma=1 t=100 x 20 epochs delta=1e-5", 1.0, 100, 1e-5, epochs=20),
    Workload(
        name="calibrate poisson q=0.01 T=2000 epsilon=2 delta=1e-5",
        kind="poisson calibration",
        asks="noise multiplier",
        steps=2000,
        rate=0.01,
        delta=1e-5,
        epsilon=2.0,
    ),
    Workload(
        name="poisson sigma=1 T=1000 epsilon=1",
        kind="poisson",
        asks="delta",
        noise_multiplier=1.0,
        steps=1000,
        rate=1e-3,
        epsilon=1.0,
    ),
    Workload(
        name="calibrate balls-in-bins 50000/500 x 20 epochs epsilon=2 delta=1e-5",
        kind="calibration",
        asks="noise multiplier",
        steps=100,
        epochs=20,
        delta=1e-5,
        epsilon=2.0,
    ),
    sampling("deterministic"),
    sampling("shuffle"),
    sampling("poisson"),
    sampling("balls_in_bins"),
    sampling("random_allocation"),
]

WORKLOADS: dict[str, Workload] = {workload.name: workload for workload in _ALL}
