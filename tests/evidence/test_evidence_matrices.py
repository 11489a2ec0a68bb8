"""A store keeps the optimised matrices of its runs, so that a machine whose optimiser finds others uses them too."""

import sqlite3

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.errors import EvidenceError
from hockeystick.evidence import EvidenceStore
from hockeystick.strategies import base, companion
from hockeystick.strategies.optimise import banded_toeplitz, dense

STRATEGIES = [hs.BandedToeplitz(bands=2), hs.Dense()]


def run(strategy):
    return hs.Mechanism(strategy=strategy, sampler=hs.BallsInBins(bins=4, epochs=2), noise_multiplier=2.0)


def forget():
    base._built.cache_clear()
    companion._places.clear()
    companion._tables.clear()


@pytest.fixture
def elsewhere(monkeypatch):
    """Makes this another machine when it is called: the optimiser's numbers are an ulp off, and nothing is known."""

    def become():
        forget()
        for module, name in ((banded_toeplitz, "optimal_coefficients"), (dense, "optimal_matrix")):
            optimiser = getattr(module, name)
            monkeypatch.setattr(
                module, name, lambda *sizes, _optimiser=optimiser: np.nextafter(_optimiser(*sizes), 0.0).clip(0.0)
            )

    forget()
    yield become
    forget()


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda it: it.kind)
def test_another_machine_goes_on_with_the_matrix_of_the_store(strategy, elsewhere, tmp_path):
    with EvidenceStore.open(tmp_path / "evidence.db") as store:
        first = store.pinned(run(strategy))
        assert first == run(strategy).pinned()
        digest = first.matrix.digest
    elsewhere()
    assert run(strategy).matrix.digest != digest
    for read_only in (False, True):
        with EvidenceStore.open(tmp_path / "evidence.db", read_only=read_only) as store:
            assert store.pinned(run(strategy)) == first
            assert store.pinned(run(strategy)).matrix.digest == digest
            assert store.pinned(first) == first
            store.check()
    plain = run(hs.Identity())
    with EvidenceStore.open(tmp_path / "evidence.db") as store:
        assert store.pinned(plain) == plain


def test_the_oldest_matrix_of_merged_stores_counts(elsewhere, tmp_path, monkeypatch):
    strategy = STRATEGIES[1]
    with EvidenceStore.open(tmp_path / "first.db") as store:
        monkeypatch.setattr("hockeystick.evidence.store._now", lambda: "2030-01-01T00:00:00+00:00")
        first = store.pinned(run(strategy))
    elsewhere()
    with EvidenceStore.open(tmp_path / "second.db") as store:
        monkeypatch.setattr("hockeystick.evidence.store._now", lambda: "2030-01-02T00:00:00+00:00")
        assert store.pinned(run(strategy)) != first
        store.merge(tmp_path / "first.db")
        assert store.pinned(run(strategy)) == first


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda it: it.kind)
def test_a_damaged_matrix_is_told(strategy, elsewhere, tmp_path):
    with EvidenceStore.open(tmp_path / "evidence.db") as store:
        store.pinned(run(strategy))
    elsewhere()
    with sqlite3.connect(tmp_path / "evidence.db") as connection:
        held, numbers = connection.execute("SELECT held, numbers FROM matrices").fetchone()
        if numbers:
            connection.execute("UPDATE matrices SET numbers = ?", (numbers[:-8] + np.float64(0.5).tobytes(),))
        else:
            connection.execute("UPDATE matrices SET held = ?", (held.replace("0.", "0.1", 1),))
    with EvidenceStore.open(tmp_path / "evidence.db") as store:
        with pytest.raises(EvidenceError, match=r"A matrix of the evidence store .* is damaged: its numbers"):
            store.pinned(run(strategy))
        with pytest.raises(EvidenceError, match="is damaged"):
            store.check()


def test_samples_go_on_where_the_optimiser_finds_other_digits(elsewhere, tmp_path):
    """The chunks of the first machine count: nothing is drawn again, and the certificate is the same."""

    def certificate():
        with EvidenceStore.open(tmp_path / "evidence.db") as store:
            sampling = hs.MonteCarlo(ledger=store, ratio=0.5)
            issued = hs.certify(run(STRATEGIES[0]), delta=1e-3, method="monte_carlo", monte_carlo=sampling)
            return issued, sum(summary.chunks for summary in store.runs())

    first, chunks = certificate()
    elsewhere()
    again, still = certificate()
    assert first.monte_carlo is not None
    assert again == first
    assert still == chunks
    with EvidenceStore.open(tmp_path / "evidence.db", read_only=True) as store:
        hs.verify(again, evidence=store)
