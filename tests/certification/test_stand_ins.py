"""Certificates that name a retired method: whatever proves as much stands in for it, and nothing else does."""

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import hockeystick as hs
from hockeystick.accountants.registry import ACCOUNTANTS, accountant, published
from hockeystick.accountants.retired import RETIRED, Retired
from hockeystick.certificate import Interval, Methods
from hockeystick.certification.verification import issued_again, stand_ins
from hockeystick.cli.main import main
from hockeystick.errors import VerificationError
from hockeystick.types import Side

ROOT = Path(__file__).parents[2]
DELTA = 1e-5
RUN = hs.Mechanism(
    strategy=hs.BandedSquareRoot(bands=2), sampler=hs.Poisson(sampling_prob=0.1, steps=8), noise_multiplier=2.0
)


@pytest.fixture(autouse=True)
def gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A method of both sides that was retired."""
    method = Retired(name="gone", since="0.0.9", summary="", sides=tuple(Side), reference="docs/theory/gone.md")
    monkeypatch.setitem(RETIRED, "gone", method)


@pytest.fixture
def without_papers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The methods of the papers are not installed, so that others have to stand in."""
    monkeypatch.setitem(sys.modules, "hockeystick_papers", None)
    published.cache_clear()
    yield
    published.cache_clear()


@pytest.fixture(scope="module")
def issued() -> hs.Certificate:
    return hs.certify(RUN, delta=DELTA)


def changed(certificate: hs.Certificate, **fields: Any) -> hs.Certificate:
    """The sealed certificate with these fields, and what follows from them."""
    return hs.state(certificate.model_copy(update=fields), certificate.statements)


def naming(certificate: hs.Certificate, *, upper: str | None = None, lower: str | None = None) -> hs.Certificate:
    method = certificate.method
    return changed(certificate, method=Methods(upper=upper or method.upper, lower=lower or method.lower))


def ran(*words: str) -> Any:
    """The exit code of a command."""
    with pytest.raises(SystemExit) as done:
        main(list(words))
    return done.value.code


def kept() -> list[Path]:
    """The certificates of the repository that name a retired method."""
    return [
        path
        for path in sorted(ROOT.glob("experiments/*/certificates/*.json"))
        if not RETIRED.keys().isdisjoint(json.loads(path.read_text()).get("method", {}).values())
    ]


def test_the_page_on_compatibility_lists_the_retired_methods() -> None:
    page = (ROOT / "docs" / "reference" / "compatibility.md").read_text()
    rows = [
        f"| `{one.name}` | {one.since} | {one.summary} | {'papers' if one.in_papers else ''} |"
        for one in RETIRED.values()
        if one.name != "gone"
    ]
    assert re.findall(r"^\| `\w+` \| \d.*$", page, re.MULTILINE) == rows


def test_there_are_kept_certificates_that_name_a_retired_method() -> None:
    assert len(kept()) >= 10


@pytest.mark.parametrize("path", kept(), ids=lambda path: path.stem)
def test_kept_certificates_verify_by_a_method_that_stands_in(path: Path, without_papers: None) -> None:
    certificate = hs.Certificate.load(path)
    found = stand_ins(certificate)
    assert {one.named for one in found} == set(certificate.method.model_dump().values()) & RETIRED.keys()
    assert all(one.method in ACCOUNTANTS for one in found)
    assert hs.verify(certificate) is certificate


def test_a_true_claim_of_a_retired_method_verifies_on_both_sides(issued: hs.Certificate) -> None:
    certificate = naming(issued, upper="gone", lower="gone")
    assert "docs/theory/gone.md" in certificate.references
    upper, lower = stand_ins(certificate)
    assert upper.side is Side.UPPER
    assert lower.side is Side.LOWER
    assert upper.method in ("participation_windows", "split_noise")
    assert str(lower) == (
        f"the lower bound is proved by {lower.method!r}, which stands in for 'gone', retired in 0.0.9"
    )
    assert stand_ins(issued) == ()


@pytest.mark.parametrize("side", Side)
def test_a_false_claim_of_a_retired_method_does_not_verify(issued: hs.Certificate, side: Side) -> None:
    """By a millionth, which is ten times what the issued bound was moved by."""
    bounds = issued.bounds
    assert bounds.lower is not None
    false = {
        Side.UPPER: Interval(upper=bounds.upper * (1.0 - 1e-6), lower=bounds.lower),
        Side.LOWER: Interval(upper=bounds.upper, lower=bounds.lower * (1.0 + 1e-6)),
    }[side]
    certificate = changed(naming(issued, upper="gone", lower="gone"), epsilon=false)
    with pytest.raises(VerificationError, match=rf"'epsilon.{side.value}'.*'gone', which was retired in 0.0.9"):
        hs.verify(certificate)


