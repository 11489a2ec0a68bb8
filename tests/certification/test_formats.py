"""Certificates that version 0.1.0 issued go on being read, shown and verified, and forgeries of them are refused.

The files were written by 0.1.0 and are never written again. A change of the wording of a requirement makes them fail:
then the former words have to stay known, not the files change.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hockeystick import BandedToeplitz, Certificate, Deterministic, Mechanism, Statements, certify, state, verify
from hockeystick.certificate import FORMAT_2, CertificateOfFormat1
from hockeystick.certification import description
from hockeystick.certification.texts import CURRENT
from hockeystick.errors import InvalidInputError, VerificationError
from hockeystick.report.certificate import markdown, shown
from hockeystick.strategies import base
from hockeystick.strategies.optimise import banded_toeplitz
from hockeystick.types import Kind

FOLDER = Path(__file__).parent / "certificates-0.1.0"
FILES = sorted(FOLDER.glob("*.json"))


def test_all_kinds_are_kept() -> None:
    loaded = [Certificate.load(path) for path in FILES]
    assert {one.kind for one in loaded} == set(Kind)
    assert {one.mechanism.sampler.kind for one in loaded} >= {"poisson", "shuffle", "balls_in_bins"}
    assert any(one.strategy_digest for one in loaded)
    assert any(one.cut_off for one in loaded)
    assert {one.monte_carlo.statement.value for one in loaded if one.monte_carlo} == {
        "confidence",
        "estimate_verify_release",
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_certificate_of_0_1_0_verifies(path: Path, tmp_path: Path) -> None:
    loaded = Certificate.load(path)
    assert isinstance(loaded, CertificateOfFormat1)
    assert verify(loaded) is loaded
    loaded.save(tmp_path / "again.json")
    assert json.loads((tmp_path / "again.json").read_text()) == json.loads(path.read_text())
    assert Certificate.load(tmp_path / "again.json") == loaded
    for text in (str(loaded), shown(loaded), markdown(loaded)):
        assert "is certified" in text
        assert all(requirement in text for requirement in loaded.requirements)


FORGERIES: dict[str, Callable[[dict[str, Any]], object]] = {
    "epsilon": lambda c: c["epsilon"].update(upper=c["epsilon"]["upper"] * (1.0 - 1e-6)),
    "delta": lambda c: c.update(delta=c["delta"] * (1.0 - 1e-5)),
    "requirements": lambda c: c["requirements"].pop(),
    "references": lambda c: c["references"].append("a paper"),
    "also_holds_for": lambda c: c.update(also_holds_for=["add_remove"]),
    "sensitivity": lambda c: c.update(sensitivity=0.5),
    "kind": lambda c: c.update(kind="monte_carlo"),
    "confidence": lambda c: c.update(confidence=0.9),
}


@pytest.mark.parametrize("field", FORGERIES)
def test_a_forged_certificate_of_format_1_does_not_verify(field: str, tmp_path: Path) -> None:
    content = json.loads((FOLDER / "shuffle.json").read_text())
    FORGERIES[field](content)
    (tmp_path / "forged.json").write_text(json.dumps(content))
    with pytest.raises(VerificationError, match="altered"):
        Certificate.load(tmp_path / "forged.json")
    forged = CertificateOfFormat1.parse_json(json.dumps(content)).sealed()
    with pytest.raises(VerificationError, match="epsilon" if field == "delta" else field):
        verify(forged)


def test_its_mechanism_gets_a_certificate_of_the_present_format() -> None:
    former = Certificate.load(FOLDER / "shuffle.json")
    issued = state(certify(former.mechanism, delta=1e-5), Statements(label="again"))
    assert isinstance(issued, Certificate)
    # The search for an epsilon may begin elsewhere, and ends within a billionth.
    assert issued.bounds.upper == pytest.approx(former.bounds.upper, rel=2e-9)
    assert issued.bounds.lower == pytest.approx(former.bounds.lower, rel=2e-9)
    assert len(issued.requirements) == len(former.requirements)
    reworded = set(issued.requirements) ^ set(former.requirements)
    assert all("Divide by a number" in requirement and "fixed" in requirement for requirement in reworded)
    assert len(reworded) == 2


FOLDER_2 = Path(__file__).parent / "certificates-format-2"


@pytest.mark.parametrize("path", sorted(FOLDER_2.glob("*.json")), ids=lambda path: path.stem)
def test_a_certificate_of_format_2_verifies_with_its_own_words(path: Path, tmp_path: Path) -> None:
    """Files that were issued before format 3 began, and are never written again."""
    loaded = Certificate.load(path)
    assert loaded.format == FORMAT_2
    if not loaded.mechanism.strategy.optimised:
        assert verify(loaded) is loaded
    loaded.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text() == path.read_text()
    if loaded.mechanism.strategy.optimised:
        return
    for field, words in {
        "prefixes": description.prefixes(loaded.mechanism, CURRENT),
        "not_covered": description.not_covered(loaded.statements, None, CURRENT),
    }.items():
        content = loaded.content() | {field: words}
        with pytest.raises(VerificationError, match=field):
            verify(Certificate.parse_json(json.dumps(content)).sealed())


def test_a_certificate_of_format_2_is_about_what_the_optimiser_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds no matrix, so that one that differs by 1e-9 is another one, and so are its bounds."""
    optimal = banded_toeplitz.optimal_coefficients
    base._built.cache_clear()
    monkeypatch.setattr(banded_toeplitz, "optimal_coefficients", lambda *sizes: optimal(*sizes) * (1.0 + 1e-9))
    base._built.cache_clear()
    with pytest.raises(VerificationError, match="certificates before format 3 do not hold the matrix"):
        verify(Certificate.load(FOLDER_2 / "optimised.json"))
    base._built.cache_clear()


def test_the_fields_of_format_3_are_refused_in_format_2() -> None:
    run = Mechanism(strategy=BandedToeplitz(bands=2), sampler=Deterministic(bins=4), noise_multiplier=2.0)
    content = certify(run, delta=1e-5).content()
    with pytest.raises(InvalidInputError, match=r"'mechanism\.strategy\.held' field must be given from format 3 on"):
        Certificate.parse_json(json.dumps(content | {"format": FORMAT_2}))
    with pytest.raises(InvalidInputError, match=r"'mechanism\.strategy\.held' field must be given from format 3 on"):
        Certificate.parse_json(json.dumps(content | {"mechanism": run.model_dump(mode="json")}))
    plain = certify(Mechanism(sampler=Deterministic(bins=4), noise_multiplier=2.0), delta=1e-5).content()
    with pytest.raises(InvalidInputError, match=r"'numbers\.basis' field must be given with format"):
        Certificate.parse_json(json.dumps(plain | {"format": FORMAT_2}))


def test_an_unknown_format_is_named(tmp_path: Path) -> None:
    content = json.loads((FOLDER / "shuffle.json").read_text()) | {"format": "hockeystick-certificate/4"}
    (tmp_path / "new.json").write_text(json.dumps(content))
    with pytest.raises(InvalidInputError, match="'format' field must be 'hockeystick-certificate/2' or"):
        Certificate.load(tmp_path / "new.json")
