"""Certificates that version 0.1.0 issued go on being read, shown and verified, and forgeries of them are refused.

The files were written by 0.1.0 and are never written again. A change of the wording of a requirement makes them fail:
then the former words have to stay known, not the files change.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hockeystick import Certificate, Statements, certify, state, verify
from hockeystick.certificate import CertificateOfFormat1
from hockeystick.errors import InvalidInputError, VerificationError
from hockeystick.report.certificate import markdown, shown
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
    assert issued.bounds == former.bounds
    assert issued.requirements == former.requirements


def test_an_unknown_format_is_named(tmp_path: Path) -> None:
    content = json.loads((FOLDER / "shuffle.json").read_text()) | {"format": "hockeystick-certificate/4"}
    (tmp_path / "new.json").write_text(json.dumps(content))
    with pytest.raises(InvalidInputError, match="'format' field must be 'hockeystick-certificate/2' or"):
        Certificate.load(tmp_path / "new.json")
