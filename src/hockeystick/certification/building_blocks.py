"""Mixtures of Gaussians beyond one example in one step: group privacy, and releasing only the last iterate.

Every function returns the dominating pair of a situation; :func:`privacy` bounds any pair from both sides. The proofs
are in docs/theory/subsets/mixtures.md; the situations are those of choquette-choo-2024, Appendix F.5.

    pair = group_privacy_poisson(group_size=4, sampling_prob=0.01, steps=1000, noise_multiplier=1.0)
    privacy(pair, delta=1e-6)
"""

from math import sqrt

from hockeystick.bounds import Question
from hockeystick.calls import called
from hockeystick.certificate import Interval
from hockeystick.certification.schedule import best, planned, refuse_without_bound, run_accountants, settings_for
from hockeystick.deadline import Deadline
from hockeystick.errors import InvalidInputError, shortened
from hockeystick.laws.law import Array
from hockeystick.pairs.base import DominatingPair
from hockeystick.pairs.binomial_steps import binomial_step, step_of, unimodal
from hockeystick.pairs.mixture_steps import MixtureSteps
from hockeystick.spec import checked_count, real_number
from hockeystick.types import Side


@called("hs.privacy(pair, delta=1e-5)")
def privacy(
    pair: DominatingPair,
    *,
    delta: float | None = None,
    epsilon: float | None = None,
    budget: float | None = None,
    deadline: Deadline | None = None,
) -> Interval:
    """The epsilon of a pair at ``delta``, or its delta at ``epsilon``, by the best deterministic bounds of both sides.

    Args:
        budget: seconds: how much work to plan, and the deadline; None plans about a minute and sets no deadline.
        deadline: progress and deadline of the caller, in place of the budget's.

    Raises: InvalidInputError for what is no pair, and unless exactly one of delta and epsilon is given;
        BudgetExceededError when the deadline cuts off every upper bound; CannotCertifyError when none is finite.
    """
    if not isinstance(pair, DominatingPair):
        raise InvalidInputError(
            f"The 'pair' argument must be a dominating pair, such as hs.MixtureSteps(...). Got {shortened(pair)} "
            f"instead; hs.certify takes mechanisms."
        )
    question = Question(delta=delta, epsilon=epsilon)
    policy, deadline = planned(None, budget, deadline)
    settings = settings_for(question, pair, deadline, policy=policy)
    outcomes = run_accountants(pair, question, settings, policy=policy)
    upper, lower = best(outcomes, Side.UPPER), best(outcomes, Side.LOWER)
    if upper is None or upper.value is None:
        refuse_without_bound(outcomes)
    return Interval(upper=upper.value, lower=None if lower is None else lower.value)


@called("hs.group_privacy_poisson(group_size=2, sampling_prob=0.01, steps=100, noise_multiplier=1.0)")
def group_privacy_poisson(
    *, group_size: int, sampling_prob: float, steps: int, noise_multiplier: float
) -> MixtureSteps:
    """DP-SGD with Poisson batches against a group: zeroing out the gradients of ``group_size`` examples together.

    The number of them in a batch is Binomial(group_size, sampling_prob), and their summed gradients have at most this
    norm. Attained by equal gradients, so bounds on both sides of the pair are bounds on the mechanism. Holds for adding
    and removing the group too, as the batches of the others do not depend on it.

    Args:
        group_size: k >= 1.
        sampling_prob: of each example, in (0, 1].
        steps: number of batches.
        noise_multiplier: standard deviation of the noise in clipping norms.
    """
    step = binomial_step(checked_count("group_size", group_size), _probability(sampling_prob), 1.0, steps)
    return MixtureSteps(noise_multiplier=noise_multiplier, steps=(step,))


@called("hs.group_privacy_fixed(group_size=2, batch_size=500, num_examples=50_000, steps=100, noise_multiplier=1.0)")
def group_privacy_fixed(
    *,
    group_size: int,
    batch_size: int,
    num_examples: int,
    steps: int,
    noise_multiplier: float,
    displaced_norm: float = 1.0,
) -> MixtureSteps:
    """DP-SGD with batches of a fixed size, drawn without replacement, against adding or removing a group.

    One data set has ``num_examples`` examples, the group among them; the other lacks the group and draws batches of the
    same size from the rest. The number j of group members in a batch is hypergeometric. They take the places of j other
    examples, whose gradients are missing in turn, so the batch's sum moves by up to ``j (1 + displaced_norm)``.

    This is an upper bound for any gradients of the others at ``displaced_norm = 1``. With ``displaced_norm = 0`` it
    assumes that the places the group takes would have been empty (padding with zero gradients): only then the
    sensitivity is j itself. Zeroing out the group, with batches from all of ``num_examples``, is not covered: there the
    gradients of the others, whose number depends on j, tell something about j.

    Args:
        group_size: k >= 1.
        batch_size: examples in each batch, at most ``num_examples - group_size``.
        num_examples: size of the larger data set.
        displaced_norm: bound on the gradients of displaced examples, in clipping norms, from 0 to 1.
    """
    group_size = checked_count("group_size", group_size)
    batch_size = checked_count("batch_size", batch_size)
    num_examples = checked_count("num_examples", num_examples)
    if batch_size > num_examples - group_size:
        raise InvalidInputError(
            f"The 'batch_size' field must be at most num_examples - group_size = {num_examples - group_size}. "
            f"Got {batch_size!r} instead."
        )
    displaced_norm = real_number("displaced_norm", displaced_norm)
    if not 0.0 <= displaced_norm <= 1.0:
        raise InvalidInputError(f"The 'displaced_norm' field must be from 0 to 1. Got {displaced_norm!r} instead.")
    mean = group_size * batch_size / num_examples

    def ratio(j: Array) -> Array:
        left = num_examples - group_size - batch_size + 1.0 + j
        return (group_size - j) * (batch_size - j) / ((j + 1.0) * left)

    counts, weights, error = unimodal(mean, min(group_size, batch_size), ratio)
    step = step_of(counts, weights, error, 1.0 + displaced_norm, steps)
    return MixtureSteps(noise_multiplier=noise_multiplier, steps=(step,))


@called("hs.last_iterate(sampling_prob=0.01, steps=100, noise_multiplier=1.0)")
def last_iterate(*, sampling_prob: float, steps: int, noise_multiplier: float) -> MixtureSteps:
    """DP-SGD on linear losses with Poisson batches, of which only the last iterate is released.

    Gradients of linear losses do not depend on the iterate, so with a fixed learning rate the release is a sum: one
    Gaussian with ``steps`` times the variance and the sensitivity Binomial(steps, sampling_prob). Says nothing about
    losses that are not linear.

    Args:
        sampling_prob: of each example, in (0, 1].
        steps: number of batches.
        noise_multiplier: standard deviation of the noise of each step in clipping norms.
    """
    steps = checked_count("steps", steps)
    step = binomial_step(steps, _probability(sampling_prob), 1.0 / sqrt(steps), 1)
    return MixtureSteps(noise_multiplier=noise_multiplier, steps=(step,))


def _probability(value: float) -> float:
    probability = real_number("sampling_prob", value)
    if not 0.0 < probability <= 1.0:
        raise InvalidInputError(f"The 'sampling_prob' field must be above 0 and at most 1. Got {value!r} instead.")
    return probability
