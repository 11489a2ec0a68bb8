"""A whole certificate from its numbers: everything that follows from them without an accountant.

Every sentence follows from the mechanism, the bounds and what the user states. They belong to the format of
certificates (:mod:`.texts`): ``verify`` compares them, as a sentence that says more than the numbers is a forgery.
"""

import platform
from collections.abc import Sequence
from typing import Any

import numpy

from hockeystick._version import __version__
from hockeystick.accountants.registry import assumed_by, reference_of
from hockeystick.attacks.numbers import FALSE_POSITIVE_RATES
from hockeystick.calls import called
from hockeystick.certificate import (
    Accuracy,
    Actor,
    Assumption,
    AttackNumbers,
    Bits,
    Certificate,
    CutOff,
    ForeignNoise,
    Interval,
    Methods,
    Noise,
    Origin,
    Private,
    Rates,
    Statements,
    Status,
    exact,
    number,
)
from hockeystick.certification.rounding import lower_end_of_run
from hockeystick.certification.texts import Texts, texts_of
from hockeystick.claim import MonteCarloClaim, Statement
from hockeystick.errors import CannotCertifyError, InvalidInputError, shortened
from hockeystick.mechanism import Mechanism
from hockeystick.noise.generators import floor, floor_of_known_batches, known
from hockeystick.samplers import Sampler
from hockeystick.strategies.companion import file_name
from hockeystick.types import Adjacency

