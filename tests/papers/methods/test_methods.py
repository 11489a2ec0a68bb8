"""The methods of the papers: the library runs them by name, and does without them where they are not installed."""

import sys
from collections.abc import Iterator

import pytest

import hockeystick as hs
from hockeystick.accountants.registry import ACCOUNTANTS, DEFAULT, accountant, every_accountant, published
from hockeystick.accountants.retired import RETIRED
from hockeystick.certification.verification import stand_ins
from hockeystick.errors import InvalidInputError, UnsupportedError

RUN = hs.Mechanism(sampler=hs.RandomAllocation(bins=20), noise_multiplier=1.0)
DELTA = 1e-5


@pytest.fixture
def not_installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Their package cannot be imported."""
    monkeypatch.setitem(sys.modules, "hockeystick_papers", None)
    published.cache_clear()
    yield
    published.cache_clear()


def test_the_table_says_of_them_what_they_say_themselves() -> None:
    listed = {name: retired for name, retired in RETIRED.items() if retired.in_papers}
    assert {
        name: (retired.summary, retired.sides, retired.reference, retired.assumes) for name, retired in listed.items()
    } == {
        name: (accountant.summary, accountant.sides, accountant.reference, accountant.assumes)
        for name, accountant in published().items()
    }
    assert ACCOUNTANTS.keys().isdisjoint(RETIRED)


def test_they_are_deterministic_and_never_run_by_default() -> None:
    assert published().keys().isdisjoint(DEFAULT)
    assert {name: accountant.name for name, accountant in published().items()} == {name: name for name in published()}
    assert [
        accountant.name for accountant in published().values() if accountant.kind is not hs.Kind.DETERMINISTIC
    ] == []


def test_compare_and_a_name_run_them() -> None:
    compared = {outcome.method: outcome.value for outcome in hs.compare(RUN, delta=DELTA)}
    certificate = hs.certify(RUN, delta=DELTA, method="renyi")
    assert {"renyi", "analytic", "decomposition"} < compared.keys()
    assert certificate.method.upper == "renyi"
    assert certificate.bounds.upper == pytest.approx(compared["renyi"], rel=1e-3)
    assert hs.certify(RUN, delta=DELTA).bounds.upper < certificate.bounds.upper


def test_who_names_one_that_is_not_installed_is_told_what_to_install(not_installed: None) -> None:
    assert every_accountant() == ACCOUNTANTS
    for ask in (hs.certify, hs.calibrate):
        wanted = {"delta": DELTA} if ask is hs.certify else {"delta": DELTA, "epsilon": 1.0}
        with pytest.raises(UnsupportedError, match=r"'renyi' is in the package hockeystick_papers, .* pip install \."):
            ask(RUN, **wanted, method="renyi")
    assert {outcome.method for outcome in hs.compare(RUN, delta=DELTA)} <= ACCOUNTANTS.keys()


def test_a_broken_installation_is_no_missing_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("hockeystick_papers")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "hockeystick_papers.renyi", None)
    published.cache_clear()
    with pytest.raises(ImportError, match="renyi"):
        accountant("renyi")
    published.cache_clear()


def test_certificates_of_theirs_verify_by_the_library_where_they_are_not_installed(
    request: pytest.FixtureRequest,
) -> None:
    certificate = hs.certify(RUN, delta=DELTA, method="renyi")
    assert stand_ins(certificate) == ()
    request.getfixturevalue("not_installed")
    assert [(substitute.named, substitute.method) for substitute in stand_ins(certificate)] == [("renyi", "direct")]
    assert hs.compose([certificate], delta=DELTA).bounds.upper <= certificate.bounds.upper


def test_a_name_that_is_gone_is_refused_with_the_version() -> None:
    with pytest.raises(InvalidInputError, match=r"Got .block_statistic., which was retired in 0\.1\.0, instead"):
        hs.certify(RUN, delta=DELTA, method="block_statistic")
