"""Certificates as short text, and numbers that are never rounded to the wrong side."""

from typing import TYPE_CHECKING

from hockeystick.certificate.parts import ForeignNoise, Interval
from hockeystick.monte_carlo.claim import Statement

if TYPE_CHECKING:
    from hockeystick.certificate.base import CertificateBase


def certificate_text(certificate: "CertificateBase", *, requirements: bool = True) -> str:
    """A certificate as a reader wants it: the claim first, then what it rests on.

    Args:
        requirements: list what the run must do.
    """
    mechanism = certificate.mechanism
    bounds = certificate.bounds
    lines = []
    if isinstance(certificate.epsilon, Interval):
        lines.append(f"(epsilon, delta) = ({number(bounds.upper)}, {exact(certificate.delta)}) is certified")
        lines.append(f"  epsilon           {interval_text(bounds)}")
        lines.append(f"  delta             {exact(certificate.delta)}")
    else:
        lines.append(f"(epsilon, delta) = ({exact(certificate.epsilon)}, {number(bounds.upper)}) is certified")
        lines.append(f"  epsilon           {exact(certificate.epsilon)}")
        lines.append(f"  delta             {interval_text(bounds)}")
    lower_method = f", lower bound by {certificate.method.lower}" if certificate.method.lower else ""
    also = "".join(f", also {adjacency.value}" for adjacency in certificate.also_holds_for)
    if mechanism.unit.kind == "user":
        lines.append(f"  unit              {mechanism.unit.described}")
    lines += [
        f"  noise multiplier  {exact(mechanism.sigma)} clipping norms, not divided by the "
        f"sensitivity {certificate.sensitivity:g} of the strategy ({mechanism.strategy.kind})",
        *([] if certificate.generator is None else [f"  generator         {generator_text(certificate.generator)}"]),
        f"  method            upper bound by {certificate.method.upper}{lower_method}",
        f"  kind              {kind_text(certificate)}",
        f"  adjacency         {certificate.adjacency.value}{also}",
    ]
    if requirements:
        lines += ["  the run must", *(f"    - {requirement}" for requirement in certificate.requirements)]
    if certificate.cut_off:
        left = ", ".join(f"{one.method} ({one.side.value}, about {one.seconds:.2g} s)" for one in certificate.cut_off)
        lines.append(f"  no time for       {left}; more seconds may give a better bound")
    return "\n".join(lines)


def generator_text(generator: ForeignNoise) -> str:
    """Whose numbers the noise is made of, and what that says of delta."""
    return (
        f"{generator.name}, whose numbers end at {number(generator.lowest, up=False)} and {number(generator.highest)}: "
        f"delta is at least {number(generator.floor, up=False)} at every epsilon; rounding is not covered"
    )


def kind_text(certificate: "CertificateBase") -> str:
    """The kind, and for Monte Carlo bounds what the failure probability is about."""
    claim = certificate.monte_carlo
    if claim is None:
        return certificate.kind.value
    if claim.statement is Statement.ESTIMATE_VERIFY_RELEASE:
        chance = f"{claim.failure_probability:g}"
        text = f"{certificate.kind.value}; delta includes the probability {chance} that the random test errs"
        if certificate.method.lower != certificate.method.upper:
            return text
        return f"{text}; the lower bound fails with probability at most {chance}"
    return f"{certificate.kind.value}; fails with probability at most {claim.failure_probability:g}"


def interval_text(bounds: Interval) -> str:
    """``at most U, at least L (gap g)``."""
    if bounds.lower is None:
        return f"at most {number(bounds.upper)} (no lower bound)"
    gap = f" (gap {_two_digits(100.0 * bounds.gap)} percent)" if bounds.gap is not None else ""
    return f"at most {number(bounds.upper)}, at least {number(bounds.lower, up=False)}{gap}"


def _two_digits(value: float) -> str:
    """Two significant digits, and never an exponent where whole numbers will do: 0.028, 24, 242."""
    return f"{value:.0f}" if 99.5 <= value < 1e6 else f"{value:.2g}"


def exact(value: object) -> str:
    """All digits of a number that was given: a rounded one would not be what is certified. Other values as they are."""
    if isinstance(value, bool | int | str):
        return str(value)
    text = f"{value:g}"
    return text if float(text) == value else repr(value)


def number(value: float, *, up: bool = True) -> str:
    """Six significant digits, rounded to the safe side."""
    text = f"{value:.6g}"
    if (float(text) < value) if up else (float(text) > value):
        digits = f"{value:.17e}"
        exponent = int(digits.split("e")[1])
        step = 10.0 ** (exponent - 5)
        text = f"{value + step if up else value - step:.6g}"
    return text
