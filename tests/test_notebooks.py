"""The example notebooks run from top to bottom, and are stored without outputs."""

import ast
import json
import re
from pathlib import Path

import numpy as np
import pytest

from hockeystick.errors import VerificationError

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))


def cells(path: Path, kind: str) -> list[str]:
    """The sources of the cells of a kind."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return ["".join(cell["source"]) for cell in content["cells"] if cell["cell_type"] == kind]


def run_notebook(path: Path) -> dict[str, object]:
    """Run the code cells in order, in one namespace, and show the last expression of each as Jupyter does."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    for number, source in enumerate(cells(path, "code"), 1):
        name, tree = f"{path.name}, code cell {number}", ast.parse(source)
        last = tree.body[-1]
        if not isinstance(last, ast.Expr):
            exec(compile(tree, name, "exec"), namespace)
        else:
            tree.body.pop()
            exec(compile(tree, name, "exec"), namespace)
            shown = eval(compile(ast.Expression(last.value), name, "eval"), namespace)
            assert shown._repr_html_() if hasattr(shown, "_repr_html_") else repr(shown)
    return namespace


def test_there_are_notebooks() -> None:
    assert {"calibrate", "opacus", "read-a-certificate"} <= {path.stem for path in NOTEBOOKS}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path, monkeypatch, capsys):
    if "import torch" in "".join(cells(path, "code")):
        pytest.importorskip("opacus")
    monkeypatch.chdir(tmp_path)
    namespace = run_notebook(path)
    assert capsys.readouterr().out
    assert list(tmp_path.glob("*.certificate.json"))
    if path.stem == "read-a-certificate":
        assert isinstance(namespace["refusal"], VerificationError)
    if path.stem == "calibrate":  # near what the labels were made of: the noise of a weight has a deviation below .05
        np.testing.assert_allclose(np.asarray(namespace["weights"]), np.arange(5.0), atol=0.5)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_without_outputs(path):
    """Nothing that it printed on another day can be wrong, and no diff shows what only a run has changed."""
    content = json.loads(path.read_text(encoding="utf-8"))
    assert (content["nbformat"], content["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in content["cells"]}) == len(content["cells"])
    code = [cell for cell in content["cells"] if cell["cell_type"] == "code"]
    assert [cell for cell in code if cell["outputs"] or cell["execution_count"] is not None] == []
    assert path.read_text(encoding="utf-8") == json.dumps(content, indent=1, ensure_ascii=False) + "\n"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_links_of_a_notebook_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#]+)\)", "".join(cells(path, "markdown"))):
        assert (path.parent / target).exists(), f"{path.name} links to {target}"
    assert "](" in "".join(cells(path, "markdown"))
