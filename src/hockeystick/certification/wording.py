"""The words of a certificate: every sentence follows from the mechanism, the bounds and what the user states.

They belong to the format of certificates: ``verify`` compares them, as a sentence that says more than the numbers is a
forgery. Other words need another format, and the former ones stay known, in ``former_wording.py``.
"""

from collections.abc import Sequence
from typing import NamedTuple

from hockeystick.accountants.registry import assumed_by, reference_of
from hockeystick.certificate import (
    Actor,
    Assumption,
    Bits,
    ForeignNoise,
    Interval,
    Methods,
    Private,
    Statements,
    Status,
    exact,
    number,
)
from hockeystick.errors import InvalidInputError
from hockeystick.mechanism import Mechanism
from hockeystick.monte_carlo.claim import MonteCarloClaim, Statement
from hockeystick.strategies.companion import file_name
from hockeystick.types import Adjacency

SECRECY = "Keep the draws of batches and noise secret, and use them for this run only."

INVARIANCE = (
    "Compute the gradients in physical batches of one fixed shape, sequence length included, with deterministic "
    "kernels and with nothing that passes from one example to another."
)


class Texts(NamedTuple):
    """Sentences among the assumptions that formats word differently."""

    normaliser: str
    one_seed: str
    limited_gradients: str


TEXTS = Texts(
    normaliser=(
        "Divide by a number fixed before the run, such as the expected batch size, not by the drawn batch's size."
    ),
    one_seed="Draw the seed of the accounting samples once: a seed that was chosen among several proves nothing.",
    limited_gradients="the gradients that the assumptions describe",
)

_RELATIONS = {
    Adjacency.ZERO_OUT: "has zero gradient and keeps its place (zero_out)",
    Adjacency.ADD_REMOVE: "is missing (add_remove)",
    Adjacency.REPLACE: "is replaced by any other (replace)",
}
_RELATIONS_OF_USERS = {
    Adjacency.ZERO_OUT: "have zero gradients and keep their places (zero_out)",
    Adjacency.ADD_REMOVE: "are missing (add_remove)",
    Adjacency.REPLACE: "are replaced by any others (replace)",
}


def unit_of(mechanism: Mechanism) -> str:
    """Whose data the claim protects: an example, or a user with all of its examples."""
    return "user" if mechanism.sampler.kind == "multi_attribution" else mechanism.unit.kind


def sentence(
    mechanism: Mechanism, epsilon: float | Interval, delta: float | Interval, claim: MonteCarloClaim | None
) -> str:
    """The claim in one plain sentence; bounds are rounded up, numbers that were given are exact."""
    pair = ", ".join(number(one.upper) if isinstance(one, Interval) else exact(one) for one in (epsilon, delta))
    steps = mechanism.sampler.steps
    what = f"All {steps} training steps together are" if steps > 1 else "The one training step is"
    said = f"{what} ({pair})-differentially private for one {unit_of(mechanism)}"
    if claim is None:
        return f"{said}."
    chance = f"{claim.failure_probability:g}"
    if claim.statement is Statement.ESTIMATE_VERIFY_RELEASE:
        return f"{said}, counting the random test that accepted this noise, which errs with probability {chance}."
    return f"{said}, except with probability {chance} over the draw of the accounting samples."


def neighbours(mechanism: Mechanism, relations: Sequence[Adjacency]) -> str:
    """The adjacency relations in words."""
    if unit_of(mechanism) == "example":
        differs = " or ".join(_RELATIONS[one] for one in relations)
        return f"Neighbours are two data sets that differ in one example, which in the second {differs}."
    count = mechanism.unit.examples
    who = f"user with at most {count} examples" if count > 1 else "user"
    differs = " or ".join(_RELATIONS_OF_USERS[one] for one in relations)
    return f"Neighbours are two data sets that differ in one {who}, all of whose examples in the second {differs}."


def released(mechanism: Mechanism) -> str:
    """What the adversary may see."""
    steps = mechanism.sampler.steps
    outputs = f"The noisy gradient sums of all {steps} steps" if steps > 1 else "The noisy gradient sum of the one step"
    return f"{outputs}, and every model and checkpoint computed from them."


def prefixes(mechanism: Mechanism) -> str:
    """The claim about runs that stop early."""
    steps = mechanism.sampler.steps
    return (
        f"The guarantee covers runs that stop after any of the {f'{steps} steps' if steps > 1 else 'one step'}, even "
        f"if the outputs decide when."
    )


def not_covered(statements: Statements, generator: ForeignNoise | None) -> tuple[str, ...]:
    """What the claim is not about."""
    tuning = "" if statements.tuning is None else " (the user states some)"
    others = "" if statements.other_releases is None else " (the user states some)"
    said = (
        "Losses, metrics, sizes of batches and anything else computed from the data.",
        f"Hyper-parameters tuned on the data{tuning}.",
        f"Other releases from the same data{others}, whose privacy loss adds to the loss of this run.",
    )
    if generator is None:
        return said
    return (
        *said,
        f"Floating-point noise: the bounds are for Gaussian noise. Only the smallest and the largest number of the "
        f"generator {generator.name} were checked against the claim; numbers between them that the generator never "
        f"draws cost privacy too.",
    )


