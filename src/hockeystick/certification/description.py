"""A whole certificate from its numbers: everything that follows from them without an accountant."""

import platform
from typing import Any

import numpy
import scipy

from hockeystick._version import __version__
from hockeystick.accountants.registry import ACCOUNTANTS
from hockeystick.certificate import Accuracy, Certificate, CutOff, Interval, Noise, Origin, Statements
from hockeystick.certification import wording
from hockeystick.certification.rates import rates
from hockeystick.mechanism import Mechanism
from hockeystick.types import Adjacency

NUMBERS = (
    "mechanism",
    "epsilon",
    "delta",
    "method",
    "kind",
    "confidence",
    "monte_carlo",
    "without_amplification",
    "numbers",
    "origin",
)
"""The fields that the others follow from."""


def described(statements: Statements, **numbers: Any) -> Certificate:
    """The sealed certificate with these numbers, which are the fields of ``NUMBERS``.

    Raises: InvalidInputError when the statements do not suit the mechanism.
    """
    mechanism: Mechanism = numbers["mechanism"]
    epsilon, delta, method, claim = (numbers[name] for name in ("epsilon", "delta", "method", "monte_carlo"))
    sampler, sensitivity = mechanism.sampler, mechanism.matrix.max_column_norm
    adjacency = Adjacency(mechanism.unit.neighbours)
    others = sampler.holds_for if adjacency is Adjacency.ZERO_OUT else ()
    also = tuple(other for other in others if other is not Adjacency.ZERO_OUT)
    relations = (adjacency, *also)
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
        prefixes=wording.prefixes(mechanism),
        not_covered=wording.not_covered(statements),
        actors=wording.actors(mechanism),
        rates=rates(sampler, statements.num_examples),
        noise=_noise(mechanism, sensitivity, statements),
        sensitivity=sensitivity,
        strategy_digest=mechanism.matrix.digest if mechanism.strategy.optimised else None,
        references=(
            *(ACCOUNTANTS[name].reference for name in wording.methods_used(method)),
            *mechanism.unit.references,
        ),
        assumptions=wording.assumptions(mechanism, method, claim, statements),
        caveats=wording.caveats(claim),
        recompute=wording.recompute(mechanism),
        keep_private=wording.keep_private(mechanism, relations, statements),
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


def origin(accuracy: Accuracy, cut_off: tuple[CutOff, ...]) -> Origin:
    """How a certificate is made here and now."""
    versions = {"python": platform.python_version(), "numpy": numpy.__version__, "scipy": scipy.__version__}
    return Origin(hockeystick_version=__version__, library_versions=versions, accuracy=accuracy, cut_off=cut_off)


def _noise(mechanism: Mechanism, sensitivity: float, statements: Statements) -> Noise:
    sigma, norm, divisor = mechanism.sigma, statements.clipping_norm, statements.normaliser
    absolute = None if norm is None else sigma * norm
    return Noise(
        multiplier=sigma,
        over_sensitivity=sigma / sensitivity,
        standard_deviation=absolute,
        standard_deviation_of_mean=None if absolute is None or divisor is None else absolute / divisor,
    )
