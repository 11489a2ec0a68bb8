"""Audits of correct code raise no more alarms than their level allows: a small part of what the page counts."""

import pytest
from scipy.stats import binom

from benchmarks import audit_alarms
from benchmarks.audit_alarms import CHANCE, PARTS, Count, allowed, count, page

LOOSE, RUNS = 0.05, 10
"""A level at which few runs can tell that it is not kept."""


@pytest.mark.parametrize("part", PARTS)
def test_correct_code_raises_no_more_alarms_than_its_level_allows(part):
    """Of audits that keep the level 0.05, more alarms have a probability of at most 1e-3; seeds are fixed."""
    kinds = list(PARTS[part][1])
    counts = [count(part, kind, RUNS if part != "mechanism" else 3, LOOSE) for kind in kinds]
    runs = sum(count.runs for count in counts)
    assert sum(count.alarms for count in counts) <= allowed(runs, LOOSE)
    assert runs == len(kinds) * counts[0].runs


@pytest.mark.parametrize(("runs", "level"), [(1000, 1e-3), (1008, 1e-3), (90, 0.05), (15, 0.05)])
def test_the_allowed_number_is_the_least_that_is_seldom_exceeded(runs, level):
    """The sums of binomial probabilities, directly."""
    most = allowed(runs, level)
    tail = sum(binom.pmf(range(most + 1, runs + 1), runs, level))
    assert tail <= CHANCE < tail + binom.pmf(most, runs, level)


def test_counts_are_kept_and_too_many_alarms_end_with_1(tmp_path, monkeypatch, capsys):
    calls = []

    def counting(part, kind, runs):
        calls.append(kind)
        return Count(part, kind, runs, 3 if part == "noise" else 0, 1.5, 0.1)

    monkeypatch.setattr(audit_alarms, "count", counting)
    monkeypatch.setattr(audit_alarms, "PAGE", tmp_path / "page.md")
    file = tmp_path / "counts.json"
    assert audit_alarms.main(["--json", str(file), "--part", "sampler", "--update"]) == 0
    assert audit_alarms.main(["--json", str(file), "--part", "sampler"]) == 0
    assert calls == list(audit_alarms.SAMPLERS)
    assert "| `audit.sampler` | 1,008 | 0 | 5 |" in (tmp_path / "page.md").read_text()
    assert audit_alarms.main(["--json", str(file)]) == 1  # 15 alarms of noise
    assert "| `audit.noise` | 1,000 | 15 | 5 |" in capsys.readouterr().out


def test_the_page_is_about_the_runs_of_the_script():
    """The page in the documentation has a row for every kind, with its number of runs."""
    text = audit_alarms.PAGE.read_text()
    for part, (_, kinds, runs) in PARTS.items():
        for kind in kinds:
            assert f"| `audit.{part}` | {kind} | {runs} | 0 |" in text
    assert page([]).splitlines()[0] == text.splitlines()[0]
