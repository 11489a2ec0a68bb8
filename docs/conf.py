"""The site: ``pip install '.[docs]'``, then ``sphinx-build -W -n docs build/site``.

Neither the build nor the pages need a network. A page loads the scripts, styles and fonts of the theme, which are
copied beside it, and nothing else: no formula needs MathJax, and no index of another site is read.
"""

import os
import re
import shutil
import sys
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.ext.autodoc.mock import _MockObject, mock  # type: ignore[attr-defined]

import hockeystick

DOCS = Path(__file__).parent
ROOT = DOCS.parent
GALLERY = {
    readme: DOCS / "gallery" / f"{readme.parent.relative_to(ROOT)}.md"
    for folder in ("papers", "experiments")
    for readme in (ROOT / folder).rglob("README.md")
}
"""A page of the gallery for each README of a paper or of an experiment."""

project = "hockeystick"
author = "The hockeystick developers"
copyright = "the hockeystick developers"
version = release = hockeystick.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"]
templates_path = ["_templates"]
nitpicky = True
highlight_language = "text"  # formulas are indented blocks

myst_heading_anchors = 4  # as GitHub makes them, where the pages are read too
myst_enable_extensions = ["deflist"]

autosummary_ignore_module_all = False  # the public interface is what __all__ names
autodoc_typehints = "none"  # docstrings say units and shapes; constrained fields would print pages of pydantic
autodoc_mock_imports = [
    *("accelerate", "dp_accounting", "flwr", "jax", "jax_privacy", "opacus", "optax", "torch", "transformers"),
]
napoleon_custom_sections = [("Attributes", "params_style"), ("Fields", "params_style")]
_MockObject.__or__ = lambda kind, other: kind  # annotations such as torch.Tensor | None
with mock(autodoc_mock_imports):
    # attributes of the package, which autodoc finds as modules alone
    for name in ("flower", "huggingface", "jax", "torch"):
        sys.modules[f"hockeystick.{name}"] = getattr(hockeystick, name)

html_theme = "pydata_sphinx_theme"
html_title = f"hockeystick {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_sidebars: dict[str, list[str]] = {
    name: [] for name in ("index", "tutorial", "glossary", "contributing", "changes")
}
"""Pages without a section of their own have room for what commands print."""
html_theme_options = {
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}


def leave_out_fields(app: Sphinx, what: str, name: str, member: object, skip: bool, options: object) -> bool | None:
    """The docstring of a class describes its fields; what is listed below it are methods and properties."""
    is_field = isinstance(member, type) and member.__name__ != name  # a class that is a value, and not defined there
    described = is_field or not (callable(member) or isinstance(member, property))
    return True if what == "class" and described else None


def keep_colons(app: Sphinx, what: str, name: str, member: object, options: object, lines: list[str]) -> None:
    """Undo napoleon's reading of a property's docstring, for which all before the first colon is a type."""
    for line in [line for line in lines if what == "property" and line.startswith(":type: ")]:
        lines.remove(line)
        lines[0] = f"{line.removeprefix(':type: ')}: {lines[0]}"


def relinked(text: str, read: Path, written: Path) -> str:
    """A page that moves: links to a README lead to its page in the gallery, and those to folders are dropped."""

    def link(match: re.Match[str]) -> str:
        label, target, anchor = match.groups()
        place = (read.parent / target).resolve()
        if not place.exists():
            return match[0]
        if place.is_dir():
            return str(label.strip("[]"))
        return f"{label}({os.path.relpath(GALLERY.get(place, place), written.parent)}{anchor or ''})"

    return re.sub(r"(!?\[[^]]*\])\(([^)#\s]+)(#[^)\s]*)?\)", link, text)


def write_gallery(app: Sphinx) -> None:
    """The pages of the gallery, with the figures in ``reproduced/``; afresh, so that none outlives what it is about."""
    for folder in ("gallery/papers", "gallery/experiments", "reference/api"):
        shutil.rmtree(DOCS / folder, ignore_errors=True)
    for readme, page in GALLERY.items():
        figures = sorted((ROOT / "reproduced" / page.stem).glob("*.png"))
        shown = "".join(f"\n![{figure.stem}]({os.path.relpath(figure, page.parent)})\n" for figure in figures)
        page.parent.mkdir(exist_ok=True)
        page.write_text(relinked(readme.read_text(), readme, page) + shown)


def lead_into_the_gallery(app: Sphinx, name: str, source: list[str]) -> None:
    """Links of any page."""
    if (page := DOCS / f"{name}.md").exists():
        source[0] = relinked(source[0], page, page)


def setup(app: Sphinx) -> None:
    app.connect("config-inited", lambda app, config: write_gallery(app), priority=1)
    app.connect("source-read", lead_into_the_gallery)
    app.connect("autodoc-skip-member", leave_out_fields)
    app.connect("autodoc-process-docstring", keep_colons, priority=501)  # after napoleon