def bits(mechanism: Mechanism) -> Bits | None:
    """What is proved, assumed and not covered of the bits of a run; None where its noise is in floating point."""
    if not mechanism.exact:
        return None
    return Bits(
        covered=(
            "The noise: its whole numbers have exactly the law of the real mechanism's output, rounded to a grid.",
            "The sums: whole numbers of the clipped gradients and of the noise are added without rounding.",
            "Everything computed from the released sums, in any arithmetic.",
        ),
        assumed=(
            "The words of the noise's generator are uniform, independent and secret.",
            "The batches are drawn from their law; samplers compare random numbers in floating point.",
            "The whole numbers of an example depend on that example and on what was released alone (invariance).",
        ),
        not_covered=("How long a step takes, which says a little about the noise.",),
        lower_end=(
            "The lower end is that of the real mechanism. Rounding to the grid can only hide more, by at most what "
            "half a grid step in every released number hides."
        ),
    )


def actors(mechanism: Mechanism) -> tuple[Actor, ...]:
    """The trust model."""
    others = f"every other {unit_of(mechanism)}"
    sees = f"what is released, the mechanism and {others}, but neither batches nor noise"
    if mechanism.sampler.batches_are_public:
        sees = f"what is released, the mechanism, the batches and {others}, but not the noise"
    return (
        Actor(who="whoever trains", trusted=True, sees="data, gradients, batches, noise and the seeds of both"),
        Actor(who="the adversary", trusted=False, sees=sees),
    )


def assumptions(
    mechanism: Mechanism,
    method: Methods,
    claim: MonteCarloClaim | None,
    statements: Statements,
    texts: Texts = TEXTS,
) -> tuple[Assumption, ...]:
    """What the claim rests on, and what is known of it.

    Raises: InvalidInputError when the user asserts something that is no assumption of this certificate.
    """
    used = methods_used(method)
    asked = {
        "batches": mechanism.sampler.requirement,
        "noise": mechanism.strategy.noise_requirement(mechanism.sigma, exact=mechanism.exact),
        **({"invariance": INVARIANCE} if mechanism.exact else {}),
        "normaliser": texts.normaliser,
        "secrecy": SECRECY,
    }
    asked |= {} if mechanism.unit.requirement is None else {"unit": mechanism.unit.requirement}
    asked |= {f"{name}_only": assumed for name in used if (assumed := assumed_by(name)) is not None}
    asked |= {} if claim is None else {"one_seed": texts.one_seed}
    for name in statements.asserted:
        if name not in asked:
            raise InvalidInputError(f"The 'asserted' field must name one of {', '.join(asked)}. Got {name!r} instead.")
    given = dict(statements.asserted)
    if statements.normaliser is not None:
        given.setdefault("normaliser", "statements.normaliser")
    listed = [
        Assumption(
            name=name,
            text=text,
            status=Status.ASSERTED if name in given else Status.UNCHECKED,
            evidence=given.get(name),
        )
        for name, text in asked.items()
    ]
    strategy, sampler = mechanism.strategy.kind, mechanism.sampler.kind
    limited = any(assumed_by(name) is not None for name in used)
    gradients = texts.limited_gradients if limited else "adaptive gradients"
    proved = Assumption(
        name="theorem",
        text=f"The bounds are proved for {gradients}, strategy {strategy} and sampler {sampler}.",
        status=Status.HOLDS,
        evidence="; ".join(reference_of(name) for name in used),
    )
    return (*listed, proved)


def methods_used(method: Methods) -> tuple[str, ...]:
    """The names of the accountants behind a claim, each once."""
    return tuple(dict.fromkeys(one for one in (method.upper, method.lower) if one is not None))


def caveats(claim: MonteCarloClaim | None, *, exact: bool = False) -> tuple[str, ...]:
    """How a program may differ from the mechanism; with exact noise, arithmetic is no way to differ from it."""
    real = "The claim is about exact arithmetic; noise in floating-point numbers is not exactly Gaussian."
    ideal = "The claim is about ideal random numbers; a generator that is not cryptographic may be predictable."
    said = (ideal,) if exact else (real, ideal)
    if claim is None:
        return said
    seeds = "The seeds here are of accounting samples and may be published; keep the seeds of batches and noise secret."
    return (*said, seeds)


def keep_private(mechanism: Mechanism, relations: Sequence[Adjacency], statements: Statements) -> tuple[Private, ...]:
    """Fields of the certificate that should not be published."""
    found = []
    if statements.num_examples is not None and Adjacency.ADD_REMOVE in relations:
        why = "the size of the data differs between neighbours"
        found += [Private(field=name, why=why) for name in ("statements.num_examples", "rates.expected_batch_size")]
    if getattr(mechanism.strategy, "path", None) is not None:
        found.append(Private(field="mechanism.strategy.path", why="the path belongs to the machine that trains"))
    return tuple(found)


def recompute(mechanism: Mechanism) -> str:
    """The command that derives the claim again."""
    matrix = " --matrix FILE" if getattr(mechanism.strategy, "path", None) is not None else ""
    if mechanism.strategy.companion is not None:
        matrix = f" --matrix {file_name(mechanism.strategy.companion)}"
    return f"hockeystick verify CERTIFICATE{matrix}"
