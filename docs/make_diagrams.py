"""The diagrams of the site, which ``python docs/make_reference.py`` writes.

Those of the samplers are real batches of the real samplers from a fixed seed: a row is an example, a column is a step,
and a square says that the example is in that step's batch. One example is picked out.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

import hockeystick as hs
from hockeystick.samplers import SAMPLER_OPTIONS, BatchSampler, Data
from hockeystick.samplers.epochs import EpochSampler

DIAGRAMS = Path(__file__).parent / "diagrams"
EXAMPLES, BINS, EPOCHS, SEED, SIDE = 24, 8, 3, 7, 12
OPTIONS: dict[str, dict[str, int]] = {"cyclic_poisson": {"groups": 4}, "b_min_sep": {"min_sep": 4}}
"""What a plan has to say beside the kind, where it has to."""
USERS = hs.MultiAttribution(sampling_prob=1 / 6, min_sep=3, steps=BINS * EPOCHS, examples_per_user=2)
INK, PALE, MARK, PAPER = "#33475b", "#9fb3c8", "#c2410c", "#ffffff"
FONT = 'font-family="sans-serif" font-size="13"'


def diagrams() -> dict[str, str]:
    """File name to content."""
    data = Data(num_examples=EXAMPLES, batch_size=EXAMPLES // BINS, epochs=EPOCHS)
    drawn = {kind: scheme for kind, scheme in SAMPLER_OPTIONS.items() if kind != USERS.kind}
    samplers = {kind: scheme(**OPTIONS.get(kind, {})).sampler(data) for kind, scheme in drawn.items()}
    samplers[USERS.kind] = USERS
    return {"path.svg": _path()} | {f"{kind}.svg": _sampler(kind, sampler) for kind, sampler in samplers.items()}


def _sampler(name: str, sampler: BatchSampler) -> str:
    rng = np.random.default_rng(SEED)
    options = {}
    if isinstance(sampler, hs.MultiAttribution):
        examples = np.arange(EXAMPLES)
        options["attribution"] = hs.Attribution.from_pairs(examples // sampler.examples_per_user, examples)
    batches = list(sampler.batches(EXAMPLES, rng, **options))
    marked = EXAMPLES // 2
    squares = [(step, int(row)) for step, batch in enumerate(batches) for row in batch]
    width, height = 40 + SIDE * len(batches) + 16, 24 + SIDE * EXAMPLES + 32
    lines = [f'<rect x="40" y="{24 + SIDE * marked}" width="{SIDE * len(batches)}" height="{SIDE}" fill="#fde6d8"/>']
    lines += [_squares((at for at in squares if at[1] != marked), PALE)]
    lines += [_squares((at for at in squares if at[1] == marked), MARK)]
    if isinstance(sampler, EpochSampler):
        ends = (40 + SIDE * BINS * epoch for epoch in range(1, EPOCHS))
        lines += [f'<path d="M{x} 20V{28 + SIDE * EXAMPLES}" stroke="{INK}" stroke-dasharray="3 3"/>' for x in ends]
    lines += [
        f'<text x="40" y="15" {FONT} fill="{INK}">{name}</text>',
        f'<text x="40" y="{height - 10}" {FONT} fill="{INK}">steps →</text>',
        _upwards(26, 24 + SIDE * EXAMPLES, "examples →"),
    ]
    return _svg(width, height, f"{name}: which of {EXAMPLES} examples are in which of {len(batches)} batches", lines)


def _upwards(x: int, y: int, text: str) -> str:
    return f'<text x="{x}" y="{y}" {FONT} fill="{INK}" transform="rotate(-90 {x} {y})">{text}</text>'


def _squares(places: Iterable[tuple[int, int]], colour: str) -> str:
    inner = SIDE - 2
    path = "".join(f"M{41 + SIDE * x} {25 + SIDE * y}h{inner}v{inner}h-{inner}z" for x, y in places)
    return f'<path d="{path}" fill="{colour}"/>'


def _path() -> str:
    stations = ["plan", "mechanism", "pair", "accountants", "bounds", "certificate"]
    says = [
        "data, epochs, target",
        "C, sampler, sigma",
        "P against Q",
        "upper and lower",
        "delta(epsilon)",
        "the claim",
    ]
    lines: list[str] = []
    for place, (station, said) in enumerate(zip(stations, says, strict=True)):
        x = 10 + 160 * place
        lines += [
            f'<rect x="{x}" y="20" width="130" height="50" rx="6" fill="#eef2f6" stroke="{INK}"/>',
            f'<text x="{x + 65}" y="41" text-anchor="middle" font-weight="bold" {FONT} fill="{INK}">{station}</text>',
            f'<text x="{x + 65}" y="59" text-anchor="middle" {FONT} fill="{INK}">{said}</text>',
        ]
        if place:
            lines += [_arrow(f"M{x - 30} 45H{x - 2}")]
    for y, call, used in (
        (105, "sampler.batches(...)", "what the run reads"),
        (140, "noise.stream(...)", "what it adds"),
    ):
        lines += [
            _arrow(f"M235 70V{y}H258"),
            f'<text x="266" y="{y + 5}" {FONT} fill="{MARK}">{call}: {used}</text>',
        ]
    lines += [_arrow("M875 70V122H720"), f'<text x="560" y="127" {FONT} fill="{INK}">verify: recompute it all</text>']
    return _svg(960, 160, "From a plan to a certificate", lines)


def _arrow(path: str) -> str:
    return f'<path d="{path}" fill="none" stroke="{INK}" marker-end="url(#tip)"/>'


def _svg(width: int, height: int, title: str, lines: list[str]) -> str:
    tip = '<marker id="tip" orient="auto" markerWidth="8" markerHeight="8" refX="6" refY="4">'
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        f"<title>{title}</title>",
        f'<defs>{tip}<path d="M0 0L8 4L0 8z" fill="{INK}"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="{PAPER}"/>',
    ]
    return "\n".join([*head, *lines, "</svg>"]) + "\n"
