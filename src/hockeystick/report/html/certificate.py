"""The report of a certificate: its claim, what was computed again beside it, and what is known of its assumptions."""

from collections.abc import Sequence
from math import inf
from typing import Any

from hockeystick._version import __version__
from hockeystick.audit import Addendum
from hockeystick.audit.annex import LOOKED_AT, Check
from hockeystick.audit.annex import Outcome as Known
from hockeystick.certificate import AnyCertificate, Certificate, Interval, number
from hockeystick.recomputed import Recomputed
from hockeystick.report.certificate import document
from hockeystick.report.curves import TITLES
from hockeystick.report.html.common import band, between, methods_plot
from hockeystick.report.html.comparison import EXPLANATION, BoundOfMethod, methods_rows
from hockeystick.report.html.page import Notice, Page, Plot, Plots, Table
from hockeystick.training import RunRecord

RESTS_ON = "the claim holds if"


def certificate_page(
    certificate: Certificate,
    recomputed: Recomputed,
    addenda: Sequence[Addendum] = (),
    *,
    public: bool = False,
    record: RunRecord | None = None,
) -> Page:
    """The page of a certificate.

    Args:
        recomputed: what was computed again from it.
        addenda: about this certificate.
        public: leave out the fields that should not be published.
        record: of the run that the certificate covers.
    """
    said = {section.heading: section for section in document(certificate, public=public, record=record).sections}
    claim, protection, run, rests_on, of_run, rest = said.values()
    assert rests_on.heading == RESTS_ON
    return Page(
        kind="Certificate",
        title=certificate.sentence,
        notices=[*_contradictions(addenda), verdict(recomputed.unverified)],
        blocks=(
            claim,
            plots(certificate, recomputed),
            attackers(recomputed),
            _assumptions(certificate, addenda, record),
            _audits(addenda),
            of_run,
            protection,
            run,
            rest,
        ),
        colophon=recomputed.left_out,
    )


def _contradictions(addenda: Sequence[Addendum]) -> list[Notice]:
    return [
        Notice("bad", f"An audit contradicts the assumption {check.assumption!r}: {check.text}")
        for addendum in addenda
        for check in addendum.checks
        if check.outcome is Known.REFUTED
    ]


def verdict(unverified: str | None) -> Notice:
    """Whether the claim was derived again."""
    if unverified is None:
        return Notice("good", f"Verified: the claim was derived again, by hockeystick {__version__}.")
    return Notice("plain", unverified)


def plots(certificate: AnyCertificate, recomputed: Recomputed) -> Plots:
    """The curves of one run, its noise at other epsilons, and its methods."""
    note = (
        f"hockeystick {__version__} computed these plots again from the mechanism. The points named 'the claim' are "
        "what the certificate states. At each computed point the truth is within the band; lines only join the points."
    )
    return Plots("plots", note, _plots(certificate, recomputed))


def _plots(certificate: AnyCertificate, recomputed: Recomputed) -> list[Plot]:
    drawn = []
    if recomputed.curve is not None:
        drawn += [_profile(certificate, recomputed), _trade_off(recomputed)]
    if recomputed.noise:
        drawn.append(_noise(certificate, recomputed))
    if recomputed.outcomes:
        bounds = [
            BoundOfMethod(
                method=outcome.method,
                side=outcome.side,
                kind=outcome.kind,
                confidence=outcome.confidence,
                epsilon=None if outcome.value == inf else outcome.value,
                seconds=outcome.seconds,
                status=outcome.status,
            )
            for outcome in recomputed.outcomes
        ]
        _, delta = certificate.question.claimed(certificate.bounds.upper)
        text = f"All bounds are at delta = {delta:g}. {EXPLANATION}"
        drawn.append(Plot("intervals", methods_plot("epsilon by method", text, methods_rows(bounds))))
    return drawn


def _profile(certificate: AnyCertificate, recomputed: Recomputed) -> Plot:
    assert recomputed.curve is not None
    profile = recomputed.curve.profile
    smallest = min(value for value in profile.upper.tolist() if value > 0.0)
    _, delta = certificate.question.claimed(certificate.bounds.upper)
    spec = {
        "title": "delta by epsilon",
        "description": "The run is (epsilon, delta)-differentially private for every upper point in the table.",
        "x": {"label": "epsilon"},
        "y": {"label": "delta", "scale": "log", "domain": [0.5 * min(smallest, delta), 1.0]},
        "series": [
            band("deterministic bounds", profile.x.tolist(), profile.lower.tolist(), profile.upper.tolist()),
            _claim(certificate),
        ],
    }
    return Plot("plot", spec)


