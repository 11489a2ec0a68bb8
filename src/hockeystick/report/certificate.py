"""A certificate as a reader wants it: the claim, who is protected from whom, what was run, and what it rests on."""

from typing import TYPE_CHECKING

from hockeystick.certificate import (
    AttackNumbers,
    Certificate,
    CertificateBase,
    Interval,
    Methods,
    exact,
    generator_text,
    interval_text,
    number,
)
from hockeystick.claim import MonteCarloClaim, Statement
from hockeystick.errors import counted
from hockeystick.laws.profile import MAX_EPSILON
from hockeystick.mechanism import Mechanism
from hockeystick.report.document import Document, Row, Section
from hockeystick.strategies.companion import file_name
from hockeystick.types import Adjacency

if TYPE_CHECKING:
    from hockeystick.training import RunRecord

_SIZES = {"num_examples": "examples", "clipping_norm": "clipping norm", "normaliser": "normaliser"}


def shown(certificate: CertificateBase, record: "RunRecord | None" = None) -> str:
    """The certificate as text for a terminal, in fewer than 40 lines of 120 columns unless the user states much.

    With the record of its run it says what the run checked, in some more lines.

    >>> import hockeystick as hs
    >>> run = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.01, steps=100), noise_multiplier=1.0)
    >>> print(shown(hs.certify(run, delta=1e-5)).splitlines()[0])
    All 100 training steps together are (0.718036, 1e-05)-differentially private for one example.
    """
    if not isinstance(certificate, Certificate):
        return str(certificate)
    return document(certificate, record=record).text()


def markdown(certificate: CertificateBase, record: "RunRecord | None" = None) -> str:
    """The certificate as Markdown for a paper; without what should not be published."""
    if isinstance(certificate, Certificate):
        return document(certificate, public=True, record=record).markdown()
    return f"```text\n{certificate}\n```"


def document(certificate: Certificate, *, public: bool = False, record: "RunRecord | None" = None) -> Document:
    """What a certificate says, as plain data.

    Args:
        public: leave out the fields that should not be published.
        record: of the run that the certificate covers.
    """
    hidden = {private.field for private in certificate.keep_private} if public else set()
    return Document(
        certificate.sentence,
        [
            Section("claim", _claim(certificate)),
            Section("protection", _protection(certificate)),
            Section("what was run", _run(certificate, hidden)),
            Section("the claim holds if", _assumptions(certificate, record)),
            Section("the run", () if record is None else run_rows(record, public=public)),
            Section(
                "not checked: what the user states, and how the certificate was made",
                _statements(certificate, hidden) + _origin(certificate, public=public),
            ),
        ],
    )


OF_CLAIM = "Both rows follow from epsilon and delta alone."
"""The curve says more, where there is one."""


def _claim(certificate: Certificate) -> tuple[Row, ...]:
    asks_epsilon = isinstance(certificate.epsilon, Interval)
    given = certificate.delta if asks_epsilon else certificate.epsilon
    name, other = ("epsilon", "delta") if asks_epsilon else ("delta", "epsilon")
    lower = certificate.method.lower
    methods = f"upper bound by {certificate.method.upper}" + ("" if lower is None else f", lower by {lower}")
    sampled = certificate.monte_carlo
    certainty = "deterministic" if sampled is None else _chance(sampled, certificate.method)
    alone = certificate.without_amplification
    gain = certificate.numbers
    rates = ", ".join(number(rate) for rate in (gain.tpr_at_fpr_0_1, gain.tpr_at_fpr_0_01, gain.tpr_at_fpr_0_001))
    attacks = f"At FPR 0.1, 0.01, 0.001: TPR at most {rates}; advantage at most {number(gain.advantage)}"
    alone_stated = sampled is not None if gain.basis is None else gain.basis == "claim"
    note = f" {OF_CLAIM}" if alone_stated else ""
    without = f"above {MAX_EPSILON:g}" if alone is None else number(alone)
    return (
        Row(name, f"{interval_text(certificate.bounds)}, at {other} {exact(given)}; without amplification {without}"),
        Row("attacks", attacks),
        Row("Gaussian DP", _gaussian_dp(gain) + note),
        Row("method", f"{methods}; {certainty}"),
        Row("recompute", f"{certificate.recompute} (SHA-256 {certificate.digest})"),
    )


