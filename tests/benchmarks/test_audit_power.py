"""The table of power: what is measured agrees with closed forms, where there are some."""

from math import inf, isinf, log
from statistics import median

import numpy as np
import pytest
from scipy.stats import norm

import hockeystick as hs
from benchmarks import audit_power
from benchmarks.audit_power import (
    DELTA,
    LEVEL,
    MECHANISMS,
    RATES,
    SEEDS,
    WAYS,
    Cell,
    Outputs,
    Row,
    numbers_until_found,
    page,
    rounded_up,
    smallest,
)
from hockeystick.audit.betting import Bets
from hockeystick.audit.whiteness import SCALES


def test_the_smallest_error_is_within_its_resolution():
    assert 0.1 <= smallest(lambda e: e >= 0.1) <= 0.1025
    assert smallest(lambda e: True) < 1.05 * audit_power.SMALLEST
    assert isinf(smallest(lambda e: False))


def expected_of_noise(samples):
    """Where the bets on the scale are expected to reach what a mean over eight findings and all scales needs.

    A bet on r is worth ``exp(N (-ln r + (s^2 / 2) (1 - 1 / r^2)))`` of its stake, s the true scale in place of 1; half
    of the stake is on a fault from the first row.
    """
    needed = log(1.0 / LEVEL) + log(8.0) + log(2.0 * SCALES.size)
    worth = lambda s: (samples * (-np.log(SCALES) + 0.5 * s**2 * (1.0 - SCALES**-2.0))).max()  # noqa: E731
    return smallest(lambda e: worth(1.0 - e) >= needed)


@pytest.mark.parametrize("samples", [1_000, 10_000])
def test_errors_of_noise_that_are_found_are_those_that_are_expected(samples):
    """Within 25 percent: 2.5 of the resolution, and the rest is what the median of five runs differs from the mean."""
    row = Row("balls in bins, BSR(4)")
    error = median(row.run("noise", samples, seed) for seed in range(5))
    assert error == pytest.approx(expected_of_noise(samples), rel=0.25)


def ending(rng, shape, below, above):
    """Normal numbers in float32, drawn again where they are beyond an end."""
    x = rng.standard_normal(shape, dtype=np.float32)
    while (beyond := (x < -below) | (x > above)).any():
        x[beyond] = rng.standard_normal(int(beyond.sum()), dtype=np.float32)
    return x


