"""The optimal statistic of an attacker: the log-likelihood ratio of a dominating pair at an output that was observed.

The recursions are those of Monte Carlo. A type of pair is registered by one line in ``RATIOS``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import comb, lgamma, log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hockeystick.compiling import kernel
from hockeystick.errors import UnsupportedError
from hockeystick.mechanism import Mechanism
from hockeystick.monte_carlo.bins import kernels as bins
from hockeystick.monte_carlo.families import FAMILIES, family_of
from hockeystick.monte_carlo.renewal import kernels as renewal
from hockeystick.monte_carlo.renewal.densities import recursion
from hockeystick.monte_carlo.subsets import kernels as subsets
from hockeystick.monte_carlo.subsets.participations import Participations, participations, runs_recursion
from hockeystick.pairs.averaged_steps import AveragedSteps
from hockeystick.pairs.base import DominatingPair
from hockeystick.pairs.bin_mixture import BinMixture
from hockeystick.pairs.independent_steps import IndependentSteps
from hockeystick.pairs.known_batches import KnownBatches
from hockeystick.pairs.mixture_steps import MixtureSteps
from hockeystick.pairs.occupancy import PlacedCopies
from hockeystick.pairs.registry import dominating_pair
from hockeystick.pairs.renewal_mixture import RenewalMixture
from hockeystick.pairs.secret_groups import SecretGroups
from hockeystick.pairs.subset_mixture import SubsetMixture
from hockeystick.pairs.truncated_steps import TruncatedSteps
from hockeystick.pairs.users import Users
from hockeystick.samplers import BMinSep, Deterministic, Poisson
from hockeystick.types import Direction, Side

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
LANES, MOST_EXAMPLES = 200, 4000
LogRatios = Callable[[Array], Array]
"""From outputs in units of sigma, shape (rows of C, outputs), to ``log P/Q`` of each, shape (outputs,)."""


@dataclass(frozen=True)
class Ratio:
    """The likelihood ratio of a pair, and whose participation it is about.

    Attributes:
        log_ratios: of outputs ``C s / sigma``, where s has in the row of every step the number of the examples of one
            user that take part, plus the noise that was added.
        stride: the pair is about the examples 0, stride, 2 stride, ...
        batches, batch: of fixed batches, into which consecutive examples are cut, their number and the one that it is
            about.
        users: how many consecutive ones of these examples belong to one user.
        size: the number of examples in the claim of a sampler that cuts batches, whose examples are not independent;
            None where they are.
    """

    log_ratios: LogRatios
    stride: int = 1
    batches: int = 1
    batch: int = 0
    users: int = 1
    size: int | None = None

    def fitting(self, examples: int | None) -> int:
        """A number of examples that the sampler takes, at least this many; by default about ``LANES`` right users.

        Of a sampler that cuts batches, the number that it is about.
        """
        if self.size is not None:
            return self.size
        apart = self.stride * self.users
        wanted = min(LANES * apart * self.batches, MOST_EXAMPLES) if examples is None else examples
        return max(-(-wanted // self.batches), apart) * self.batches

    def who(self, num_examples: int) -> Indices:
        """The examples that the pair is about, shape (users, examples of one user).

        At most so many that several runs are made: of batches that are cut, every run is one bet.
        """
        size, most = num_examples // self.batches, MOST_EXAMPLES if self.size is None else LANES
        right = np.arange(self.batch * size, (self.batch + 1) * size, self.stride)[: most * self.users]
        return right[: right.size // self.users * self.users].reshape(-1, self.users)


def ratio_of(mechanism: Mechanism) -> Ratio:
    """The likelihood ratio of the mechanism's dominating pair, and where it cuts batches of the pair without cuts.

    Raises: UnsupportedError, naming the pair, where there is none at hand.
    """
    pair = dominating_pair(mechanism)
    sampler = mechanism.sampler
    if isinstance(sampler, Poisson | BMinSep) and sampler.truncated_batch_size is not None:
        return replace(ratio_of(_uncut(mechanism, pair)), size=sampler.num_examples)
    make = RATIOS.get(type(pair))
    why: str | None = None
    if make is None:
        why = "no likelihood ratio is available for it"
    elif isinstance(pair, Users) and (pair.replaced or type(pair.copies) not in OF_USERS):
        why = "no likelihood ratio is available for several examples at once"
    elif mechanism.matrix.rows != mechanism.matrix.steps:
        why = "its strategy releases more rows than steps"
    elif isinstance(pair, SubsetMixture) and not runs_recursion(pair):
        why = "the columns of too many opportunities overlap for its likelihood ratio"
    elif isinstance(pair, RenewalMixture) and not pair.banded:
        why = "its columns reach beyond the separation, where the likelihood ratio is not known exactly"
    elif type(pair) in FAMILIES and not isinstance(pair, AveragedSteps):
        why = family_of(pair).refusal(pair, Side.LOWER)
    if make is None or why is not None:
        raise _refused(pair, why or "")
    return make(mechanism, pair)


def _refused(pair: DominatingPair, why: str) -> UnsupportedError:
    return UnsupportedError(
        f"The pair {_named(pair)} of this mechanism cannot be audited: {why}; audit the parts 'sampler' and 'noise' "
        "alone."
    )


def _named(pair: DominatingPair) -> str:
    if isinstance(pair, Users):
        return f"{type(pair).__name__} of {type(pair.copies or pair.single).__name__}"
    return type(pair).__name__


def _uncut(mechanism: Mechanism, pair: DominatingPair) -> Mechanism:
    """The mechanism without a largest batch. Its statistic tells the outputs apart, and need not be the best one.

    Of independent Poisson steps it is the best: the rate is that of an example that is drawn and kept, where nobody
    else has a gradient.
    """
    sampler = mechanism.sampler
    changes: dict[str, Any] = {"truncated_batch_size": None, "num_examples": None}
    single = pair.single if isinstance(pair, Users) else pair
    if isinstance(single, TruncatedSteps):
        changes["sampling_prob"] = float(single.crowding.attained.probabilities[1])
    return mechanism.model_copy(update={"sampler": sampler.model_copy(update=changes)})


def _independent(mechanism: Mechanism, pair: IndependentSteps) -> Ratio:
    """A product over the steps in which the example has a turn."""
    if isinstance(mechanism.sampler, Deterministic):
        return _known(mechanism, pair)
    stride = int(getattr(mechanism.sampler, "groups", 1))
    return Ratio(lambda y: _log_thinned(y[::stride], pair).sum(axis=0), stride=stride)


def _log_thinned(y: Array, pair: Any) -> Array:
    """``log(1 - q + q e^l)`` for the log-ratio l of each Gaussian step."""
    loss = y / pair.noise_multiplier - 0.5 / pair.noise_multiplier**2
    if pair.sampling_prob == 1.0:
        return np.asarray(loss)
    return np.asarray(np.logaddexp(np.log1p(-pair.sampling_prob), log(pair.sampling_prob) + loss))


def _known(mechanism: Mechanism, pair: DominatingPair) -> Ratio:
    """One Gaussian: the mean of the worst of the fixed batches."""
    sampler = mechanism.sampler
    if not isinstance(sampler, Deterministic) or sampler.remainder is not None:
        raise _refused(pair, "its batches differ in size")
    worst = int(np.argmax(mechanism.matrix.bin_norms(sampler.bins)))
    mean = mechanism.matrix.bin_means(sampler.bins)[:, worst] / mechanism.sigma
    return Ratio(lambda y: mean @ y - 0.5 * float(mean @ mean), batches=sampler.bins, batch=worst)


def _averaged(mechanism: Mechanism, pair: AveragedSteps) -> Ratio:
    """The mean over all sets of k bins, by the recursion of elementary symmetric polynomials, in every epoch."""
    sigma, k = pair.visit_noise, pair.participations
    constant = log(comb(pair.bins, k))

    def log_ratios(y: Array) -> Array:
        visits = y.reshape(pair.epochs, pair.replays, pair.bins, -1).sum(axis=1) / pair.replays**0.5
        logs = np.zeros(y.shape[1])
        for epoch in visits:
            polynomials = np.full((k + 1, y.shape[1]), -np.inf)
            polynomials[0] = 0.0
            for loss in epoch / sigma - 0.5 / sigma**2:
                polynomials[1:] = np.logaddexp(polynomials[1:], polynomials[:-1] + loss)
            logs += polynomials[k] - constant
        return logs

    return Ratio(log_ratios)


def _binned(mechanism: Mechanism, pair: BinMixture) -> Ratio:
    """The mean over the bins."""
    means = np.ascontiguousarray(pair.means().T) / pair.noise_multiplier
    half = 0.5 * np.diagonal(pair.gram) / pair.noise_multiplier**2

    def log_ratios(y: Array) -> Array:
        logs = np.empty(y.shape[1])
        bins.log_mean_exp(np.ascontiguousarray(means @ y), np.ascontiguousarray(half), logs)
        return logs

    return Ratio(log_ratios)


def _subsets(mechanism: Mechanism, pair: SubsetMixture) -> Ratio:
    """The recursion over recent opportunities; of several groups the first is the worst."""
    law = participations(pair)
    return Ratio(lambda y: _log_ratios_of_subsets(np.ascontiguousarray(y.T), law), stride=pair.groups)


def _log_ratios_of_subsets(outputs: Array, law: Participations) -> Array:
    opportunities, rows, _ = law.scaled.shape
    padded = np.zeros((len(outputs), opportunities * rows))
    padded[:, : outputs.shape[1]] = outputs
    logs = np.empty(len(outputs))
    _each_of_subsets(law.scaled, law.fresh, law.prob, padded.reshape(-1, opportunities, rows), logs)
    return logs


@kernel
def _each_of_subsets(scaled: Array, fresh: NDArray[np.bool_], prob: float, outputs: NDArray[Any], logs: Array) -> None:
    for sample in range(logs.size):
        logs[sample] = subsets.log_ratio(scaled, fresh, prob, outputs[sample])


def _renewing(mechanism: Mechanism, pair: RenewalMixture) -> Ratio:
    """The backward recursion over the steps."""
    law = recursion(pair, Direction.REMOVE)

    def log_ratios(y: Array) -> Array:
        padded = np.zeros((y.shape[1], y.shape[0] + law.taps.shape[0]))
        padded[:, : y.shape[0]] = y.T
        logs = np.empty(y.shape[1])
        _each_of_renewals(law, padded, logs)
        return logs

    return Ratio(log_ratios)


@kernel
def _each_of_renewals(law: renewal.Recursion, outputs: Array, logs: Array) -> None:
    work = renewal.workspace(law)
    for sample in range(logs.size):
        logs[sample] = renewal.log_ratio(outputs[sample], law, work)


def _secret(mechanism: Mechanism, pair: SecretGroups) -> Ratio:
    """The mean over the groups of products over their steps."""

    def log_ratios(y: Array) -> Array:
        logs = _log_thinned(y, pair)
        groups = np.stack([logs[group :: pair.groups].sum(axis=0) for group in range(pair.groups)])
        log_mean: Array = np.logaddexp.reduce(groups, axis=0) - log(pair.groups)
        return log_mean

    return Ratio(log_ratios)


def _of_users(mechanism: Mechanism, pair: Users) -> Ratio:
    """All examples of a user with one gradient."""
    assert pair.copies is not None  # otherwise it was refused
    return replace(OF_USERS[type(pair.copies)](mechanism, pair.copies), users=mechanism.unit.examples)


def _mixed(mechanism: Mechanism, pair: MixtureSteps) -> Ratio:
    """A product over the steps in which the examples have a turn, each a mixture over how many of them take part."""
    stride, (step,) = int(getattr(mechanism.sampler, "groups", 1)), pair.steps
    counts = np.array(step.sensitivities)[:, None, None] / pair.noise_multiplier
    weights = np.log(step.probabilities)[:, None, None]

    def log_ratios(y: Array) -> Array:
        logs: Array = np.logaddexp.reduce(weights + counts * y[::stride] - 0.5 * counts**2, axis=0).sum(axis=0)
        return logs

    return Ratio(log_ratios, stride=stride)


def _together(mechanism: Mechanism, pair: KnownBatches) -> Ratio:
    """One Gaussian: all examples in the worst of the fixed batches."""
    single, k = _known(mechanism, pair), mechanism.unit.examples
    half = 0.5 * k * (k - 1.0) * (mechanism.matrix.bin_norms(single.batches)[single.batch] / mechanism.sigma) ** 2
    return replace(single, log_ratios=lambda y: k * single.log_ratios(y) - half)


def _placed(mechanism: Mechanism, pair: PlacedCopies) -> Ratio:
    """The mean over all ways to place the examples in bins: a product of generating functions, in every epoch."""
    sigma, k = pair.noise_multiplier, pair.examples
    if pair.sampling_prob < 1.0:
        raise _refused(
            dominating_pair(mechanism),
            "no likelihood ratio is available for several examples that are sampled in secret groups",
        )
    counts = np.arange(k + 1.0)[:, None, None]
    factorials = np.array([lgamma(count + 1.0) for count in range(k + 1)])[:, None, None]

    def log_ratios(y: Array) -> Array:
        visits = y.reshape(pair.epochs, pair.replays, pair.bins, -1).sum(axis=1)
        logs = np.zeros(y.shape[1])
        for epoch in visits:
            terms = counts * epoch / sigma - 0.5 * pair.replays * (counts / sigma) ** 2 - factorials
            placed = np.full((k + 1, y.shape[1]), -np.inf)  # by how many examples have a bin
            placed[0] = 0.0
            for row in np.moveaxis(terms, 1, 0):
                placed = np.stack(
                    [np.logaddexp.reduce(row[: many + 1] + placed[many::-1], axis=0) for many in range(k + 1)]
                )
            logs += placed[k] + lgamma(k + 1.0) - k * log(pair.bins)
        return logs

    return Ratio(log_ratios)


OF_USERS: Mapping[type[DominatingPair], Callable[[Mechanism, Any], Ratio]] = {
    KnownBatches: _together,
    MixtureSteps: _mixed,
    PlacedCopies: _placed,
}
"""The likelihood ratio of all examples of a user, for each type of pair of copies."""
RATIOS: Mapping[type[DominatingPair], Callable[[Mechanism, Any], Ratio]] = {
    AveragedSteps: _averaged,
    BinMixture: _binned,
    IndependentSteps: _independent,
    KnownBatches: _known,
    RenewalMixture: _renewing,
    SecretGroups: _secret,
    SubsetMixture: _subsets,
    Users: _of_users,
}
"""The likelihood ratio of each type of pair."""
