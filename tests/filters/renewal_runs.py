"""All participations of b-min-sep subsampling, one after the other."""

from collections.abc import Iterator


def runs(step: int, steps: int, gap: int, prob: float) -> Iterator[tuple[tuple[int, ...], float]]:
    """The steps from ``step`` on at which an example takes part, waiting ``gap`` steps after each, and their chance."""
    if step >= steps:
        yield (), 1.0
        return
    for taken, weight in runs(step + 1, steps, gap, prob):
        yield taken, weight * (1.0 - prob)
    for taken, weight in runs(step + gap, steps, gap, prob):
        yield (step, *taken), weight * prob