@pytest.mark.parametrize(("below", "above"), [(4.0, 4.0), (inf, 4.0), (3.8, 4.1)])
def test_an_end_is_found_from_the_numbers_that_are_said(below, above):
    """And hardly before: the stake that waits for later rows is worth little, and no other bet is about this."""
    steps, needed = 50, numbers_until_found(below, above)
    claimed = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.1, steps=steps), noise_multiplier=1.0)
    for share, refuted in ((1.02, True), (0.85, False)):
        noise = ending(np.random.default_rng(0), (steps, int(share * needed) // steps), below, above)
        verdict = hs.audit.noise(noise, claimed, level=LEVEL)
        assert verdict.refuted == refuted
        assert verdict.broken == (("ends",) if refuted else ())


def test_an_end_that_is_too_far_out_is_not_found():
    assert isinf(numbers_until_found(5.768, 5.768))
    assert rounded_up(inf) == "not found"
    assert rounded_up(2_310_001) == "2,400,000"


def expected_of_outputs(samples, mu, upper):
    """Where the bets reach their goal with the exact chances of their events in place of counts, of a Gaussian.

    With s times the noise the loss is ``N(+-mu^2 / 2, (s mu)^2)``.
    """

    def is_found(error):
        bets = Bets(upper, DELTA, LEVEL)
        scale = (1.0 - error) * mu
        for direction in (0, 1):
            ones = norm.sf((bets.thresholds - 0.5 * mu**2) / scale)
            others = norm.sf((bets.thresholds + 0.5 * mu**2) / scale)
            chances = [[(1 - ones) * (1 - others), (1 - ones) * others], [ones * (1 - others), ones * others]]
            bets.counts[direction] = samples * np.array(chances)
        bets.highest = bets._evidence()
        return bets.refuted

    return smallest(is_found)


def test_errors_that_are_found_in_outputs_are_those_that_are_expected():
    """Fixed batches are one Gaussian. Within 25 percent, as above."""
    row = Row("fixed batches, BSR(4)")
    ratio = Outputs(row.mechanism, 0, 1).ratio
    mu = float(np.sqrt(-2.0 * ratio.log_ratios(np.zeros((row.mechanism.matrix.rows, 1)))[0]))
    error = median(row.run("mechanism-sigma", 10_000, seed) for seed in range(5))
    assert error == pytest.approx(expected_of_outputs(10_000, mu, row.upper), rel=0.25)


def test_no_error_is_found_where_there_is_none():
    """One audit of each kind at level 1e-3, with fixed seeds."""
    for name in ("Poisson", "random allocation"):
        row = Row(name)
        assert not audit_power.refuted(Outputs(row.mechanism, 0, 2_000).losses(1.0, 1.0), row.upper)
    assert not Row("b-min-sep, BSR(4)").rate_is_seen(1.0, 10_000, 0)


@pytest.mark.parametrize("name", RATES)
def test_rates_are_those_of_an_available_example(name):
    sampler = MECHANISMS[name][2]
    changed = audit_power.with_rate(sampler, 1.1)
    before, after = (getattr(coins, "participation_prob", None) or coins.sampling_prob for coins in (sampler, changed))
    assert after == pytest.approx(1.1 * before)


@pytest.mark.filterwarnings("ignore")
def test_jax_privacy_sees_the_same_outputs():
    pytest.importorskip("jax_privacy")
    row = Row("fixed batches, BSR(4)")
    losses = Outputs(row.mechanism, 0, 1_000).losses(0.4, 1.0)
    assert audit_power.refuted_by_jax(losses, row.upper)
    assert not audit_power.refuted_by_jax(Outputs(row.mechanism, 0, 1_000).losses(1.0, 1.0), row.upper)


def test_what_was_measured_is_kept_and_the_page_has_a_row_for_it(tmp_path, monkeypatch, capsys):
    calls = []

    def measuring(row, way, samples):
        calls.append((row.name, way, samples))
        return Cell(row.name, way, samples, inf if samples == 1_000 else 0.0523, 0.0)

    monkeypatch.setattr(Row, "measure", measuring)
    monkeypatch.setattr(audit_power, "PAGE", tmp_path / "page.md")
    arguments = ["--json", str(tmp_path / "cells.json"), "--only", "Poisson", "--way", "noise", "--way", "sampler"]
    for _ in range(2):
        assert audit_power.main([*arguments, "--update"]) == 0
    assert len(calls) == 2 * 2 * 3
    text = (tmp_path / "page.md").read_text()
    assert "| Poisson | 1,000 | none | - | - |" in text
    assert "| cyclic Poisson, BSR(4) | 10,000 | 5.2 % | - | - |" in text
    assert "random allocation |" not in text
    capsys.readouterr()


def test_the_page_in_the_documentation_is_whole():
    """Every mechanism and number of samples, for the noise and where there is one for the rate; no cell is missing."""
    text = audit_power.PAGE.read_text()
    rows = [
        line
        for line in text.splitlines()
        if line.startswith("| ") and not line.startswith(("| mechanism", "| noise that"))
    ]
    ends = [f"| {name} | {rounded_up(numbers_until_found(*of))} |" for name, of in audit_power.ENDS.items()]
    assert [row for row in rows if row.startswith("| ends")] == ends
    assert len([row for row in rows if row not in ends]) == (len(MECHANISMS) + len(RATES)) * len(SEEDS)
    assert not any("| - |" in row for row in rows)
    assert page([]).splitlines()[0] == text.splitlines()[0]
    assert all(label.split(", ")[1] in text for label in WAYS.values())
