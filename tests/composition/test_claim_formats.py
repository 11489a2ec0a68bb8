"""Claims of format 1, which have their version and accuracy beside the other fields, and of the present format."""

import json
from pathlib import Path
from typing import Any

import pytest

import hockeystick as hs
from hockeystick.composition.files import load_claim
from hockeystick.errors import InvalidInputError, VerificationError
from hockeystick.laws.randomisers import pure_law

FIRST = sorted((Path(__file__).parent / "claims-format-1").glob("*.json"))
"""A composition and a tuning claim, as they were issued before there was a second format."""


def rewritten(path: Path, changed: Path, **fields: Any) -> Path:
    """A claim with other fields; None takes one away."""
    content = json.loads(path.read_text()) | fields
    changed.write_text(json.dumps({name: value for name, value in content.items() if value is not None}))
    return changed


@pytest.mark.parametrize("path", FIRST, ids=lambda path: path.stem)
def test_claims_of_format_1_verify_and_are_written_as_they_were(path: Path, tmp_path: Path) -> None:
    claim = load_claim(path)
    assert claim.format == f"hockeystick-{path.stem}/1"
    assert hs.verify(claim) is claim
    claim.save(tmp_path / "again.json")
    assert json.loads((tmp_path / "again.json").read_text()) == json.loads(path.read_text())


@pytest.mark.parametrize("path", FIRST, ids=lambda path: path.stem)
@pytest.mark.parametrize("field", ["hockeystick_version", "accuracy"])
def test_the_digest_of_format_1_is_over_what_stands_beside(path: Path, field: str, tmp_path: Path) -> None:
    stands = json.loads(path.read_text())[field]
    other = "0.0.9" if isinstance(stands, str) else stands | {"nodes_per_unit": stands["nodes_per_unit"] + 1}
    with pytest.raises(VerificationError, match="altered"):
        load_claim(rewritten(path, tmp_path / "changed.json", **{field: other}))
    with pytest.raises(InvalidInputError, match=field):
        load_claim(rewritten(path, tmp_path / "changed.json", **{field: None}))


@pytest.mark.parametrize("path", FIRST, ids=lambda path: path.stem)
def test_each_format_has_its_own_fields(path: Path, tmp_path: Path) -> None:
    """What format 1 does not seal is no part of it, and what format 2 has under ``origin`` is nowhere else."""
    old = load_claim(path)
    origin = {"hockeystick_version": "0.1.0", "library_versions": {}, "accuracy": old.accuracy.model_dump()}
    with pytest.raises(InvalidInputError, match="origin"):
        load_claim(rewritten(path, tmp_path / "changed.json", origin=origin))
    second = old.format.replace("/1", "/2")
    with pytest.raises(InvalidInputError, match="hockeystick_version"):
        load_claim(rewritten(path, tmp_path / "changed.json", format=second, origin=origin))
    with pytest.raises(InvalidInputError, match="format"):
        load_claim(rewritten(path, tmp_path / "changed.json", format=old.format.replace("/1", "/3")))


@pytest.mark.parametrize("path", FIRST, ids=lambda path: path.stem)
def test_new_claims_have_the_version_under_origin(path: Path, tmp_path: Path) -> None:
    old = load_claim(path)
    if path.stem == "tuning":
        new = hs.tuning(old.certificates[0], trials=10, delta=1e-5)
    else:
        new = hs.compose([old.certificates[place] for place in old.runs], data=old.together, delta=1e-5)
    new.save(tmp_path / "new.json")
    content = json.loads((tmp_path / "new.json").read_text())
    assert content["format"] == f"hockeystick-{path.stem}/2"
    assert content["origin"]["hockeystick_version"] == hs.__version__
    assert not {"hockeystick_version", "accuracy"} & content.keys()
    assert load_claim(tmp_path / "new.json") == new
    assert hs.verify(new) is new
    content["origin"]["hockeystick_version"] = "0.0.9"
    (tmp_path / "new.json").write_text(json.dumps(content))
    with pytest.raises(VerificationError, match="altered"):
        load_claim(tmp_path / "new.json")


@pytest.mark.parametrize(
    "use",
    [
        lambda path: hs.verify(path),
        lambda path: hs.compose([path], delta=1e-5),
        lambda path: hs.tuning(path, trials=3, delta=1e-5),
    ],
    ids=["verify", "compose", "tuning"],
)
def test_who_gives_the_path_of_a_claim_is_told_what_reads_it(use):
    with pytest.raises(InvalidInputError, match=r"Got 'c\.json' instead; hs\.Certificate\.load reads a file\.$"):
        use("c.json")


def test_a_law_is_no_run_and_it_says_where_laws_compose():
    with pytest.raises(InvalidInputError, match=r"^Run 1 .* instead; docs/how-to/compose-runs\.md composes laws\.$"):
        hs.compose([pure_law(1.0, hs.Side.UPPER)], delta=1e-5)  # type: ignore[list-item]