NUMBERS = (
    "format",
    "mechanism",
    "epsilon",
    "delta",
    "method",
    "kind",
    "confidence",
    "monte_carlo",
    "without_amplification",
    "numbers",
    "generator",
    "origin",
)
"""The fields that the others follow from."""
INVARIANCE = (
    "Compute the gradients in physical batches of one fixed shape, sequence length included, in which no bit of an "
    "example's gradient depends on its place or on the other examples (hockeystick.audit.invariance tests it); or "
    "state by how much the others' change, so that the noise covers it."
)
SECRECY = "Keep the draws of batches and noise secret, and use them for this run only."
_LOWER_END = (
    "The lower end is that of the real mechanism. Rounding to the grid can only hide more, by at most what half a grid "
    "step in every released number hides."
)
_LOWER_END_OF_TREES = (
    "The lower end is that of the real mechanism, for an adversary who sees every node of the trees. A run releases "
    "fewer numbers, so what is true of it may be below the lower end."
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


def described(statements: Statements, **numbers: Any) -> Certificate:
    """The sealed certificate with these numbers, which are the fields of ``NUMBERS``.

    Raises: InvalidInputError when the statements do not suit the mechanism.
    """
    mechanism: Mechanism = numbers["mechanism"]
    epsilon, delta, method, claim = (numbers[name] for name in ("epsilon", "delta", "method", "monte_carlo"))
    generator: ForeignNoise | None = numbers["generator"]
    sampler, sensitivity = mechanism.sampler, mechanism.matrix.max_column_norm
    adjacency = Adjacency(mechanism.unit.neighbours)
    others = sampler.holds_for if adjacency is Adjacency.ZERO_OUT else ()
    also = tuple(other for other in others if other is not Adjacency.ZERO_OUT)
    relations = (adjacency, *also)
    texts = texts_of(numbers["format"])
    if statements.num_examples is not None:
        sampler.check_num_examples(statements.num_examples)
    return Certificate(
        **numbers,
        sentence=sentence(mechanism, epsilon, delta, claim),
        gap=(epsilon if isinstance(epsilon, Interval) else delta).gap,
        unit=unit_of(mechanism),
        adjacency=adjacency,
        also_holds_for=also,
        neighbours=neighbours(mechanism, relations),
        released=released(mechanism),
        prefixes=prefixes(mechanism, texts),
        not_covered=not_covered(statements, generator, texts),
        actors=actors(mechanism),
        rates=rates(sampler, statements.num_examples),
        noise=_noise(mechanism, sensitivity, statements),
        bits=bits(mechanism, epsilon, delta, method.lower),
        sensitivity=sensitivity,
        strategy_digest=mechanism.matrix.digest if mechanism.strategy.optimised else None,
        references=(
            *(reference_of(name) for name in methods_used(method)),
            *mechanism.unit.references,
            *(() if generator is None else ("docs/theory/generators.md",)),
            *(("docs/theory/exact-noise.md",) if mechanism.exact else ()),
        ),
        assumptions=assumptions(mechanism, method, claim, statements, texts),
        caveats=caveats(claim, texts, exact=mechanism.exact),
        recompute=recompute(mechanism, texts),
        keep_private=keep_private(mechanism, relations, statements, texts),
        statements=statements,
    ).sealed()


@called('hs.state(certificate, hs.Statements(label="run 7"))')
def state(certificate: Certificate, statements: Statements) -> Certificate:
    """The same claim with other statements of the user, and all that follows from them.

    Raises: InvalidInputError for other types, and when the statements do not suit the mechanism: a number of examples
        that the sampler does not take, or an assumption that is not one of this certificate's.

    >>> import hockeystick as hs
    >>> run = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.01, steps=100), noise_multiplier=1.5)
    >>> said = hs.Statements(label="run 7", num_examples=60_000, clipping_norm=2.0)
    >>> hs.state(hs.certify(run, delta=1e-5), said).noise.standard_deviation
    3.0
    """
    for name, given, kind, example in (
        ("certificate", certificate, Certificate, "as hs.certify makes them"),
        ("statements", statements, Statements, "such as hs.Statements(label='run 7')"),
    ):
        if not isinstance(given, kind):
            raise InvalidInputError(
                f"The {name!r} argument must be a {kind.__name__}, {example}. Got {shortened(given)} instead."
            )
    return described(statements, **{name: getattr(certificate, name) for name in NUMBERS})


def drawn_by(certificate: Certificate, generator: str) -> Certificate:
    """The same claim for noise of a generator of another library, if the generator's floor does not refute it.

    Numbers that the floor refutes go up to it. The lower end stays that of Gaussian noise.

    Args:
        generator: a key of ``hockeystick.noise.GENERATORS``.

    Raises: CannotCertifyError for a claimed delta below the floor.
    """
    mechanism, source = certificate.mechanism, known(generator)
    delta = certificate.question.claimed(certificate.bounds.upper)[1]
    lowest = check_floor(mechanism, generator, delta)
    alone = certificate.without_amplification
    if alone is not None:
        of_known = floor_of_known_batches(mechanism, generator)
        if isinstance(certificate.delta, Interval):
            alone = max(alone, of_known)
        elif delta < of_known:
            alone = None  # no epsilon reaches this delta
    numbers = {name: getattr(certificate, name) for name in NUMBERS} | {
        "without_amplification": alone,
        "numbers": _at_least(certificate.numbers, lowest),
        "generator": ForeignNoise(name=generator, lowest=source.lowest, highest=source.highest, floor=lowest),
    }
    return described(certificate.statements, **numbers)


def check_floor(mechanism: Mechanism, generator: str, delta: float) -> float:
    """The floor of delta with the noise of this generator; raises CannotCertifyError for a delta below it."""
    if mechanism.exact:
        raise InvalidInputError(
            f"The 'generator' argument must be left out for an exact mechanism, whose noise is hockeystick's own. "
            f"Got {generator!r} instead."
        )
    lowest, source = floor(mechanism, generator), known(generator)
    if delta < lowest:
        raise CannotCertifyError(
            f"A delta of {number(delta)} is too small for the noise of {generator!r} at noise_multiplier = "
            f"{mechanism.sigma:g}: its normal numbers end at {source.lowest:.4g} and {source.highest:.4g}, so delta is "
            f"at least {number(lowest, up=False)} at every epsilon; use hockeystick's own noise, a type whose numbers "
            f"end further out, more noise or a larger delta."
        )
    return lowest


def _at_least(numbers: AttackNumbers, lowest: float) -> AttackNumbers:
    """The numbers, none below what an attacker gains by the event that has this chance under one data set alone.

    With a false positive rate of a, guessing beside it finds ``lowest + (1 - lowest) a``.
    """
    least = {name: lowest + (1.0 - lowest) * rate for name, rate in FALSE_POSITIVE_RATES.items()}
    least |= {"advantage": lowest, "bayes_success": 0.5 + 0.5 * lowest}
    return numbers.model_copy(update={name: max(getattr(numbers, name), value) for name, value in least.items()})


def origin(accuracy: Accuracy, cut_off: tuple[CutOff, ...]) -> Origin:
    """How a certificate is made here and now."""
    import scipy

    versions = {"python": platform.python_version(), "numpy": numpy.__version__, "scipy": scipy.__version__}
    return Origin(hockeystick_version=__version__, library_versions=versions, accuracy=accuracy, cut_off=cut_off)


def rates(sampler: Sampler, num_examples: int | None = None) -> Rates:
    """How often one example takes part in the batches of a sampler.

    Args:
        num_examples: for the expected batch size; None where it is not known.

    >>> import hockeystick as hs
    >>> rates(hs.Poisson(sampling_prob=0.01, steps=50), 2000).expected_batch_size
    20.0
    """
    return Rates(
        steps=sampler.steps,
        rate=sampler.rate,
        rate_when_available=sampler.rate_when_available,
        most_participations=sampler.most_participations,
        expected_batch_size=None if num_examples is None else num_examples * sampler.rate,
    )


def _noise(mechanism: Mechanism, sensitivity: float, statements: Statements) -> Noise:
    sigma, norm, divisor = mechanism.sigma, statements.clipping_norm, statements.normaliser
    absolute = None if norm is None else sigma * norm
    return Noise(
        multiplier=sigma,
        over_sensitivity=sigma / sensitivity,
        standard_deviation=absolute,
        standard_deviation_of_mean=None if absolute is None or divisor is None else absolute / divisor,
    )


def unit_of(mechanism: Mechanism) -> str:
    """Whose data the claim protects: an example, or a user with all of its examples."""
    return "user" if mechanism.sampler.kind == "multi_attribution" else mechanism.unit.kind


def sentence(
    mechanism: Mechanism, epsilon: float | Interval, delta: float | Interval, claim: MonteCarloClaim | None
) -> str:
    """The claim in one plain sentence; bounds are rounded up, numbers that were given are exact."""
    pair = ", ".join(number(part.upper) if isinstance(part, Interval) else exact(part) for part in (epsilon, delta))
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
        differs = " or ".join(_RELATIONS[relation] for relation in relations)
        return f"Neighbours are two data sets that differ in one example, which in the second {differs}."
    count = mechanism.unit.examples
    who = f"user with at most {count} examples" if count > 1 else "user"
    differs = " or ".join(_RELATIONS_OF_USERS[relation] for relation in relations)
    return f"Neighbours are two data sets that differ in one {who}, all of whose examples in the second {differs}."


def released(mechanism: Mechanism) -> str:
    """What the adversary may see."""
    steps = mechanism.sampler.steps
    outputs = f"The noisy gradient sums of all {steps} steps" if steps > 1 else "The noisy gradient sum of the one step"
    return f"{outputs}, and every model and checkpoint computed from them."


def prefixes(mechanism: Mechanism, texts: Texts) -> str:
    """The claim about runs that stop early."""
    steps = mechanism.sampler.steps
    return texts.prefixes.format(steps=f"{steps} steps" if steps > 1 else "one step")


def not_covered(statements: Statements, generator: ForeignNoise | None, texts: Texts) -> tuple[str, ...]:
    """What the claim is not about."""
    tuning = "" if statements.tuning is None else " (the user states some)"
    others = "" if statements.other_releases is None else " (the user states some)"
    said = (
        "Losses, metrics, sizes of batches and anything else computed from the data.",
        f"Hyper-parameters tuned on the data{tuning}.",
        texts.releases.format(others=others),
    )
    return said if generator is None else (*said, texts.generator.format(name=generator.name))


def bits(mechanism: Mechanism, epsilon: float | Interval, delta: float | Interval, lower: str | None) -> Bits | None:
    """What is proved, assumed and not covered of the bits of a run; None where its noise is in floating point.

    Args:
        epsilon, delta: of the claim, one of them an interval.
        lower: the method that gave its lower end.
    """
    if not mechanism.exact:
        return None
    return Bits(
        covered=(
            "The noise: what is released is a fixed function of the real mechanism's output, with exactly its law.",
            "The sums: whole numbers of the clipped gradients and of the noise are added without rounding.",
            "Everything computed from the released sums, in any arithmetic.",
        ),
        assumed=(
            "The words of the noise's generator are uniform, independent and secret.",
            "The batches are drawn from their law; samplers compare random numbers in floating point.",
            "The whole numbers of an example depend on that example and on what was released alone, or the noise "
            "covers a stated bound on what else changes (invariance).",
        ),
        not_covered=("How long a step takes, which says a little about the noise.",),
        lower_end=_LOWER_END if mechanism.matrix.rows == mechanism.matrix.steps else _LOWER_END_OF_TREES,
        lower=lower_end_of_run(mechanism, epsilon, delta, lower),
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
    texts: Texts,
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
    return tuple(dict.fromkeys(name for name in (method.upper, method.lower) if name is not None))


def caveats(claim: MonteCarloClaim | None, texts: Texts, *, exact: bool = False) -> tuple[str, ...]:
    """How a program may differ from the mechanism; with exact noise, arithmetic is no way to differ from it."""
    real = "The claim is about exact arithmetic; noise in floating-point numbers is not exactly Gaussian."
    ideal = "The claim is about ideal random numbers; a generator that is not cryptographic may be predictable."
    said = (ideal,) if exact else (real, ideal)
    return said if claim is None else (*said, texts.seeds)


def keep_private(
    mechanism: Mechanism, relations: Sequence[Adjacency], statements: Statements, texts: Texts
) -> tuple[Private, ...]:
    """Fields of the certificate that should not be published."""
    fields = []
    if statements.num_examples is not None and Adjacency.ADD_REMOVE in relations:
        why = "the size of the data differs between neighbours"
        fields += [Private(field=name, why=why) for name in ("statements.num_examples", "rates.expected_batch_size")]
    if getattr(mechanism.strategy, "path", None) is not None:
        fields.append(Private(field="mechanism.strategy.path", why=texts.path))
    return tuple(fields)


def recompute(mechanism: Mechanism, texts: Texts) -> str:
    """The command that derives the claim again."""
    matrix = " --matrix FILE" if getattr(mechanism.strategy, "path", None) is not None else ""
    if texts.names_companions and mechanism.strategy.companion is not None:
        matrix = f" --matrix {file_name(mechanism.strategy.companion)}"
    return f"hockeystick verify CERTIFICATE{matrix}"
