"""Small reports: a certificate with everything that a report can show, a comparison and a sweep."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

import hockeystick as hs
from hockeystick.audit import Addendum, addendum
from hockeystick.certificate import AnyCertificate, Certificate, CertificateOfFormat1, Interval
from hockeystick.certification.schedule import Outcome
from hockeystick.composition.composition import Composition
from hockeystick.composition.tuning import Tuning
from hockeystick.curve import Curve, Sandwich
from hockeystick.recomputed import Recomputed, RecomputedTogether
from hockeystick.report.html.comparison import BoundOfMethod, Comparison
from hockeystick.report.html.sweep import CellOfSweep
from hockeystick.types import Kind, Side

RUN = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.1, steps=10), noise_multiplier=2.0)


@cache
def certificate() -> Certificate:
    """Of a run whose bounds are quick, with statements."""
    said = hs.Statements(label="a label", date="2030-01-31", tuning="none", other_releases="none", num_examples=100)
    return hs.state(hs.certify(RUN, delta=1e-5), said)


@cache
def audited() -> Addendum:
    """An addendum to that certificate, of the audits that are quick."""
    return addendum(certificate(), num_examples=100, parts=("sampler", "noise"), level=1e-3, seed=1)


@cache
def together() -> Composition:
    """Of that certificate, twice."""
    return hs.compose([certificate(), certificate()], delta=1e-5)


@cache
def best() -> Tuning:
    """Of a few trials of that run."""
    return hs.tuning(certificate(), trials=3, delta=1e-5)


@cache
def of_format_1() -> CertificateOfFormat1:
    """One that version 0.1.0 wrote."""
    folder = Path(__file__).parents[2] / "certification" / "certificates-0.1.0"
    loaded = Certificate.load(folder / "poisson.json")
    assert isinstance(loaded, CertificateOfFormat1)
    return loaded


def asked(claim: Composition | Tuning) -> RecomputedTogether:
    """Bounds at other deltas, as if computed again."""
    epsilons = {1e-6: Interval(lower=1.0000009, upper=2.0000001), 1e-5: claim.epsilon}
    assert isinstance(claim.epsilon, Interval)
    return RecomputedTogether(None, epsilons, ("Something was left out.",))


def recomputed(about: AnyCertificate) -> Recomputed:
    """Curves with a wide band, two methods and some noise multipliers, as if computed again."""
    epsilons = np.linspace(0.0, 3.0, 13)
    upper = 0.3 * np.exp(-3.3333333 * epsilons)
    alphas = np.linspace(0.0, 1.0, 21)
    return Recomputed(
        unverified=None,
        curve=Curve(
            mechanism=about.mechanism,
            bounds={},
            profile=Sandwich(epsilons, 0.3333333 * upper, upper),
            trade_off=Sandwich(alphas, 0.5 * (1.0 - alphas) ** 2, (1.0 - alphas) ** 2),
            numbers={"mu": (0.4999999, 0.5000001), "regret": (0.0, float("inf"))},
        ),
        outcomes=(
            outcome("tight", Side.UPPER, 2.0000001),
            outcome("tight", Side.LOWER, 1.0000009),
            outcome("loose", Side.UPPER, 3.0),
            outcome("refused", Side.UPPER, None, "not applicable: it has no analysis"),
        ),
        noise={1.0: 3.7306321, 2.0: 2.0000001},
        method="gaussian",
        left_out=("Something was left out.",),
    )


def outcome(method: str, side: Side, value: float | None, status: str = "ok") -> Outcome:
    return Outcome(method, side, Kind.DETERMINISTIC, 1.0, value, 0.25, status)


def comparison() -> Comparison:
    bounds = (
        ("tight", Side.UPPER, 2.0000001, "ok"),
        ("loose", Side.UPPER, 30.0, "ok"),
        ("tight", Side.LOWER, 1.0000009, "ok"),
        ("refused", Side.LOWER, None, "not applicable"),
    )
    return Comparison(
        delta=1e-5,
        noise_multiplier=2.0,
        bounds=tuple(
            BoundOfMethod(
                method=method,
                side=side,
                kind=Kind.DETERMINISTIC,
                confidence=1.0,
                epsilon=value,
                seconds=0.5,
                status=status,
            )
            for method, side, value, status in bounds
        ),
    )


def sweep() -> list[CellOfSweep]:
    """Two epochs, three noise multipliers; one cell has no certificate."""
    cells = []
    for epochs in (1, 2):
        for noise in (1.0, 2.0, 4.0):
            fields = {"data.epochs": epochs, "noise_multiplier": noise}
            bounds = Interval(lower=epochs / noise, upper=1.5000001 * epochs / noise)
            cells.append(CellOfSweep(fields=fields, status="certified", seconds=0.1, delta=1e-5, epsilon=bounds))
    cells[-1] = CellOfSweep(fields=cells[-1].fields, status="The budget is over.", seconds=0.1)
    return cells


def with_strings(recomputed: Recomputed, text: str) -> Recomputed:
    """What was computed again, with this text in place of its strings."""
    outcomes = tuple(
        replace(outcome, method=f"{text}{k}", status=text) for k, outcome in enumerate(recomputed.outcomes)
    )
    return replace(recomputed, outcomes=outcomes, method=text, left_out=(text,))
