"""A reader's test: what ``hockeystick show CERTIFICATE`` prints is short, and every sentence of it is about the run.

For each row there is a change of the mechanism (or of what the user states) after which it says something else, namely
what is right for the changed one; a row that never changes has to be among CONSTANT, with the reason. A row that nobody
has thought of fails.
"""

from collections.abc import Callable
from functools import cache
from math import sqrt
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from hockeystick import (
    BallsInBins,
    BandedSquareRoot,
    BinaryTree,
    BMinSep,
    Certificate,
    Custom,
    Deterministic,
    Mechanism,
    MonteCarlo,
    MultiAttribution,
    Poisson,
    Shuffle,
    Statements,
    certify,
    state,
)
from hockeystick.claim import MonteCarloClaim, Statement
from hockeystick.report.certificate import document, markdown, shown
from hockeystick.report.document import Document, Row, Section

POISSON = Mechanism(sampler=Poisson(sampling_prob=0.05, steps=40), noise_multiplier=1.0)
SHUFFLE = Mechanism(sampler=Shuffle(batch_size=4, bins=10, epochs=2), noise_multiplier=0.8)
SAMPLED = Mechanism(strategy=BandedSquareRoot(bands=2), sampler=BallsInBins(bins=4, epochs=3), noise_multiplier=1.5)
SAID = Statements(label="run 7", date="2030-01-31", num_examples=1000, clipping_norm=1.5, normaliser=50.0)


@cache
def kinds() -> dict[str, Certificate]:
    """Three kinds of run: amplified and deterministic, not amplified, and sampled."""
    return {
        "poisson": state(certify(POISSON, delta=1e-5), SAID),
        "shuffle": certify(SHUFFLE, epsilon=1.0),
        "sampled": sampled(SAMPLED),
    }


@cache
def sampled(run: Mechanism, seed: int = 1, failure: float = 1e-6) -> Certificate:
    options = MonteCarlo(seed=seed, ratio=0.5, failure_probability=failure)
    return certify(run, delta=1e-4, method="monte_carlo", monte_carlo=options)


def rows(certificate: Certificate) -> dict[str, str]:
    """What is said, by row; the sentences of a section with one name for all rows are told apart by their beginning."""
    texts = {"title": document(certificate).title}
    for section in document(certificate).sections:
        for row in section.rows:
            several = section.heading == "the claim holds if"
            texts[f"{row.text.split()[0]} {row.text.split()[1]}" if several else row.name] = row.text
    return texts


@pytest.mark.parametrize("kind", ["poisson", "shuffle", "sampled"])
def test_it_is_short(kind: str) -> None:
    lines = shown(kinds()[kind]).splitlines()
    assert len(lines) < 40
    assert max(map(len, lines)) <= 120


def with_run(change: dict[str, Any]) -> Callable[[Certificate], Certificate]:
    """The certificate of a changed mechanism, for the same question and with the same statements."""

    def changed(certificate: Certificate) -> Certificate:
        run = Mechanism.parse(certificate.mechanism.model_dump() | change)
        if certificate.monte_carlo is not None:
            return sampled(run)
        reissued = certify(run, delta=certificate.question.delta, epsilon=certificate.question.epsilon)
        return state(reissued, certificate.statements)

    return changed


def with_sampler(**changes: Any) -> Callable[[Certificate], Certificate]:
    def changed(certificate: Certificate) -> Certificate:
        sampler = certificate.mechanism.sampler
        fields = {name: value for name, value in changes.items() if name in type(sampler).model_fields}
        return with_run({"sampler": sampler.model_dump() | fields})(certificate)

    return changed


def with_statements(**changes: Any) -> Callable[[Certificate], Certificate]:
    return lambda certificate: state(certificate, certificate.statements.model_copy(update=changes))


def of(run: Mechanism) -> Callable[[Certificate], Certificate]:
    return lambda certificate: certify(run, delta=1e-5)


