"""The reports of claims that hold no description of their own: of several runs, of a search, and of format 1."""

from collections.abc import Sequence
from typing import Any

from hockeystick.certificate import AnyCertificate, CertificateOfFormat1, Interval, exact, interval_text, number
from hockeystick.composition.claims import DerivedClaim, unit_of
from hockeystick.composition.composition import Composition, described
from hockeystick.composition.tuning import Tuning
from hockeystick.recomputed import Recomputed, RecomputedTogether
from hockeystick.report.document import Row, Section
from hockeystick.report.html.certificate import RESTS_ON, attackers, plots, verdict
from hockeystick.report.html.common import band, methods_plot
from hockeystick.report.html.comparison import EXPLANATION
from hockeystick.report.html.page import Page, Plot, Plots, Table


def page_of_format_1(certificate: CertificateOfFormat1, recomputed: Recomputed) -> Page:
    """The page of a certificate that version 0.1.0 wrote."""
    lower = certificate.method.lower
    method = f"upper bound by {certificate.method.upper}" + ("" if lower is None else f", lower bound by {lower}")
    rows = (
        Row("method", f"{method}; {certificate.kind_text}"),
        Row("format", "1, of which no certificates are issued any more"),
    )
    return Page(
        kind="Certificate",
        title=_sentence("The run is", certificate, unit_of(certificate)),
        notices=(verdict(recomputed.unverified),),
        blocks=(
            _claim(certificate, *rows),
            plots(certificate, recomputed),
            attackers(recomputed),
            _requirements((), [certificate.requirements]),
            Section("what was run", (Row("mechanism", described(certificate.mechanism)),)),
        ),
        colophon=recomputed.left_out,
    )


def page_of_claim(claim: Composition | Tuning, recomputed: RecomputedTogether) -> Page:
    """The page of a claim that follows from the certificates in it."""
    failure = claim.failure_probability
    risk = ""
    if failure is not None:
        risk = f"; fails with probability at most {number(failure)}, the sum over its certificates"
    about = Row("released" if isinstance(claim, Tuning) else "runs", claim.about)
    return Page(
        kind=claim.what.capitalize(),
        title=_sentence(claim.subject, claim, unit_of(claim.certificates[0])),
        notices=(verdict(recomputed.unverified),),
        blocks=(
            _claim(claim, about, Row("kind", f"{claim.kind.value}{risk}")),
            Plots("plots", f"{EXPLANATION} Lines only join the computed points.", _plots(claim, recomputed)),
            _certificates(claim),
            _requirements(claim.requirements, [certificate.requirements for certificate in claim.certificates]),
        ),
        colophon=recomputed.left_out,
    )


def _sentence(subject: str, claim: AnyCertificate | DerivedClaim, unit: str) -> str:
    bounds = claim.bounds
    epsilon = number(bounds.upper) if isinstance(claim.epsilon, Interval) else exact(claim.epsilon)
    delta = number(bounds.upper) if isinstance(claim.delta, Interval) else exact(claim.delta)
    return f"{subject} ({epsilon}, {delta})-differentially private for one {unit}."


def _claim(claim: AnyCertificate | DerivedClaim, *rows: Row) -> Section:
    bounded, given = ("epsilon", "delta") if isinstance(claim.epsilon, Interval) else ("delta", "epsilon")
    also = "".join(f", also {adjacency.value}" for adjacency in claim.also_holds_for)
    rows = (
        Row(bounded, f"{interval_text(claim.bounds)}, at {given} {exact(getattr(claim, given))}"),
        *rows,
        Row("adjacency", f"{claim.adjacency.value}{also}"),
        Row("recompute", f"hockeystick verify FILE (SHA-256 {claim.digest})"),
    )
    return Section("claim", rows)


def _plots(claim: Composition | Tuning, recomputed: RecomputedTogether) -> list[Plot]:
    """Epsilon by delta of the whole, and the epsilons that the claim and its certificates state."""
    _, delta = claim.question.claimed(claim.bounds.upper)
    deltas, ends = list(recomputed.epsilons), list(recomputed.epsilons.values())
    whole = band("together", deltas, [interval.lower for interval in ends], [interval.upper for interval in ends])
    own = recomputed.epsilons[delta]
    drawn = []
    if len(deltas) > 1:
        spec = {
            "title": "epsilon by delta",
            "description": "The curve is computed again from the certificates. The point named 'the claim' is what the "
            "file states.",
            "x": {"label": "delta", "scale": "log"},
            "y": {"label": "epsilon"},
            "series": [whole, band("the claim", [delta], [own.lower], [own.upper]) | {"points": True}],
        }
        drawn.append(Plot("plot", spec))
    rows = [_interval(f"the claim, at delta {exact(delta)}", own.lower, own.upper)]
    for place, certificate in enumerate(claim.certificates, 1):
        epsilon, at = certificate.question.claimed(certificate.bounds.upper)
        lower = certificate.bounds.lower if isinstance(certificate.epsilon, Interval) else None
        rows.append(_interval(f"certificate {place}, at delta {number(at)}", lower, epsilon))
    title = "epsilon of the claim and of its certificates"
    note = "Each epsilon is at the delta that its certificate or claim states."
    return [*drawn, Plot("intervals", methods_plot(title, note, rows))]


def _interval(name: str, lower: float | None, upper: float) -> dict[str, Any]:
    return {"name": name, "lower": lower, "upper": upper, "note": ""}


def _certificates(claim: Composition | Tuning) -> Table:
    rows = []
    for place, (certificate, methods) in enumerate(zip(claim.certificates, claim.methods, strict=True)):
        epsilon, delta = certificate.question.claimed(certificate.bounds.upper)
        enters = f"{methods.route.value} of {', '.join(methods.upper)}"
        below = "" if methods.lower is None else f"; from below by {methods.lower}"
        copies = claim.runs.count(place) if isinstance(claim, Composition) else claim.trials
        said = f"({number(epsilon)}, {number(delta)}), {certificate.kind_text}"
        rows.append((f"{place + 1}", f"{copies}", described(certificate.mechanism), said, f"{enters}{below}"))
    columns = ("certificate", "runs", "mechanism", "claims by itself", "enters with the")
    return Table("certificates", "The file of the claim contains all of these certificates.", columns, rows, wordy=True)


def _requirements(together: Sequence[str], of_each: Sequence[Sequence[str]]) -> Table:
    """What all runs together must do, and what those of each certificate must, every sentence once."""
    whose: dict[str, list[str]] = {}
    for place, requirements in enumerate(of_each, 1):
        for requirement in requirements:
            whose.setdefault(requirement, []).append(f"{place}")
    each = [("the run" if not together else f"runs of {', '.join(of)}", text) for text, of in whose.items()]
    rows = [("all runs", requirement) for requirement in together] + each
    note = "This file says what the runs must do, and nothing about whether they did."
    return Table(RESTS_ON, note, ("who", "must"), rows)