def test_names_that_are_unknown_or_were_never_of_that_side_are_refused(
    issued: hs.Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = issued.content()
    content["method"]["upper"] = "nobody"
    with pytest.raises(VerificationError, match="not known: 'nobody'"):
        hs.verify(hs.Certificate.parse_json(json.dumps(content)).sealed())
    monkeypatch.setitem(RETIRED, "lower_only", replace(RETIRED["gone"], name="lower_only", sides=(Side.LOWER,)))
    with pytest.raises(VerificationError, match="'lower_only', which never gave upper bounds"):
        hs.verify(naming(issued, upper="lower_only"))


def test_a_method_that_assumes_something_of_the_run_stands_in_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """The certificate would have to say what has to hold."""
    monkeypatch.setitem(ACCOUNTANTS, "shuffled_tree", accountant("shuffled_tree"))
    run = hs.Mechanism(strategy=hs.BinaryTree(), sampler=hs.Shuffle(batch_size=1, bins=1 << 12), noise_multiplier=300.0)
    gaussian, limited = (
        hs.certify(run, delta=1e-3, method="gaussian"),
        hs.certify(run, delta=1e-3, method="shuffled_tree"),
    )
    assert limited.bounds.upper < 0.9 * gaussian.bounds.upper
    assert [one.method for one in stand_ins(naming(gaussian, upper="gone"))] == ["gaussian"]
    with pytest.raises(VerificationError, match="'gone'"):
        hs.verify(changed(gaussian, method=Methods(upper="gone", lower=None), epsilon=limited.bounds))


def test_numbers_that_the_cheapest_stand_in_does_not_reach_may_follow_from_another(issued: hs.Certificate) -> None:
    """The Gaussian proves the loose epsilon, but not the advantage that the retired method had."""
    loose = hs.bound(RUN, "gaussian").epsilon(DELTA) * (1.0 + 1e-6)
    interval = Interval(upper=loose, lower=issued.bounds.lower)
    certificate = changed(naming(issued, upper="gone"), epsilon=interval)
    assert certificate.numbers.basis == "profile"
    assert stand_ins(certificate)[0].method == "gaussian"
    numbers = certificate.numbers
    assert numbers.advantage < 0.5 * hs.bound(RUN, "gaussian").delta(0.0)
    with pytest.raises(VerificationError, match="numbers"):
        hs.verify(changed(certificate, numbers=numbers.model_copy(update={"advantage": 0.99 * numbers.advantage})))


def test_the_certificate_that_is_issued_again_names_the_method_that_stands_in(issued: hs.Certificate) -> None:
    again = issued_again(naming(issued, upper="gone"))
    assert again.method.upper in ACCOUNTANTS
    assert stand_ins(again) == ()


def test_runs_compose_whose_certificates_name_a_retired_method(issued: hs.Certificate) -> None:
    certificate = naming(issued, upper="gone", lower="gone")
    both = hs.compose([certificate, certificate], delta=DELTA)
    assert both.bounds.upper <= hs.compose([issued, issued], delta=DELTA).bounds.upper * 1.001
    assert hs.verify(both) is both
    alone = hs.compose([certificate], delta=DELTA)
    assert issued.bounds.upper * 0.999 <= alone.bounds.upper <= issued.bounds.upper * 1.001
    former = both.methods[0].model_copy(update={"upper": ("gone", "gaussian")})
    assert hs.verify(both.model_copy(update={"methods": (former,)}).sealed())
    wrong = both.methods[0].model_copy(update={"upper": ("direct", "gaussian")})
    with pytest.raises(VerificationError, match="methods"):
        hs.verify(both.model_copy(update={"methods": (wrong,)}).sealed())


def test_runs_whose_claims_nothing_proves_do_not_compose(issued: hs.Certificate) -> None:
    interval = Interval(upper=0.95 * issued.bounds.upper, lower=issued.bounds.lower)
    with pytest.raises(VerificationError, match="'gone', which was retired"):
        hs.compose([changed(naming(issued, upper="gone"), epsilon=interval)], delta=DELTA)


def test_the_command_says_which_method_stood_in(
    issued: hs.Certificate, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "certificate.json")
    naming(issued, lower="gone").save(path)
    assert ran("verify", path) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[-2] == "the lower bound is proved by 'row_filter', which stands in for 'gone', retired in 0.0.9"
    assert said[-1].startswith("verified:")
    assert ran("verify", path, "--json") == 0
    (only,) = json.loads(capsys.readouterr().out)["stand_ins"]
    assert only == {"side": "lower", "named": "gone", "method": "row_filter"}