LONGER = with_sampler(steps=50, epochs=4)
NOISIER = with_run({"noise_multiplier": 3.0})
USERS = of(
    Mechanism(
        sampler=MultiAttribution(min_sep=2, sampling_prob=0.2, steps=4, examples_per_user=2), noise_multiplier=1.0
    )
)
PUBLIC = of(Mechanism(sampler=Deterministic(bins=10), noise_multiplier=1.0))
CHANGES: dict[str, Callable[[Certificate], Certificate]] = {
    "title": LONGER,
    "epsilon": NOISIER,
    "delta": NOISIER,
    "attacks": NOISIER,
    "Gaussian DP": NOISIER,
    "method": PUBLIC,
    "recompute": NOISIER,  # by its digest
    "neighbours": USERS,
    "not trusted": PUBLIC,
    "released": LONGER,
    "prefixes": LONGER,
    "not covered": with_statements(tuning="the rate", other_releases="a mean"),
    "sampler": LONGER,
    "rates": LONGER,
    "strategy": of(Mechanism(strategy=BandedSquareRoot(bands=3), sampler=Deterministic(bins=10), noise_multiplier=1.0)),
    "noise": NOISIER,
    "Draw every": LONGER,  # the batches of Poisson sampling
    "Permute the": LONGER,
    "Put each": LONGER,
    "Clip the": NOISIER,
    "Divide by": lambda certificate: with_statements(normaliser=None if certificate.statements.normaliser else 50.0)(
        certificate
    ),
    "Keep the": with_statements(asserted={"secrecy": "the code"}),
    "The bounds": PUBLIC,
    "stated": with_statements(label="run 8"),
    "keep private": PUBLIC,
}
CONSTANT = {
    "trusted": "whoever trains sees everything, whatever the mechanism",
    "The claim": "the arithmetic and the generator of a program are no part of a mechanism",
    "The seeds": "there wherever there are accounting samples",
    "Draw the": "there wherever there are accounting samples",
    "issued by": "the version that computes is no part of a mechanism",
}


@pytest.mark.parametrize("kind", ["poisson", "shuffle", "sampled"])
def test_every_sentence_is_about_the_run(kind: str) -> None:
    certificate = kinds()[kind]
    for name, text in rows(certificate).items():
        assert (name in CHANGES) != (name in CONSTANT), f"nothing says what changes {name!r}: {text}"
        if name in CHANGES:
            assert rows(CHANGES[name](certificate)).get(name) != text, name


def epsilon_of_gaussian(mu: float, delta: float) -> float:
    """The epsilon of a Gaussian of sensitivity over noise mu, from its closed form (Balle and Wang 2018)."""

    def excess(epsilon: float) -> float:
        first, second = norm.logcdf(mu / 2 - epsilon / mu), epsilon + norm.logcdf(-mu / 2 - epsilon / mu)
        return float(np.exp(first) - np.exp(second) - delta)

    return float(brentq(excess, 0.0, 1000.0, xtol=1e-12))


def test_the_numbers_are_those_of_closed_forms() -> None:
    """A run whose batches are public: everything printed about it can be computed by hand."""
    for epochs, sigma in ((1, 1.0), (4, 1.0), (4, 2.5)):
        run = Mechanism(sampler=Deterministic(bins=10, epochs=epochs), noise_multiplier=sigma)
        said, mu = rows(certify(run, delta=1e-5)), sqrt(epochs) / sigma
        exact = epsilon_of_gaussian(mu, 1e-5)
        for before in ("at most ", "without amplification "):
            printed = float(said["epsilon"].split(before)[1].split()[0].rstrip(",)"))
            assert exact <= printed <= exact * (1.0 + 2e-5)
        printed = float(said["Gaussian DP"].split()[3].removesuffix("-GDP"))
        assert 0.99 * mu <= printed <= 1.001 * mu  # 1e-5 of delta is not to be covered
        advantage = 2.0 * norm.cdf(mu / 2.0) - 1.0
        assert advantage <= float(said["attacks"].split("advantage at most ")[1]) <= advantage * (1.0 + 2e-5)
        assert f"All {10 * epochs} training steps" in said["title"]
        assert f"in at most {epochs} of the {10 * epochs} steps" in said["rates"]
        assert f"stop after any of the {10 * epochs} steps" in said["prefixes"]


def test_the_claim_covers_every_prefix() -> None:
    """Fewer steps of the same sampler are never certified for more, by the lower bound of the whole."""
    whole = certify(POISSON, delta=1e-5)
    for steps in (1, 7, 39):
        part = certify(Mechanism(sampler=Poisson(sampling_prob=0.05, steps=steps), noise_multiplier=1.0), delta=1e-5)
        assert (part.bounds.lower or 0.0) <= whole.bounds.upper


def test_neighbours_are_those_that_the_sampler_holds_for() -> None:
    said = {name: rows(certificate)["neighbours"] for name, certificate in kinds().items()}
    assert "is missing (add_remove)" in said["poisson"]
    assert "add_remove" not in said["shuffle"]
    assert "differ in one user" in rows(USERS(kinds()["poisson"]))["neighbours"]
    assert "for one user" in rows(USERS(kinds()["poisson"]))["title"]


def test_a_rate_that_holds_in_the_long_run_only_is_said_to() -> None:
    for warm in (True, False):
        run = Mechanism(sampler=BMinSep(min_sep=2, sampling_prob=0.1, steps=4, warm_start=warm), noise_multiplier=1.0)
        said = rows(certify(run, delta=1e-5, method="gaussian"))["rates"]
        assert ("probability 0.1 in the long run" in said) == (not warm)
    assert "in the long run" in rows(USERS(kinds()["poisson"]))["rates"]
    assert "with probability at most " in rows(USERS(kinds()["poisson"]))["rates"]  # less where users share examples
    assert "at most 0" not in rows(kinds()["poisson"])["rates"]