def _gaussian_dp(gain: AttackNumbers) -> str:
    if gain.gdp_mu is None or gain.gdp_regret is None:
        return "No mu is stated, because delta is 0 or above 0.1, or because no finite epsilon reaches it."
    return f"The run is {number(gain.gdp_mu)}-GDP up to delta (regret {number(gain.gdp_regret)})."


def _chance(claim: MonteCarloClaim, method: Methods) -> str:
    chance = f"{claim.failure_probability:g}"
    said = f"may fail with probability {chance}"
    if claim.statement is Statement.ESTIMATE_VERIFY_RELEASE:
        said = f"delta includes the probability {chance} that the random test errs"
        if method.lower == method.upper:
            said += f"; the lower bound may fail with probability {chance}"
    return f"{said} ({claim.samples} samples)"


def _protection(certificate: Certificate) -> tuple[Row, ...]:
    actors = [
        Row("trusted" if actor.trusted else "not trusted", f"{actor.who}: sees {actor.sees}.")
        for actor in certificate.actors
    ]
    return (
        Row("neighbours", certificate.neighbours),
        *actors,
        Row("released", certificate.released),
        Row("prefixes", certificate.prefixes),
        Row("not covered", " ".join(certificate.not_covered)),
        *_bits(certificate),
    )


def _bits(certificate: Certificate) -> tuple[Row, ...]:
    """What is proved of the bits of a run; nothing where its noise is in floating point."""
    bits = certificate.bits
    if bits is None:
        return ()
    return (
        Row("bits covered", " ".join(bits.covered)),
        Row("bits assumed", " ".join(bits.assumed)),
        Row("bits not covered", " ".join(bits.not_covered)),
        Row("lower end", bits.lower_end),
        *(() if bits.lower is None else (Row("lower end of a run", f"{exact(bits.lower)}, of the rounded numbers"),)),
    )


def _run(certificate: Certificate, hidden: set[str]) -> tuple[Row, ...]:
    mechanism, rates, noise = certificate.mechanism, certificate.rates, certificate.noise
    fields = mechanism.sampler.model_dump(exclude={"kind"}, exclude_none=True)
    sampler = ", ".join(f"{name} {exact(value)}" for name, value in fields.items())
    excluded_by_user = fields.get("exclusion", "example") != "example"
    at_most = "at most " if excluded_by_user else ""  # less where users share examples
    often = f"each example is drawn for a batch with probability {at_most}{exact(rates.rate)}"
    if mechanism.sampler.kind == "multi_attribution" or not fields.get("warm_start", True):
        often += " in the long run"
    if rates.rate_when_available is not None:
        often += f" ({exact(rates.rate_when_available)} when available)"
    often += f", in at most {rates.most_participations} of the {rates.steps} steps"
    if rates.expected_batch_size is not None and "rates.expected_batch_size" not in hidden:
        often += f"; {at_most}{rates.expected_batch_size:.12g} examples a batch on average"
    size = (
        f"standard deviation {exact(noise.multiplier)} clipping norms{', in whole numbers' if mechanism.exact else ''}"
    )
    if noise.standard_deviation is not None:
        size += f" = {noise.standard_deviation:.12g} on sums"
    if noise.standard_deviation_of_mean is not None:
        size += f", {noise.standard_deviation_of_mean:.12g} on means"
    strategy = mechanism.strategy.model_dump(exclude={"kind", "held"}, exclude_none=True)
    options = "".join(
        f", {name} {exact(value)}" for name, value in strategy.items() if f"mechanism.strategy.{name}" not in hidden
    )
    scale = f"sensitivity {certificate.sensitivity:g}{_held(mechanism)}"
    return (
        Row("sampler", f"{mechanism.sampler.kind}: {sampler}"),
        Row("rates", often),
        Row("strategy", f"{mechanism.strategy.kind}{options}, {scale}"),
        Row("noise", f"{size}; {noise.over_sensitivity:.6g} times the sensitivity"),
        *(() if certificate.generator is None else (Row("generator", generator_text(certificate.generator)),)),
    )


