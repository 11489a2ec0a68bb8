"""The audits that need only a mechanism and a seed: the sampler and the noise of this library, without a model."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Literal, TypeVar

import numpy as np

from hockeystick.audit.chances import check_supported
from hockeystick.audit.outputs import mechanism as audit_mechanism
from hockeystick.audit.ratios import ratio_of
from hockeystick.audit.sampling import sampler as audit_sampler
from hockeystick.audit.verdict import Verdict
from hockeystick.audit.whiteness import noise as audit_noise
from hockeystick.certificate import Certificate
from hockeystick.deadline import Deadline
from hockeystick.errors import InvalidInputError
from hockeystick.mechanism import Mechanism
from hockeystick.noise import stream

T = TypeVar("T")
Part = Literal["sampler", "noise", "mechanism"]
PARTS: tuple[Part, ...] = ("sampler", "noise", "mechanism")
MOST_EXAMPLES = 1000
"""Examples whose batches are looked at, where the sampler takes any number."""
NUMBERS = 200_000
"""Numbers of noise that are looked at: enough to tell a scale that is off by 2 percent."""
FEWEST_PARAMETERS = 50
MOST_ROWS = 10_000
"""Rows of noise that are looked at, as each is compared with all before it."""


def check_parts(parts: Iterable[Part], mechanism: Mechanism) -> None:
    """Raise UnsupportedError for a sampler or outputs that cannot be audited, before anything that takes long."""
    for part in parts:
        if part == "sampler":
            check_supported(mechanism.sampler)
        elif part == "mechanism":
            ratio_of(mechanism)


def audit_part(
    part: Part,
    mechanism: Mechanism,
    *,
    num_examples: int,
    certificate: Certificate | None,
    samples: int,
    level: float,
    seed: int | None,
    deadline: Deadline | None = None,
) -> Verdict:
    """The verdict of one of ``PARTS``; a seed decides it, but for a deadline that ends it early.

    Args:
        num_examples: size of the data set; fewer are looked at where the sampler takes any number.
        certificate: of the mechanism, about epsilon; for the part "mechanism".
        samples: pairs of outputs, at most; for the part "mechanism".
        level: false-alarm probability of this part.
        seed: None for a fresh one of the operating system.
        deadline: ends the audit of a mechanism early, and the others without a verdict.

    Raises: as the audit of the part; BudgetExceededError when the deadline passes before a verdict.
    """
    rng = np.random.default_rng(None if seed is None else [PARTS.index(part), seed])
    if part == "sampler":
        size = _examples(mechanism, num_examples)
        batches = _watched(mechanism.sampler.batches(size, rng), deadline)
        return audit_sampler(batches, mechanism.sampler, num_examples=size, level=level)
    if part == "noise":
        size = max(-(-NUMBERS // mechanism.sampler.steps), FEWEST_PARAMETERS)
        noise = stream(mechanism, size, rng=rng).in_clipping_norms()
        rows = _watched(islice(noise, MOST_ROWS), deadline)
        return audit_noise(rows, mechanism, level=level)
    return audit_mechanism(mechanism, certificate=certificate, samples=samples, level=level, rng=rng, deadline=deadline)


def _watched(steps: Iterable[T], deadline: Deadline | None) -> Iterator[T]:
    """The steps, each reported to the deadline."""
    for step in steps:
        if deadline is not None:
            deadline.tick()
        yield step


def _examples(mechanism: Mechanism, num_examples: int) -> int:
    """How many examples to draw batches of: all, or fewer where the sampler takes any number."""
    fewer = min(MOST_EXAMPLES, num_examples)
    try:
        mechanism.sampler.batches(fewer, np.random.default_rng(0))
    except InvalidInputError:
        return num_examples
    return fewer
