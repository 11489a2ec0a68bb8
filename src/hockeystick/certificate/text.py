"""Parts of certificates as text, and numbers that are never rounded to the wrong side."""

from hockeystick.certificate.parts import ForeignNoise, Interval


def generator_text(generator: ForeignNoise) -> str:
    """Whose numbers the noise is made of, and what that says of delta."""
    return (
        f"{generator.name}, whose numbers end at {number(generator.lowest, up=False)} and {number(generator.highest)}: "
        f"delta is at least {number(generator.floor, up=False)} at every epsilon; rounding is not covered"
    )


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
