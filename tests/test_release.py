"""What a release says of itself in several files is the same everywhere."""

import re
import tomllib
from pathlib import Path

import pytest

import hockeystick
from hockeystick.certificate.certificate import FORMAT
from hockeystick.plan import SCHEMA

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_citation_is_about_this_version() -> None:
    lines = dict(re.findall(r"^([a-z-]+): *(.+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE))
    assert lines["version"] == hockeystick.__version__
    assert lines["license"] == PROJECT["project"]["license"].split(" AND ")[0]  # what is vendored comes after it


def test_the_versions_of_python_agree() -> None:
    said = [
        classifier.rpartition(" ")[2]
        for classifier in PROJECT["project"]["classifiers"]
        if re.search(r":: 3\.\d+$", classifier)
    ]
    assert f">={said[0]}" == PROJECT["project"]["requires-python"]
    assert PROJECT["tool"]["ruff"]["target-version"] == "py" + said[0].replace(".", "")


def test_every_fragment_of_the_change_log_has_a_kind() -> None:
    kinds = {kind["directory"] for kind in PROJECT["tool"]["towncrier"]["type"]}
    for path in (ROOT / PROJECT["tool"]["towncrier"]["directory"]).iterdir():
        if path.name not in {"template.md", ".gitignore"}:
            assert re.fullmatch(rf"(\+[a-z0-9-]+|\d+)\.({'|'.join(kinds)})(\.\d+)?\.md", path.name), path


@pytest.mark.parametrize("format", [FORMAT, SCHEMA])
def test_the_page_on_compatibility_names_the_formats(format: str) -> None:
    page = (ROOT / "docs" / "reference" / "compatibility.md").read_text()
    name, _, version = format.partition("/")
    assert format in page or f"{name}:{version}" in page