def _claim(certificate: AnyCertificate) -> dict[str, object]:
    """The certificate's own interval as points of its profile."""
    bounds = certificate.bounds
    if not isinstance(certificate.epsilon, Interval):
        epsilon = certificate.epsilon
        return band("the claim", [epsilon], [bounds.lower], [bounds.upper]) | {"points": True}
    _, delta = certificate.question.claimed(bounds.upper)
    if bounds.lower is None:
        return band("the claim", [bounds.upper], [None], [delta]) | {"points": True}
    return band("the claim", [bounds.lower, bounds.upper], [delta, None], [None, delta]) | {"points": True}


def _trade_off(recomputed: Recomputed) -> Plot:
    assert recomputed.curve is not None
    curve = recomputed.curve.trade_off
    spec = {
        "title": "trade-off curve",
        "description": "Every attack has at least the error rate in the left column. "
        "Some attack achieves the one on the right.",
        "x": {"label": "type I error (false positives)", "domain": [0, 1]},
        "y": {"label": "type II error (missed)", "domain": [0, 1]},
        "series": [
            band("best attack", curve.x.tolist(), curve.lower.tolist(), curve.upper.tolist()),
            {"name": "guessing", "x": [0, 1], "y": [1, 0], "reference": True},
        ],
    }
    return Plot("plot", spec)


def _noise(certificate: AnyCertificate, recomputed: Recomputed) -> Plot:
    epsilon, delta = certificate.question.claimed(certificate.bounds.upper)
    name = f"certified by {recomputed.method}"
    series: list[dict[str, Any]] = [
        {"name": name, "x": list(recomputed.noise), "y": list(recomputed.noise.values()), "side": "upper"}
    ]
    if epsilon > 0.0:
        here = {"name": "the claim", "x": [epsilon], "y": [certificate.mechanism.sigma]}
        series.append(here | {"side": "upper", "points": True})
    spec = {
        "title": "noise multiplier by epsilon",
        "description": f"The smallest noise multiplier certified for each epsilon, at delta = {delta:g}.",
        "x": {"label": "epsilon", "scale": "log"},
        "y": {"label": "noise multiplier", "scale": "log"},
        "series": series if epsilon > 0.0 else series[:1],
    }
    return Plot("plot", spec)


def attackers(recomputed: Recomputed) -> Table:
    """What the curve says in single numbers."""
    numbers = {} if recomputed.curve is None else recomputed.curve.numbers
    rows = [(TITLES.get(name, name), *between(*ends)) for name, ends in numbers.items() if name != "epsilon"]
    note = (
        "These numbers are computed from the deterministic bounds on the whole curve. The mu in this table covers the "
        "run up to 1e-10 in delta. The mu of the claim covers it up to the certified delta."
    )
    return Table("what an attacker gains", note, ("number", "at least", "at most"), rows)


def _assumptions(certificate: Certificate, addenda: Sequence[Addendum], record: RunRecord | None) -> Table:
    rows = []
    for place, assumption in enumerate(certificate.assumptions):
        evidence = "" if assumption.evidence is None else f" ({assumption.evidence})"
        of_run = None if record is None else record.about(assumption.name)
        cells = [assumption.name, assumption.text]
        if record is not None:
            cells.append("" if of_run is None else f"{of_run[0]}. {of_run[1]}")
        cells.append("" if of_run is not None and not evidence else f"{assumption.status.value}{evidence}")
        if addenda:
            cells.append("; ".join(_verdict(addendum.checks[place]) for addendum in addenda))
        rows.append(cells)
    columns = [
        "assumption",
        "what it says",
        *(["run"] if record else []),
        "certificate",
        *(["audits"] if addenda else []),
    ]
    rows += [["caveat", caveat, *[""] * (len(columns) - 2)] for caveat in certificate.caveats]
    note = "This report has no audit. 'hockeystick audit --certificate FILE' tests the batches and the noise."
    if addenda:
        note = "An assumption that passed an audit is not proved: the audit found nothing against it."
    return Table(RESTS_ON, note, columns, rows, wordy=True)


def _verdict(check: Check) -> str:
    outcome = check.outcome.value.replace("_", " ")
    return f"{outcome} ({', '.join(check.by)})" if check.by else outcome


def _audits(addenda: Sequence[Addendum]) -> Table:
    rows = []
    for addendum in addenda:
        for evidence in addendum.evidence:
            verdict = evidence.verdict
            broken = [f"{each.name}: {each.says}" for each in verdict.findings if each.broken]
            result = "refuted" if verdict.refuted else "nothing found"
            said = "; ".join(broken) or "nothing was found against the claim"
            if verdict.epsilon is not None:
                said += f"; epsilon at least {number(verdict.epsilon.audited, up=False)} by this audit"
            rows.append(
                (evidence.audit, result, LOOKED_AT[evidence.audit], f"{verdict.samples}", f"{evidence.level:g}", said)
            )
    note = "These are the verdicts of the addenda; 'hockeystick verify ADDENDUM' derives them again."
    columns = ("audit", "verdict", "looked at", "how many", "false-alarm level", "findings")
    return Table("audits", note, columns, rows, wordy=True)
