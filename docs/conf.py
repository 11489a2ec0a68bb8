"""The site: ``pip install '.[docs]'``, then ``sphinx-build -W -n docs build/site``.

Neither the build nor the pages need a network. A page loads the scripts, styles and fonts of the theme, which are
copied beside it, and nothing else: no formula needs MathJax, and no index of another site is read.
"""

import shutil
import sys
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.ext.autodoc.mock import mock  # type: ignore[attr-defined]

import hockeystick

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
autodoc_mock_imports = ["accelerate", "dp_accounting", "jax", "jax_privacy", "opacus", "optax", "torch", "transformers"]
napoleon_custom_sections = [("Attributes", "params_style"), ("Fields", "params_style")]
with mock(autodoc_mock_imports):
    for name in ("huggingface", "jax", "torch"):  # attributes of the package, which autodoc finds as modules alone
        sys.modules[f"hockeystick.{name}"] = getattr(hockeystick, name)

ROOT = Path(__file__).parents[1]
PAPERS = ROOT / "docs" / "gallery" / "papers"
# Pages are written afresh in every build, so that none outlives what it is about.
for written in (PAPERS, ROOT / "docs" / "reference" / "api"):
    shutil.rmtree(written, ignore_errors=True)
PAPERS.mkdir()
for readme in ROOT.glob("papers/*/README.md"):  # a page each, with the figures that were made here
    paper = readme.parent.name
    figures = sorted(one.relative_to(ROOT) for one in ROOT.glob(f"reproduced/{paper}/*.png"))
    content = f"```{{include}} ../../../papers/{paper}/README.md\n```\n" + "".join(
        f"\n![{one.stem}](../../../{one})\n" for one in figures
    )
    (PAPERS / f"{paper}.md").write_text(content)

html_theme = "pydata_sphinx_theme"
html_title = f"hockeystick {version}"
html_show_sourcelink = False
html_theme_options = {
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}


def leave_out_fields(app: Sphinx, what: str, name: str, member: object, skip: bool, options: object) -> bool | None:
    """The docstring of a class describes its fields; what is listed below it are methods and properties."""
    return True if what == "class" and not (callable(member) or isinstance(member, property)) else None


def keep_colons(app: Sphinx, what: str, name: str, member: object, options: object, lines: list[str]) -> None:
    """Undo napoleon's reading of a property's docstring, for which all before the first colon is a type."""
    for line in [line for line in lines if what == "property" and line.startswith(":type: ")]:
        lines.remove(line)
        lines[0] = f"{line.removeprefix(':type: ')}: {lines[0]}"


def setup(app: Sphinx) -> None:
    app.connect("autodoc-skip-member", leave_out_fields)
    app.connect("autodoc-process-docstring", keep_colons, priority=501)  # after napoleon
