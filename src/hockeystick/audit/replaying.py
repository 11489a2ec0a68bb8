"""Tests whether the effect of one example is bounded, and whether anything is released without noise."""

from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

import numpy as np

from hockeystick.audit.tape import Array, Step, Tape
from hockeystick.audit.verdict import Finding, Verdict
from hockeystick.calls import called
from hockeystick.errors import InvalidInputError, shortened
from hockeystick.mechanism import Mechanism
from hockeystick.pairs.registry import dominating_pair
from hockeystick.spec import real_number

Data = TypeVar("Data")
ROUNDINGS = 16.0
"""Units of rounding that a released number may be off by, in proportion to itself and to the clipping norm."""


@called("hs.audit.replay(train, data, neighbour, clip_norm=1.0)")
def replay(
    train: Callable[[Data, Tape], object],
    data: Data,
    neighbour: Data,
    *,
    clip_norm: float,
    mechanism: Mechanism | None = None,
    neighbours: Literal["zero_out", "replace"] = "zero_out",
    seed: int = 0,
) -> Verdict:
    """Run a training loop on two neighbouring data sets with the same randomness, and compare what each step releases.

    >>> import hockeystick as hs
    >>> def train(examples, tape, normaliser=5.0):
    ...     rng, weights = np.random.default_rng(0), np.zeros(2)
    ...     for _ in range(3):
    ...         batch = examples[rng.random(len(examples)) < 0.5]
    ...         gradients = batch - weights
    ...         norms = np.linalg.norm(gradients, axis=1, keepdims=True)
    ...         total = (gradients / np.maximum(norms, 1.0)).sum(axis=0)
    ...         released = (total + 2.0 * rng.standard_normal(2)) / normaliser
    ...         weights = tape.step(released, normaliser=normaliser, state=weights + 0.1 * released)
    >>> examples = np.random.default_rng(1).normal(size=(10, 2))
    >>> other = np.concatenate([examples[:-1], [[40.0, 0.0]]])
    >>> hs.audit.replay(train, examples, other, clip_norm=1.0, neighbours="replace").refuted
    False
    >>> print(hs.audit.replay(train, examples, other, clip_norm=0.1, neighbours="replace").broken)
    ('sensitivity',)

    ``train`` runs three times: twice on ``data``, to see whether the same seed gives the same outputs, and once on
    ``neighbour``. After every step the later runs continue from the state of the first one, so that each step is
    compared from the same weights, as the analysis does. This finds gradients that are not clipped, or clipped after
    averaging; divisors or noise that depend on the batch; buffers and losses that are released without noise; losses
    that mix examples; values that are not finite.

    Guarantee: no chance is involved. A loop that keeps ``|difference of the sums| <= clip_norm`` in every step has
    no finding, as long as rounding moves what it releases by less than ``ROUNDINGS`` units in the last place, of itself
    and of the normaliser times the clipping norm. A difference that this example does not show, or that is smaller than
    the rounding, stays unseen (docs/theory/audits.md).

    Args:
        train: ``train(data, tape)`` makes all steps and calls ``tape.step`` at the end of each. It makes its model, its
            optimizer and its generators anew, from fixed seeds. Generators of ``random``, numpy and torch that are
            shared are seeded before every step.
        data, neighbour: two data sets that differ in one example, of the same size, so that the batches are the same.
        clip_norm: bound on the norm of what one example adds to a sum.
        mechanism: adds a check of the whole run: the differences times C are at most ``clip_norm`` times its
            sensitivity.
        neighbours: "zero_out" where the example of ``neighbour`` has no gradient (weight 0 in the loss, say, or left
            out of its batches); "replace" where it has another one, which may differ by twice the clipping norm.
        seed: of the shared generators.

    Raises: InvalidInputError for arguments out of range, a loop without steps, outputs that are no numbers, and a
    neighbour that changes no step.
    """
    if not callable(train):
        raise InvalidInputError(
            f"The 'train' argument must be a function of the data and a tape. Got {shortened(train)} instead."
        )
    clip_norm = real_number("clip_norm", clip_norm)
    if not (np.isfinite(clip_norm) and clip_norm > 0.0):
        raise InvalidInputError(
            f"The 'clip_norm' argument must be positive and finite. Got {shortened(clip_norm)} instead."
        )
    if neighbours not in ("zero_out", "replace"):
        raise InvalidInputError(
            f"The 'neighbours' argument must be 'zero_out' or 'replace'. Got {shortened(neighbours)} instead."
        )
    reach = clip_norm * (2.0 if neighbours == "replace" else 1.0)
    first = _run(train, data, Tape(seed=seed))
    if not first.steps:
        raise InvalidInputError(
            "The 'train' argument must call tape.step at the end of every step. It was never called."
        )
    again = _run(train, data, Tape(seed=seed, playing=True, states=first.states))
    findings = _determined(first.steps, again.steps)
    if not any(finding.broken for finding in findings):
        other = _run(train, neighbour, Tape(seed=seed, playing=True, states=first.states))
        findings = [*findings, *_compared(first.steps, other.steps, reach, mechanism)]
        if len(first.steps) == len(other.steps) and all(map(_same, first.steps, other.steps)):
            raise InvalidInputError(
                "The 'neighbour' argument must change what at least one step releases, or the replay shows nothing. It "
                "changes no step; perhaps its example is in no batch."
            )
    findings.sort(key=lambda finding: not finding.broken)
    return Verdict(
        about="replay",
        claimed={
            "clip_norm": clip_norm,
            "neighbours": neighbours,
            "mechanism": None if mechanism is None else mechanism.model_dump(mode="json"),
        },
        level=0.0,
        samples=len(first.steps),
        findings=tuple(findings),
    )


