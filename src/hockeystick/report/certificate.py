"""A certificate as a reader wants it: the claim, who is protected from whom, what was run, and what it rests on."""

from hockeystick.certificate import (
    AttackNumbers,
    Certificate,
    CertificateBase,
    Interval,
    Methods,
    certificate_text,
    exact,
    generator_text,
    interval_text,
    number,
)
from hockeystick.laws.profile import MAX_EPSILON
from hockeystick.monte_carlo.claim import MonteCarloClaim, Statement
from hockeystick.report.document import Document, Row, Section

_SIZES = {"num_examples": "examples", "clipping_norm": "clipping norm", "normaliser": "normaliser"}


def shown(certificate: CertificateBase) -> str:
    """The certificate as text for a terminal, in fewer than 40 lines of 120 columns unless the user states much.

    >>> import hockeystick as hs
    >>> run = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.01, steps=100), noise_multiplier=1.0)
    >>> print(shown(hs.certify(run, delta=1e-5)).splitlines()[0])
    All 100 training steps together are (0.718133, 1e-05)-differentially private for one example.
    """
    return document(certificate).text() if isinstance(certificate, Certificate) else certificate_text(certificate)


def markdown(certificate: CertificateBase) -> str:
    """The certificate as Markdown for a paper; without what should not be published."""
    if isinstance(certificate, Certificate):
        return document(certificate, public=True).markdown()
    return f"```text\n{certificate_text(certificate)}\n```"


def document(certificate: Certificate, *, public: bool = False) -> Document:
    """What a certificate says, as plain data.

    Args:
        public: leave out the fields that should not be published.
    """
    hidden = {one.field for one in certificate.keep_private} if public else set()
    return Document(
        certificate.sentence,
        [
            Section("claim", _claim(certificate)),
            Section("protection", _protection(certificate)),
            Section("what was run", _run(certificate, hidden)),
            Section("the claim holds if", _assumptions(certificate)),
            Section(
                "not checked: what the user states, and how this was made",
                _statements(certificate, hidden) + _origin(certificate, public=public),
            ),
        ],
    )


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
    attacks = f"TPR at FPR 0.1, 0.01, 0.001 at most {rates}; advantage at most {number(gain.advantage)}"
    without = f"above {MAX_EPSILON:g}" if alone is None else number(alone)
    return (
        Row(name, f"{interval_text(certificate.bounds)}, at {other} {exact(given)}; unamplified {without}"),
        Row("attacks", attacks),
        Row("Gaussian DP", _gaussian_dp(gain)),
        Row("method", f"{methods}; {certainty}"),
        Row("recompute", f"{certificate.recompute} (SHA-256 {certificate.digest})"),
    )


def _gaussian_dp(gain: AttackNumbers) -> str:
    if gain.gdp_mu is None or gain.gdp_regret is None:
        return "no mu is stated: delta is 0 or above 0.1, or epsilon is infinite"
    return f"mu at most {number(gain.gdp_mu)}, not counting delta; regret {number(gain.gdp_regret)}"


def _chance(claim: MonteCarloClaim, method: Methods) -> str:
    errs = "may fail with probability"
    if claim.statement is Statement.ESTIMATE_VERIFY_RELEASE:
        errs = "delta counts an error of the test of"
        if method.lower == method.upper:
            errs = "delta counts an error of the test, and the lower bound may fail, with probability"
    return f"{errs} {claim.failure_probability:g} ({claim.samples} samples)"


def _protection(certificate: Certificate) -> tuple[Row, ...]:
    actors = [
        Row("trusted" if one.trusted else "not trusted", f"{one.who} sees {one.sees}.") for one in certificate.actors
    ]
    return (
        Row("neighbours", certificate.neighbours),
        *actors,
        Row("released", certificate.released),
        Row("prefixes", certificate.prefixes),
        Row("not covered", " ".join(certificate.not_covered)),
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
    size = f"{exact(noise.multiplier)} clipping norms"
    if noise.standard_deviation is not None:
        size += f" = {noise.standard_deviation:.12g} on sums"
    if noise.standard_deviation_of_mean is not None:
        size += f", {noise.standard_deviation_of_mean:.12g} on means"
    strategy = mechanism.strategy.model_dump(exclude={"kind"}, exclude_none=True)
    options = "".join(
        f", {name} {exact(value)}" for name, value in strategy.items() if f"mechanism.strategy.{name}" not in hidden
    )
    return (
        Row("sampler", f"{mechanism.sampler.kind}: {sampler}"),
        Row("rates", often),
        Row("strategy", f"{mechanism.strategy.kind}{options}, sensitivity {certificate.sensitivity:g}"),
        Row("noise", f"standard deviation {size}; {noise.over_sensitivity:.6g} when divided by the sensitivity"),
        *(() if certificate.generator is None else (Row("generator", generator_text(certificate.generator)),)),
    )


def _assumptions(certificate: Certificate) -> tuple[Row, ...]:
    rows = []
    for one in certificate.assumptions:
        evidence = "" if one.evidence is None else f" [{one.evidence}]"
        rows.append(Row(one.status.value, f"{one.text}{evidence}"))
    return (*rows, *(Row("caveat", one) for one in certificate.caveats))


def _statements(certificate: Certificate, hidden: set[str]) -> tuple[Row, ...]:
    said = certificate.statements
    words = [one for one in (said.label, said.date) if one is not None]
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
        fields = ", ".join(one.field for one in certificate.keep_private)
        reasons = "; ".join(dict.fromkeys(one.why for one in certificate.keep_private))
        rows.append(Row("keep private", f"{fields}: {reasons}"))
    if certificate.cut_off:
        left = ", ".join(f"{one.method} ({one.side.value}, about {one.seconds:.2g} s)" for one in certificate.cut_off)
        rows.append(Row("no time for", f"{left}; more seconds may give a better bound"))
    libraries = ", ".join(f"{name} {version}" for name, version in certificate.origin.library_versions.items())
    return (*rows, Row("issued by", f"hockeystick {certificate.hockeystick_version} ({libraries})"))
