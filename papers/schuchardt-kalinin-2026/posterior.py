"""The posterior over the bins given the earlier outputs: bounded as in the paper (Figures 4, 6), simulated (Figure 5).

All of it is about the bin with the largest mean at a step, called the top bin. The other bins' average likelihood over
its own is ``e^L`` with the privacy loss L, and its posterior probability is ``1 / (1 + (b - 1) e^L)`` (Lemma 4.5).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np
from scipy.special import expit, logsumexp, ndtr, softmax, xlogy

from hockeystick.pairs.bin_mixture import BinMixture

Array = Any

TEMPERATURES = 10.0 ** np.array([-1.0, -0.5, 0.0, 0.5, 1.0])
"""Appendix F.4."""
SAME_PREFIX = 1e-9
"""Squared distance, relative to the largest squared norm, below which two prefixes are the same."""


@dataclass(frozen=True)
class Prefix:
    """What is known before a step.

    Attributes:
        step: n, counted from 1 as in the paper.
        gram: shape (bins, bins), inner products of the means' first n - 1 entries.
        top: the bin with the largest mean at step n.
    """

    step: int
    gram: Array
    top: int

    @property
    def squared_distances(self) -> Array:
        """Between the prefixes, shape (bins, bins)."""
        norms = self.gram.diagonal()
        return np.maximum(norms[:, None] + norms[None, :] - 2.0 * self.gram, 0.0)

    def others(self, keep_same: bool) -> Array:
        """The bins other than the top one, with or without those whose prefix is the same."""
        norm = self.gram[self.top, self.top]
        kept = self.squared_distances[self.top] > (-1.0 if keep_same else SAME_PREFIX * max(norm, 1.0))
        kept[self.top] = False
        return np.flatnonzero(kept)


def prefixes(pair: BinMixture, steps: Sequence[int]) -> Iterator[Prefix]:
    """The prefixes of the steps (increasing)."""
    means, done = pair.means(), 0
    gram = np.zeros((pair.bins, pair.bins))
    for step in steps:
        new = means[done : step - 1]
        gram = gram + new.T @ new
        done = step - 1
        yield Prefix(step, gram, int(np.argmax(means[step - 1])))


# --- the paper's bound ------------------------------------------------------------------------------------------------


def top_posterior(
    pair: BinMixture, steps: Sequence[int], options: str, failures: Sequence[float], *, keep_same: bool = True
) -> Array:
    """Bounds on the top bin's posterior probability under P, shape (failures, steps).

    Theorem D.3 with the best member of the variational families for every component of the mixture. Each bound holds
    with probability 1 - failure; whether many of them hold together is the business of the allocation.

    Args:
        options: which families of Appendix F to choose from, some of "1", "2" and "3".
        failures: probabilities beta.
        keep_same: False leaves out the bins with the top bin's own prefix, as Remark D.5 has it.
    """
    bounds = np.empty((len(failures), len(steps)))
    for column, prefix in enumerate(prefixes(pair, steps)):
        others = prefix.others(keep_same)
        losses = np.zeros(len(failures))
        if others.size:
            parameters = tail_parameters(prefix, others, pair.noise_multiplier, options)
            losses[:] = [smallest_loss(*parameters, failure) for failure in failures]
        bounds[:, column] = expit(-log(pair.bins - 1) - losses)
    return bounds


def tail_parameters(prefix: Prefix, others: Array, sigma: float, options: str) -> tuple[Array, Array]:
    """nu and xi of equations (34) and (35), shape (families, bins): for every family and component of the mixture."""
    gram, top, distances = prefix.gram, prefix.top, prefix.squared_distances
    weights = []
    if "1" in options:
        weights.append(np.full((1, 1, others.size), 1.0 / others.size))
    if "2" in options:
        weights.append(softmax(-distances[:, others] / TEMPERATURES[:, None, None], axis=-1))
    if "3" in options:
        weights.append(softmax(-distances[[top]][:, others] / TEMPERATURES[:, None, None], axis=-1))
    parameters = [parameters_of(psi, gram, top, others, sigma) for psi in weights]
    return np.concatenate([nu for nu, _ in parameters]), np.concatenate([xi for _, xi in parameters])


def parameters_of(psi: Array, gram: Array, top: int, others: Array, sigma: float) -> tuple[Array, Array]:
    """The same for weights of shape (families, bins or 1, others)."""
    divergence = np.sum(xlogy(psi, psi), axis=-1) + log(gram.shape[0] - 1)
    crossed = (psi.reshape(-1, others.size) @ gram[others]).reshape(*psi.shape[:2], -1)
    own = np.diagonal(crossed, axis1=1, axis2=2) if psi.shape[1] > 1 else crossed[:, 0]
    norms = psi @ gram[others, others]
    nu = (own - gram[top] + 0.5 * (gram[top, top] - norms)) / sigma**2 - divergence
    squared = gram[top, top] - 2.0 * crossed[..., top] + np.sum(crossed[..., others] * psi, axis=-1)
    return nu, np.broadcast_to(np.sqrt(np.maximum(squared, 1e-24)) / sigma, nu.shape)


def smallest_loss(centres: Array, widths: Array, failure: float) -> float:
    """A tau with ``(1/b) sum_k min_psi Phi((tau - nu) / xi) <= failure``, the largest up to bisection."""
    low, high = float((centres - 40.0 * widths).min()), float((centres + 40.0 * widths).max())
    for _ in range(60):
        middle = 0.5 * (low + high)
        if ndtr((middle - centres) / widths).min(axis=0).mean() <= failure:
            low = middle
        else:
            high = middle
    return low


# --- allocations of the failure probability (Appendix E) --------------------------------------------------------------


def allocations(pair: BinMixture, steps: Sequence[int], options: str, failure: float) -> dict[str, Array]:
    """The top bin's bound under each allocation of Appendix E, by the name of its CSV column.

    Only the union bound is a proof that all bounds hold together. The others take the largest of several bounds that
    hold one by one; the events of different steps concern different bins, so their union is far likelier than each.
    """
    bins, epochs = pair.bins, pair.epochs
    spread = np.array([1.0 / (epochs * bins), 1.0 / epochs, 1.0]) * failure / (bins - 1)
    union, epoch, overall = top_posterior(pair, steps, options, spread.tolist())
    of_step = (np.array(steps) - 1) // bins
    per_epoch = np.array([epoch[of_step == number].max() for number in of_step])
    return {
        "union_upper": union,
        "epoch_max_from_1": per_epoch,
        "epoch_max_from_2": np.where(of_step == 0, union, per_epoch),
        "max": np.full(len(steps), overall.max()),
    }


# --- simulation -------------------------------------------------------------------------------------------------------


def simulated_losses(pair: BinMixture, step: int, samples: int, rng: np.random.Generator) -> Array:
    """Samples of the privacy loss L before a step, from the whole mixture (the "remove" relation)."""
    (prefix,) = prefixes(pair, [step])
    values, vectors = np.linalg.eigh(prefix.gram)
    root = vectors * np.sqrt(np.maximum(values, 0.0)) / pair.noise_multiplier
    losses = []
    for size in [10_000] * (samples // 10_000) + [samples % 10_000]:
        true_bin = rng.integers(pair.bins, size=size)
        scores = rng.standard_normal((size, pair.bins)) @ root.T
        scores += (prefix.gram[true_bin] - 0.5 * prefix.gram.diagonal()) / pair.noise_multiplier**2
        scores -= scores[:, [prefix.top]]
        losses.append(logsumexp(np.delete(scores, prefix.top, axis=1), axis=1) - log(pair.bins - 1))
    return np.concatenate(losses)


def exceeded(pair: BinMixture, bounds: Array, samples: int, rng: np.random.Generator) -> int:
    """How many of ``samples`` runs under P have some step at which the top bin's posterior exceeds that step's bound.

    Args:
        bounds: shape (steps,).
    """
    means, precision = pair.means(), pair.noise_multiplier**-2
    tops = means.argmax(axis=1)
    true_bin = rng.integers(pair.bins, size=samples)
    likelihoods = np.ones((samples, pair.bins))
    failed = np.zeros(samples, dtype=bool)
    for row, top, bound in zip(means, tops, bounds, strict=True):
        if bound < 1.0:
            failed |= likelihoods[:, top] > bound * (1.0 + 1e-9) * likelihoods.sum(axis=1)
        output = row[true_bin] + pair.noise_multiplier * rng.standard_normal(samples)
        moved = np.flatnonzero(row)
        likelihoods[:, moved] *= np.exp((output[:, None] * row[moved] - 0.5 * row[moved] ** 2) * precision)
    return int(failed.sum())