def _held(mechanism: Mechanism) -> str:
    """Where the numbers of an optimised matrix are."""
    digest = mechanism.strategy.companion
    if digest is not None:
        return f"; its matrix is in the file {file_name(digest)}"
    return "" if mechanism.strategy.unheld() == mechanism.strategy else "; its coefficients are in the certificate"


def _assumptions(certificate: Certificate, record: "RunRecord | None") -> tuple[Row, ...]:
    rows = []
    for assumption in certificate.assumptions:
        status, evidence = assumption.status.value, assumption.evidence
        of_run = None if record is None else record.about(assumption.name)
        if of_run is not None:
            status, evidence = of_run[0], f"{of_run[1]}{'' if evidence is None else f' Stated: {evidence}'}"
        rows.append(Row(status, assumption.text if evidence is None else f"{assumption.text} [{evidence}]"))
    return (*rows, *(Row("caveat", caveat) for caveat in certificate.caveats))


def run_rows(record: "RunRecord", *, public: bool = False) -> tuple[Row, ...]:
    """What the record of a run says beside its checks.

    Args:
        public: leave out the number of examples where neighbours differ in it.
    """
    covered = record.certificate
    differs = covered is not None and Adjacency.ADD_REMOVE in (covered.adjacency, *covered.also_holds_for)
    size = "" if public and differs else f" on {record.num_examples} examples"
    noise = "added by another process" if record.noise is None else f"generator {record.noise}, in {record.noise_dtype}"
    rows = [
        Row("steps", f"{record.taken}{size}; {record.refused_steps} steps past the plan were refused"),
        Row("resumed", f"{counted(record.resumed, 'time')} from a saved state"),
        Row("noise", noise),
        Row("commitment", f"to the batches: {record.commitment}"),
        Row("recorded by", f"hockeystick {record.hockeystick_version} (SHA-256 {record.digest})"),
        Row("caveat", "A record is the word of the program that trained. Verification cannot repeat its checks."),
    ]
    return tuple(rows)


def _statements(certificate: Certificate, hidden: set[str]) -> tuple[Row, ...]:
    said = certificate.statements
    words = [word for word in (said.label, said.date) if word is not None]
    words += [
        f"{label} {exact(value)}"
        for name, label in _SIZES.items()
        if (value := getattr(said, name)) is not None and f"statements.{name}" not in hidden
    ]
    rows = (("stated", ", ".join(words)), ("tuning", said.tuning), ("releases", said.other_releases))
    return tuple(Row(name, text) for name, text in rows if text)


def _origin(certificate: Certificate, *, public: bool) -> tuple[Row, ...]:
    rows = []
    if certificate.keep_private and not public:
        fields = ", ".join(private.field for private in certificate.keep_private)
        reasons = "; ".join(dict.fromkeys(private.why for private in certificate.keep_private))
        rows.append(Row("keep private", f"{fields}: {reasons}"))
    if certificate.cut_off:
        left = ", ".join(
            f"{bound.method} ({bound.side.value}, about {bound.seconds:.2g} s)" for bound in certificate.cut_off
        )
        rows.append(Row("no time for", f"{left}; more seconds may give a better bound"))
    libraries = ", ".join(f"{name} {version}" for name, version in certificate.origin.library_versions.items())
    return (*rows, Row("issued by", f"hockeystick {certificate.hockeystick_version} ({libraries})"))
