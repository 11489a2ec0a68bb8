"""The scripts of findings/ have the form that CONTRIBUTING.md describes; they are not run here."""

import os
import re
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parents[1] / "findings").iterdir())
OWN = "hockeystick"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_a_finding_has_a_header_pinned_packages_and_no_import_of_ours(script):
    text = script.read_text(encoding="utf-8")
    lines = text.splitlines()
    assert script.suffix == ".sh"
    assert os.access(script, os.X_OK)
    assert lines[0] == "#!/bin/bash"
    header = "\n".join(lines[1 : lines.index("set -euo pipefail")])
    assert all(line.startswith("# ") for line in header.splitlines())
    for word in ("Expected:", "Happens:", "Who is hurt:", "Version:", "Source:"):
        assert f"# {word}" in header or f". {word}" in header, word
    assert OWN not in text.lower()
    assert "mktemp -d" in text
    assert "trap 'rm -rf " in text
    lines_of_pip = re.findall(r"pip\" install --quiet --disable-pip-version-check (.*)", text.replace("\\\n", " "))
    packages = [word for line in lines_of_pip for word in line.split("#")[0].split() if word != "--no-deps"]
    assert packages
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", package) for package in packages)
    assert "assert " in text  # so that the exit code says when the behaviour changes


def test_there_are_findings():
    assert len(SCRIPTS) >= 10