def test_who_knows_the_batches() -> None:
    assert "neither batches nor noise" in rows(kinds()["poisson"])["not trusted"]
    assert "the batches and every other example" in rows(PUBLIC(kinds()["poisson"]))["not trusted"]


def test_the_plan_of_the_user_is_there() -> None:
    said = rows(kinds()["poisson"])
    assert said["stated"] == "run 7, 2030-01-31, examples 1000, clipping norm 1.5, normaliser 50"
    assert said["noise"].startswith("standard deviation 1 clipping norms = 1.5 on sums, 0.03 on means;")
    assert said["rates"].endswith("50 examples a batch on average")
    assert said["keep private"].startswith("statements.num_examples, rates.expected_batch_size: ")
    assert "[statements.normaliser]" in said["Divide by"]


def test_what_a_sampled_claim_says_of_its_samples() -> None:
    certificate = kinds()["sampled"]
    claim = certificate.monte_carlo
    assert claim is not None
    said = rows(certificate)
    assert f"may fail with probability 1e-06 ({claim.samples} samples)" in said["method"]
    assert said["title"].endswith("except with probability 1e-06 over the draw of the accounting samples.")
    other = rows(sampled(SAMPLED, failure=1e-3))
    assert "probability 0.001" in other["title"]
    assert "probability 0.001" in other["method"]
    released = claim.model_copy(update={"statement": Statement.ESTIMATE_VERIFY_RELEASE})
    said = rows(state(certificate.model_copy(update={"monte_carlo": released}), Statements()))
    assert "counting the random test that accepted this noise, which errs with probability 1e-06" in said["title"]
    assert "delta includes the probability 1e-06 that the random test errs" in said["method"]
    assert {"The seeds", "Draw the"} <= set(said)
    assert not {"The seeds", "Draw the"} & set(rows(kinds()["poisson"]))
    assert isinstance(released, MonteCarloClaim)


def test_what_a_method_assumes_is_said() -> None:
    run = Mechanism(strategy=BinaryTree(), sampler=Shuffle(batch_size=4, bins=64), noise_multiplier=20.0)
    said = rows(certify(run, delta=1e-6, method="shuffled_tree"))
    assert "must not depend on anything that the run releases" in said["Fix what"]
    assert said["The bounds"].startswith(
        "The bounds are proved for the gradients that the assumptions describe, strategy binary_tree and sampler "
        "shuffle"
    )


def test_a_matrix_from_a_file(tmp_path: Any) -> None:
    np.save(tmp_path / "matrix.npy", np.eye(4))
    custom = Custom(path=str(tmp_path / "matrix.npy"))
    certificate = certify(Mechanism(strategy=custom, sampler=Deterministic(bins=4), noise_multiplier=1.0), delta=1e-5)
    said = rows(certificate)
    assert said["recompute"].startswith("hockeystick verify CERTIFICATE --matrix FILE (SHA-256 ")
    assert said["keep private"].startswith("mechanism.strategy.path: ")
    assert str(tmp_path) in shown(certificate)
    assert str(tmp_path) not in markdown(certificate)


def test_what_is_published_leaves_out_what_should_not_be() -> None:
    certificate = kinds()["poisson"]
    assert "1000" in rows(certificate)["stated"]
    for hidden in ("1000", "on average", "keep private"):
        assert hidden not in markdown(certificate)
    assert "1.5" in markdown(certificate)


def test_methods_without_time_are_named() -> None:
    from hockeystick import Deadline

    said = rows(certify(POISSON, delta=1e-5, method="direct", deadline=Deadline(0.0)))
    assert "direct (upper, about " in said["no time for"]


def test_what_a_user_writes_stays_text() -> None:
    """Words of a user cannot become a row of a table, a link or a heading."""
    label = "a | b <b>bold</b> [link](x) `code` # title"
    text = markdown(state(kinds()["poisson"], Statements(label=label)))
    assert r"a \| b \<b\>bold\</b\> \[link\](x) \`code\` \# title" in text
    assert all(line.count("|") - line.count(r"\|") == 3 for line in text.splitlines() if line.startswith("|"))


def test_long_rows_are_wrapped_in_their_column() -> None:
    empty = Document("t", [])
    assert empty.text() == "t"
    assert empty.markdown() == "**t**"
    wide = Row("name", "word " * 40)
    lines = Document("t", [Section("s", (wide,))]).text(40)
    assert all(len(line) <= 40 for line in lines.splitlines())
    assert lines.splitlines()[3].startswith(" " * 8 + "word")
