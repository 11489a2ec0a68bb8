"""A whole certificate from its numbers: everything that follows from them without an accountant."""

import platform
from typing import Any

import numpy

from hockeystick._version import __version__
from hockeystick.accountants.registry import reference_of
from hockeystick.certificate import (
    FORMAT,
    Accuracy,
    AttackNumbers,
    Certificate,
    CutOff,
    ForeignNoise,
    Interval,
    Noise,
    Origin,
    Rates,
    Statements,
    number,
)
from hockeystick.certification import former_wording, wording
from hockeystick.certification.attack import FALSE_POSITIVE_RATES
from hockeystick.errors import CannotCertifyError, InvalidInputError
from hockeystick.mechanism import Mechanism
from hockeystick.noise.generators import floor, floor_of_known_batches, known
from hockeystick.samplers import Sampler
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
    of_format = wording if numbers["format"] == FORMAT else former_wording
    if statements.num_examples is not None:
        sampler.check_num_examples(statements.num_examples)
    return Certificate(
        **numbers,
        sentence=wording.sentence(mechanism, epsilon, delta, claim),
        gap=(epsilon if isinstance(epsilon, Interval) else delta).gap,
        unit=wording.unit_of(mechanism),
        adjacency=adjacency,
        also_holds_for=also,
        neighbours=wording.neighbours(mechanism, relations),
        released=wording.released(mechanism),
        prefixes=of_format.prefixes(mechanism),
        not_covered=of_format.not_covered(statements, generator),
        actors=wording.actors(mechanism),
        rates=rates(sampler, statements.num_examples),
        noise=_noise(mechanism, sensitivity, statements),
        bits=wording.bits(mechanism),
        sensitivity=sensitivity,
        strategy_digest=mechanism.matrix.digest if mechanism.strategy.optimised else None,
        references=(
            *(reference_of(name) for name in wording.methods_used(method)),
            *mechanism.unit.references,
            *(() if generator is None else ("docs/theory/generators.md",)),
            *(("docs/theory/exact-noise.md",) if mechanism.exact else ()),
        ),
        assumptions=of_format.assumptions(mechanism, method, claim, statements),
        caveats=of_format.caveats(claim, exact=mechanism.exact),
        recompute=of_format.recompute(mechanism),
        keep_private=of_format.keep_private(mechanism, relations, statements),
        statements=statements,
    ).sealed()


def state(certificate: Certificate, statements: Statements) -> Certificate:
    """The same claim with other statements of the user, and all that follows from them.

    Raises: InvalidInputError when the statements do not suit the mechanism: a number of examples that the sampler does
        not take, or an assumption that is not one of this certificate's.

    >>> import hockeystick as hs
    >>> run = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.01, steps=100), noise_multiplier=1.5)
    >>> said = hs.Statements(label="run 7", num_examples=60_000, clipping_norm=2.0)
    >>> hs.state(hs.certify(run, delta=1e-5), said).noise.standard_deviation
    3.0
    """
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