def _run(train: Callable[[Data, Tape], object], data: Data, tape: Tape) -> Tape:
    tape.begin()
    train(data, tape)
    return tape


def _determined(first: Sequence[Step], again: Sequence[Step]) -> list[Finding]:
    places = [place for place, (step, twin) in enumerate(zip(first, again, strict=False)) if not _same(step, twin)]
    broken = bool(places) or len(first) != len(again)
    where = f"from step {places[0]} on" if places else "with another number of steps"
    says = "The same data and seeds give the same outputs."
    if broken:
        says = (
            f"The same data and seeds give another result the second time, {where}, so a replay shows nothing: seed "
            "every generator inside the loop, create the model anew, and use deterministic algorithms."
        )
    return [Finding(name="deterministic", broken=broken, says=says)]


def _same(step: Step, twin: Step) -> bool:
    return (
        np.array_equal(step.released, twin.released, equal_nan=True)
        and step.normaliser == twin.normaliser
        and not _differing(step, twin)
    )


def _differing(step: Step, twin: Step) -> list[str]:
    names = sorted({*step.exposed, *twin.exposed})
    return [
        name
        for name in names
        if name not in step.exposed
        or name not in twin.exposed
        or not np.array_equal(step.exposed[name], twin.exposed[name], equal_nan=True)
    ]


def _compared(first: Sequence[Step], other: Sequence[Step], reach: float, mechanism: Mechanism | None) -> list[Finding]:
    """The findings of a run on the data and one on its neighbour."""
    pairs = list(zip(first, other, strict=False))
    kept = [place for place, (step, twin) in enumerate(pairs) if step.released.shape == twin.released.shape]
    finite = [place for place in kept if all(np.isfinite(step.released).all() for step in pairs[place])]
    differences = {place: _difference(*pairs[place]) for place in finite}
    over = {
        place: float(np.linalg.norm(differences[place]))
        for place in finite
        if np.linalg.norm(differences[place]) > reach + _rounding(*pairs[place], reach)
    }
    exposed = sorted({name for step, twin in pairs for name in _differing(step, twin)})
    worst = max(over, key=lambda place: over[place], default=None)
    findings = [
        _finding("steps", len(first) != len(other), f"The runs have {len(first)} and {len(other)} steps."),
        _finding(
            "shapes", len(kept) < len(pairs), "What a step releases has another shape on the neighbouring data set."
        ),
        _finding("finite", len(finite) < len(kept), "A step releases values that are not finite."),
        _finding(
            "normaliser",
            any(step.normaliser != twin.normaliser for step, twin in pairs),
            "The number that noisy sums are divided by depends on the data.",
        ),
        _finding("exposed", bool(exposed), f"Released without noise, and dependent on the data: {', '.join(exposed)}."),
        _finding(
            "sensitivity",
            worst is not None,
            ""
            if worst is None
            else f"In step {worst} one example changes the sum by {over[worst]:.4g}, and at most "
            f"{reach:.4g} is allowed: it is not clipped, or it changes other gradients or the noise.",
        ),
    ]
    if mechanism is not None:
        findings.append(_whole(mechanism, differences, [_rounding(*pairs[place], reach) for place in finite], reach))
    return findings


def _finding(name: str, broken: bool, says: str) -> Finding:
    return Finding(name=name, broken=broken, says=says if broken else "As claimed.")


def _difference(step: Step, twin: Step) -> Array:
    """The difference of two sums, before they were divided."""
    return step.released * step.normaliser - twin.released * twin.normaliser


def _rounding(step: Step, twin: Step, reach: float) -> float:
    """What rounding can add to the norm of the difference, in units in the last place of what is released."""
    sizes = sum(abs(each.normaliser) * float(np.linalg.norm(each.released)) for each in (step, twin))
    return ROUNDINGS * max(step.resolution, twin.resolution) * (sizes + max(abs(step.normaliser), 1.0) * reach)


def _whole(mechanism: Mechanism, differences: dict[int, Array], rounding: list[float], reach: float) -> Finding:
    """The differences of all steps times C, against the sensitivity of the dominating pair."""
    matrix, steps = mechanism.matrix, mechanism.sampler.steps
    used = {place: difference for place, difference in differences.items() if place < steps}
    size = max((difference.size for difference in used.values()), default=1)
    moved = np.zeros((steps, size))
    for place, difference in used.items():
        moved[place, : difference.size] = difference
    sensitivity = dominating_pair(mechanism).full_sensitivity
    norm = float(np.linalg.norm(matrix.dot(moved)))
    room = float(np.sum(rounding)) * float(matrix.max_column_norm)
    says = (
        f"All steps together, times C, one example changes the outputs by {norm:.4g}, and at most "
        f"{reach * sensitivity:.4g} is allowed: it takes part more often than the sampler says."
    )
    return _finding("whole_run", norm > reach * sensitivity * (1.0 + 1e-9) + room, says)
