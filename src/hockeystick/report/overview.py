"""What ``hockeystick show`` says of a plan: the numbers that follow from it, and the commands that ask more."""

from dataclasses import asdict, dataclass
from math import floor, log10
from shlex import quote
from typing import Any

from hockeystick.accountants.registry import ACCOUNTANTS
from hockeystick.errors import UnsupportedError, counted
from hockeystick.mechanism import Mechanism
from hockeystick.pairs.base import DominatingPair
from hockeystick.pairs.registry import dominating_pair
from hockeystick.plan import Plan, PlanNumbers
from hockeystick.types import Side

USUAL_EPSILON = 2.0
"""What the proposed commands ask for where the plan has no target epsilon."""


@dataclass(frozen=True, kw_only=True)
class Overview:
    """A plan, what follows from it, and what to ask next.

    Attributes:
        sensitivity: the largest norm of a column of C, which one participation makes.
        full_sensitivity: the largest norm of what one example (or user) adds in the whole run, when the batches are
            known; None where nobody has analysed the combination of strategy and sampler.
        refusal: why there is no analysis, where there is none.
        commands: command lines that run as they stand, and what each of them answers.
    """

    plan: Plan
    numbers: PlanNumbers
    sensitivity: float
    full_sensitivity: float | None
    noise_multiplier: float | None
    refusal: str | None
    commands: tuple[tuple[str, str], ...]


def overview(plan: Plan, path: str) -> Overview:
    """The overview of a plan in a file.

    An optimised strategy is optimised for it, which may take as long as for any other command.

    Raises: InvalidInputError when the data do not suit the sampler.
    """
    mechanism = plan.mechanism()
    pair, refusal = _analysed(mechanism)
    return Overview(
        plan=plan,
        numbers=plan.numbers(),
        sensitivity=mechanism.matrix.max_column_norm,
        full_sensitivity=None if pair is None else pair.full_sensitivity,
        noise_multiplier=mechanism.noise_multiplier,
        refusal=refusal,
        commands=() if pair is None else tuple(_commands(plan, pair, mechanism.noise_multiplier, quote(path))),
    )


def _analysed(mechanism: Mechanism) -> tuple[DominatingPair | None, str | None]:
    try:
        return dominating_pair(mechanism if mechanism.noise_multiplier else mechanism.with_noise(1.0)), None
    except UnsupportedError as error:
        return None, str(error)


def _commands(plan: Plan, pair: DominatingPair, noise: float | None, path: str) -> list[tuple[str, str]]:
    delta = "" if plan.target.delta else f" --delta {_usual_delta(plan.data.num_examples):g}"
    epsilon = "" if plan.target.epsilon else f" --epsilon {USUAL_EPSILON:g}"
    sigma = "" if noise else " --noise-multiplier 1"
    commands = [(f"hockeystick calibrate {path}{epsilon}{delta}", "the smallest noise for the target")]
    if ACCOUNTANTS["monte_carlo"].why_not(pair, Side.UPPER) is None:
        command = f"hockeystick calibrate {path}{epsilon}{delta} --allow monte-carlo"
        commands.append((command, "the same, with bounds that rest on samples"))
    return [
        *commands,
        (f"hockeystick epsilon {path}{sigma}{delta}", "epsilon at that noise"),
        (f"hockeystick delta {path}{sigma}{epsilon}", "delta at that noise"),
        (f"hockeystick compare {path}{sigma}{delta}", "what every method says"),
    ]


def _usual_delta(num_examples: int) -> float:
    """A power of ten below one over the size of the dataset."""
    return float(f"1e{-floor(log10(num_examples)) - 1}")


def overview_text(overview: Overview) -> str:
    """The overview in lines."""
    plan, numbers = overview.plan, overview.numbers
    rows = [
        ("sampler", plan.sampler.kind),
        ("examples", f"{numbers.num_examples}"),
        ("expected batch", _batch(numbers)),
        ("sampling rate", f"{numbers.rate:.6g} (1 in {1.0 / numbers.rate:.10g})"),
        ("steps", f"{numbers.steps}{_epochs(numbers)}"),
        ("participations", f"{_how(numbers)} {numbers.participations:.6g} per example"),
        ("strategy", f"{plan.strategy.kind}, sensitivity {overview.sensitivity:.6g} (largest column norm)"),
    ]
    if plan.unit.kind == "user":
        rows.insert(2, ("unit", plan.unit.described))
    if overview.full_sensitivity is not None:
        rows.append(("whole run", f"sensitivity {overview.full_sensitivity:.6g} if the batches were known"))
    if overview.noise_multiplier is None:
        rows.append(("noise", "not given; 'calibrate' finds it"))
    else:
        relative = overview.noise_multiplier / overview.sensitivity
        rows.append(
            (
                "noise",
                f"noise_multiplier {overview.noise_multiplier!r} clipping norms; over the sensitivity {relative:.6g}",
            )
        )
    if plan.noise.exact:
        rows.append(("exact noise", "in whole numbers: certificates cover the bits that a run adds"))
    target = [f"{name} {value!r}" for name, value in plan.target.model_dump().items() if value is not None]
    rows.append(("target", ", ".join(target) if target else "not given"))
    lines = [f"{name:<16}{value}" for name, value in rows]
    if overview.refusal is not None:
        return "\n".join([*lines, overview.refusal])
    width = max(len(command) for command, _ in overview.commands)
    return "\n".join([*lines, "next", *(f"  {command:<{width}}  {answers}" for command, answers in overview.commands)])


def overview_json(overview: Overview) -> dict[str, Any]:
    """The JSON object of ``show --json`` for a plan."""
    return {
        "kind": "plan",
        "sampler": overview.plan.sampler.kind,
        "strategy": overview.plan.strategy.kind,
        "unit": overview.plan.unit.model_dump(mode="json"),
        "exact": overview.plan.noise.exact,
        **asdict(overview.numbers),
        "sensitivity": overview.sensitivity,
        "full_sensitivity": overview.full_sensitivity,
        "noise_multiplier": overview.noise_multiplier,
        "target": overview.plan.target.model_dump(mode="json"),
        "refusal": overview.refusal,
        "commands": [{"command": command, "answers": answers} for command, answers in overview.commands],
    }


def _batch(numbers: PlanNumbers) -> str:
    if numbers.remainder is not None and numbers.bins is not None:
        size = f"{numbers.asked_batch:.10g}" if numbers.asked_batch.is_integer() else f"{numbers.expected_batch:.6g}"
        if numbers.remainder == "drop":
            return f"{size} exactly; the other {numbers.rest} examples are left out of the epoch"
        return f"{size} exactly; the last one of an epoch has {numbers.rest}"
    asked = ""
    if abs(numbers.expected_batch - numbers.asked_batch) > 1e-9 * numbers.asked_batch:
        visits = round(numbers.expected_batch / numbers.asked_batch)
        why = f"{visits} visits in an epoch, of" if visits > 1 else "the plan asks for"
        asked = f" ({why} {numbers.asked_batch:.10g})"
    return f"{numbers.expected_batch:.10g}{asked}"


def _epochs(numbers: PlanNumbers) -> str:
    return "" if numbers.bins is None else f" ({counted(numbers.epochs or 0, 'epoch')} of {numbers.bins})"


def _how(numbers: PlanNumbers) -> str:
    return "exactly" if numbers.bins is not None and numbers.remainder != "drop" else "on average"
