"""The standings: what the table says, the page in the docs, and the registry agree."""

import re
from math import inf
from pathlib import Path

import pytest

import hockeystick as hs
from hockeystick.accountants.registry import DEFAULT, every_accountant, published
from hockeystick.types import Kind, Side

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "standing.md").read_text()
UPPER = [
    method for method in every_accountant().values() if method.kind is Kind.DETERMINISTIC and Side.UPPER in method.sides
]


@pytest.fixture(autouse=True)
def _root_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))


def test_the_page_names_every_accountant() -> None:
    assert set(every_accountant()) <= set(re.findall(r"`(\w+)`", PAGE))


def test_the_registry_follows_the_page() -> None:
    stated = {(name, verdict) for name, verdict in re.findall(r"^\| `(\w+)` \|.*\| (\w+) \|$", PAGE, re.MULTILINE)}
    assert stated == {(method.name, "default" if method.name in DEFAULT else "published") for method in UPPER}
    assert {method.name for method in UPPER if method.name not in DEFAULT} == published().keys()


def test_every_upper_bound_has_a_regime() -> None:
    from benchmarks.standing import REGIMES
    from hockeystick.pairs.registry import pair_types, registered

    keys = {registered(regime.strategy.kind, regime.sampler.kind) for regime in REGIMES}
    types = {kind for key in keys if key is not None for kind in pair_types(*key)}
    assert [method.name for method in UPPER if not any(method.covers(kind) for kind in types)] == []


def test_a_cell_is_answered_by_all_that_cover_it() -> None:
    from benchmarks.standing import REGIMES, measured

    answers = {answer.method: answer for answer in measured(REGIMES[0], 3.5, 1e-5)}
    assert {name for name, answer in answers.items() if answer.status == "ok"} == {"gaussian", "direct", "renyi"}
    assert answers["gaussian"].epsilon == pytest.approx(answers["direct"].epsilon, rel=1e-3)
    assert answers["renyi"].epsilon > 1.01 * answers["direct"].epsilon


def test_a_win_anywhere_by_more_than_the_margin_is_a_place_in_the_default() -> None:
    from benchmarks.standing import CYCLIC_C, POISSON_C, Answer, lost, rows, verdicts

    answers = [
        Answer(POISSON_C, "a", "gaussian", 4.0, 0.1),
        Answer(POISSON_C, "a", "split_noise", 1.0, 0.1),
        Answer(POISSON_C, "a", "participation_windows", 1.0005, 0.1),
        Answer(POISSON_C, "b", "gaussian", 4.0, 0.1),
        Answer(POISSON_C, "b", "split_noise", 2.0, 0.3),
        Answer(POISSON_C, "b", "participation_windows", 1.9, 0.1),
        Answer(POISSON_C, "zero", "gaussian", 0.0, 0.1),
        Answer(POISSON_C, "zero", "participation_windows", inf, 0.1),
        Answer(CYCLIC_C, "c", "split_noise", 1.0, 0.1),
        Answer(CYCLIC_C, "c", "generalized_mmcc", inf, 0.1),
        Answer(CYCLIC_C, "c", "direct", inf, 0.1, "refused"),
    ]
    wins = {row.method: row.wins for row in rows([answer for answer in answers if answer.kind == POISSON_C])}
    assert wins == {"gaussian": 0, "split_noise": 0, "participation_windows": 1}  # 1 against 1.0005 is no win
    by_method = verdicts(answers)
    assert by_method == {
        "gaussian": "default",
        "split_noise": "default",
        "participation_windows": "default",
        "generalized_mmcc": "published",
    }
    assert lost([answer for answer in answers if answer.kind == CYCLIC_C]) == 0.0


def test_what_assumes_something_is_never_in_the_default() -> None:
    from benchmarks.standing import TREE, Answer, lost, verdicts

    answers = [Answer(TREE, "a", "gaussian", 4.0, 0.1), Answer(TREE, "a", "shuffled_tree", 1.0, 0.1)]
    assert verdicts(answers) == {"gaussian": "default", "shuffled_tree": "published"}
    assert lost(answers) == 0.0


def test_certify_has_the_bound_that_blocks_miss() -> None:
    """Few bins, several visits, little noise: revealing the blocks costs one percent."""
    run = hs.Mechanism(sampler=hs.RandomAllocation(bins=7, participations=3), noise_multiplier=0.73)
    certificate = hs.certify(run, delta=1e-12)
    assert certificate.method.upper == "dong_chen_ozgur"
    assert certificate.bounds.upper < 0.995 * hs.bound(run, "direct").epsilon(1e-12)


def test_a_method_that_wins_by_too_little_is_not_in_the_default() -> None:
    from benchmarks.standing import POISSON_C, TOO_LITTLE, Answer, verdicts

    for name in TOO_LITTLE:
        answers = [Answer(POISSON_C, "a", "split_noise", 1.0, 0.1), Answer(POISSON_C, "a", name, 0.99, 0.1)]
        assert verdicts(answers) == {"split_noise": "published", name: "published"}
    assert set(DEFAULT).isdisjoint(TOO_LITTLE)
