"""The site builds without a warning and without a network, and its pages load nothing from elsewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("sphinx")
pytest.importorskip("myst_parser")
pytest.importorskip("pydata_sphinx_theme")
ROOT = Path(__file__).resolve().parents[1]


def test_the_site_builds(tmp_path):
    """Links and anchors within it, references in docstrings and toctrees: whatever is wrong with them is a warning."""
    site = tmp_path / "site"
    build = [sys.executable, "-m", "sphinx", "-q", "-W", "-n", "--keep-going", "docs", str(site)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pages = {page.relative_to(site).with_suffix("").as_posix(): page.read_text() for page in site.rglob("*.html")}
    assert {"index", "tutorial", "glossary", "reference/api/hockeystick.certify"} <= set(pages)
    loaded = re.compile(r'<(?:script|link|img|iframe|source)\b[^>]*?(?:src|href)="(?:https?:)?//[^"]*"')
    assert {name: places for name, text in pages.items() if (places := loaded.findall(text))} == {}
