"""The words of certificates of formats 1 and 2, where they differ: a certificate is verified with the words it was
issued with. Nothing here changes any more."""

from collections.abc import Sequence

from hockeystick.certificate import Assumption, ForeignNoise, Methods, Private, Statements
from hockeystick.certification import wording
from hockeystick.mechanism import Mechanism
from hockeystick.monte_carlo.claim import MonteCarloClaim
from hockeystick.types import Adjacency

TEXTS = wording.Texts(
    normaliser=(
        "Divide by a number fixed beforehand, such as the expected batch size, not by the size of the batch drawn."
    ),
    one_seed="Draw the seed of the samples once: one that was chosen among several proves nothing.",
    limited_gradients="gradients of that kind only",
)


def prefixes(mechanism: Mechanism) -> str:
    """The claim about runs that stop early."""
    steps = mechanism.sampler.steps
    return (
        f"The same numbers cover every prefix of the {f'{steps} steps' if steps > 1 else 'one step'}, even if the "
        f"outputs decide when to stop."
    )


def not_covered(statements: Statements, generator: ForeignNoise | None) -> tuple[str, ...]:
    """What the claim is not about."""
    tuning = "" if statements.tuning is None else " (the user states some)"
    others = "" if statements.other_releases is None else " (the user states some)"
    said = (
        "Losses, metrics, sizes of batches and anything else computed from the data.",
        f"Hyper-parameters tuned on the data{tuning}.",
        f"Other releases from the data{others}, whose privacy loss adds to this one.",
    )
    if generator is None:
        return said
    return (
        *said,
        f"Floating point: the bounds are those of Gaussian noise. Of the generator {generator.name} only the ends were "
        f"held against the claim, and what is missing between them costs privacy too.",
    )


def assumptions(
    mechanism: Mechanism, method: Methods, claim: MonteCarloClaim | None, statements: Statements
) -> tuple[Assumption, ...]:
    """What the claim rests on, and what is known of it. Raises as :func:`wording.assumptions`."""
    return wording.assumptions(mechanism, method, claim, statements, TEXTS)


def caveats(claim: MonteCarloClaim | None, *, exact: bool = False) -> tuple[str, ...]:
    """How a program may differ from the mechanism."""
    said = wording.caveats(None)
    if claim is None:
        return said
    seeds = "The seeds here are of accounting samples and may be published; those of batches and noise must not be."
    return (*said, seeds)


def keep_private(mechanism: Mechanism, relations: Sequence[Adjacency], statements: Statements) -> tuple[Private, ...]:
    """Fields of the certificate that should not be published."""
    found = []
    if statements.num_examples is not None and Adjacency.ADD_REMOVE in relations:
        why = "the size of the data differs between neighbours"
        found += [Private(field=name, why=why) for name in ("statements.num_examples", "rates.expected_batch_size")]
    if getattr(mechanism.strategy, "path", None) is not None:
        found.append(Private(field="mechanism.strategy.path", why="it is a path on the machine of whoever trains"))
    return tuple(found)


def recompute(mechanism: Mechanism) -> str:
    """The command that derives the claim again."""
    matrix = " --matrix FILE" if getattr(mechanism.strategy, "path", None) is not None else ""
    return f"hockeystick verify CERTIFICATE{matrix}"
