"""Why a choice is recommended, what the runner-up would cost, and what more memory or more epochs change."""

from collections.abc import Iterator, Sequence

from hockeystick.errors import HockeystickError
from hockeystick.recommendation.candidates import Candidate
from hockeystick.recommendation.estimate import estimate
from hockeystick.recommendation.search import Choice, Search
from hockeystick.strategies import ColumnNormalizedBanded, Identity
from hockeystick.types import Adjacency

SOON_OPTIMISED = 100_000
"""Steps times squared bands up to which a matrix without structure is optimised in less than a second."""


def explanation(search: Search, ranked: Sequence[Choice], *, hurried: bool = False) -> Iterator[str]:
    """Sentences about the first of these choices; numbers of other choices may be estimates and then say so.

    Args:
        hurried: leaves out what would wait for an optimiser.
    """
    best = ranked[0]
    yield from _why(best, ranked)
    yield from _runner_up(best, ranked)
    yield from _neighbours(best, ranked)
    yield from _memory(search, best)
    if not (hurried and best.candidate.optimised):
        yield from _epochs(search, best)


def error_interval(search_epsilon: float, delta: float, choice: Choice) -> tuple[float, float] | None:
    """The error if every bound were exact: from the noise that the lower bound would allow to the calibrated noise.

    The lower end is an estimate: noise is taken to change with epsilon as it does for the estimate of this choice. None
    where there is no lower bound, or no certificate.
    """
    certificate = choice.certificate
    if certificate is None or certificate.bounds.lower is None or certificate.bounds.lower <= 0.0:
        return None
    slack = certificate.bounds.upper / certificate.bounds.lower
    try:
        there = estimate(choice.candidate.plan.mechanism(), search_epsilon * slack, delta)
    except HockeystickError:
        return None
    return choice.error * min(there.noise_multiplier / choice.estimate.noise_multiplier, 1.0), choice.error


def _why(best: Choice, ranked: Sequence[Choice]) -> Iterator[str]:
    independent = next((choice for choice in ranked if _is_independent(choice)), None)
    correlated = next((choice for choice in ranked if not _is_independent(choice)), None)
    if independent is best and correlated is not None:
        yield (
            f"Independent noise is recommended: the best correlated noise ({correlated.candidate.name}) has "
            f"{_percent(correlated.error / best.error)} error{_about(correlated)}."
        )
    if independent is None or independent is best:
        return
    yield (
        f"The best has {_percent(best.error / independent.error)} error than independent noise "
        f"({independent.candidate.name}){_about(independent)}. It needs "
        f"{best.noise_multiplier / independent.noise_multiplier:.3g} times the noise per step, but "
        f"later steps cancel most of it."
    )


def _runner_up(best: Choice, ranked: Sequence[Choice]) -> Iterator[str]:
    own = next((choice for choice in ranked if choice.candidate.own), None)
    if own is not None and own is not best:
        yield f"The plan as it is ({own.candidate.name}) has {_percent(own.error / best.error)} error{_about(own)}."
    others = [
        choice
        for choice in ranked
        if _kinds(choice) != _kinds(best) and not choice.candidate.own and not _is_independent(choice)
    ]
    if others:
        second = min(others, key=lambda choice: choice.error)
        yield (
            f"The best choice of another kind ({second.candidate.name}) has {_percent(second.error / best.error)} error"
            f"{_about(second)}."
        )


def _neighbours(best: Choice, ranked: Sequence[Choice]) -> Iterator[str]:
    """What the claim is about, where it is only about gradients that become zero."""

    def is_covered(choice: Choice) -> bool:
        return Adjacency.ADD_REMOVE in choice.candidate.plan.mechanism().sampler.holds_for

    if best.candidate.plan.unit.neighbours == "replace" or is_covered(best):
        return
    unit = best.candidate.plan.unit.kind
    other = next((choice for choice in ranked if is_covered(choice)), None)
    which = "" if other is None else f"; the claim for {other.candidate.name} does"
    yield f"The claim for the best is about zeroing one {unit} out: it does not cover adding or removing one{which}."


def _memory(search: Search, best: Choice) -> Iterator[str]:
    """The least error for a half and a quarter of the rows, and what a limit on memory costs."""
    if best.rows == 0:
        return
    least = best.error
    frontier = []
    for rows in (best.rows // 2, best.rows // 4):
        allowed = [choice for choice in search.choices.values() if choice.rows <= rows]
        if allowed:
            other = min(allowed, key=lambda choice: choice.error)
            change = _percent(other.error / least)
            frontier.append(f" With {other.rows} rows, {other.candidate.name} has {change} error{_about(other)}.")
    frontier = list(dict.fromkeys(frontier))
    limits = search.asked.limits
    size = ""
    if limits.parameters is not None:
        kind = "exact noise" if best.candidate.plan.noise.exact else limits.dtype
        size = f", {best.candidate.bytes(limits.dtype) * limits.parameters / 1e9:.3g} GB in {kind}"
    yield f"The best keeps {best.rows} rows of noise of the model's size between steps{size}.{''.join(frontier)}"
    if limits.memory is not None and any("fit in the memory" in reason for reason in search.refused.values()):
        free = search.without_memory_limit
        if free.error < least:
            yield (
                f"With memory for {free.rows} rows, {free.candidate.name} would have {_percent(free.error / least)} "
                f"error (estimated)."
            )


def _epochs(search: Search, best: Choice) -> Iterator[str]:
    """The same candidate for twice as many steps: noise adds up over steps, and so does progress.

    The error of the weights is therefore divided by the number of steps.
    """
    plan = best.candidate.plan
    strategy = plan.strategy
    if isinstance(strategy, ColumnNormalizedBanded) and plan.numbers().steps * strategy.bands**2 > SOON_OPTIMISED:
        return  # the answer would wait for a matrix that nobody asked for
    data = plan.data.model_copy(
        update={
            "epochs": None if plan.data.epochs is None else 2 * plan.data.epochs,
            "steps": None if plan.data.steps is None else 2 * plan.data.steps,
        }
    )
    longer = Candidate(plan.model_copy(update={"data": data}))
    again = Search(search.asked)
    if again.error(longer) == float("inf"):
        return
    twice = again.choices[longer.plan]
    then = twice.error / twice.candidate.plan.numbers().steps
    now = best.unit_error * best.estimate.noise_multiplier / best.expected_batch / plan.numbers().steps
    yield (
        f"Twice as many steps would need {_percent(twice.noise_multiplier / best.estimate.noise_multiplier)} noise "
        f"(estimated); the error of the weights, divided by the number of steps, would be {_percent(then / now)}."
    )


def _is_independent(choice: Choice) -> bool:
    return isinstance(choice.candidate.plan.strategy, Identity)


def _kinds(choice: Choice) -> tuple[str, str]:
    return choice.candidate.plan.strategy.kind, choice.candidate.plan.sampler.kind


def _about(choice: Choice) -> str:
    """What follows a number of a choice that is not certified."""
    return "" if choice.certified else " (estimated)"


def _percent(ratio: float) -> str:
    """A ratio as a change in percent."""
    change = 100.0 * (ratio - 1.0)
    return f"{abs(change):.3g} percent {'more' if change >= 0.0 else 'less'}"
