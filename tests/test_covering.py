"""Cells of grids that wait for the weekly run leave out no value, no two of small parameters, and no known killer."""

from itertools import product
from pathlib import Path

import pytest
from covering import covering, killers

GRID = {
    f"{size}-{side}-{direction}": {"size": size, "side": side, "direction": direction}
    for size, side, direction in product(range(5), ("upper", "lower"), ("remove", "add"))
}


def test_every_value_and_every_two_of_small_parameters_occur() -> None:
    kept = [GRID[cell] for cell in covering(GRID, frozenset())]
    assert len(kept) == 5
    assert {cell["size"] for cell in kept} == set(range(5))
    assert {(cell["side"], cell["direction"]) for cell in kept} == set(product(("upper", "lower"), ("remove", "add")))


def test_known_killers_are_kept_and_count_for_what_they_cover() -> None:
    always = {"4-lower-add", "4-lower-remove"}
    kept = covering(GRID, always)
    assert kept >= always
    assert len(kept) == 6
    assert covering(GRID, set(GRID)) == set(GRID)


def test_a_quarter_of_random_repetitions_is_kept() -> None:
    cells = {f"{seed}-{kind}": {"seed": seed, "kind": kind} for seed, kind in product(range(9), "ab")}
    assert covering(cells, frozenset()) == {"0-a", "1-b", "2-a"}
    assert covering({str(seed): {"seed": seed} for seed in range(9)}, {"7"}) == {"0", "1", "2", "7"}


@pytest.mark.parametrize("parameters", [{}, {"seed": 3}, {"a": 1, "b": object()}])
def test_a_single_cell_is_kept(parameters: dict[str, object]) -> None:
    assert covering({"alone": parameters}, frozenset()) == {"alone"}


def test_the_tables_of_planted_faults_are_read(tmp_path: Path) -> None:
    (tmp_path / "x_faults.md").write_text(
        "| `bounds.py` | why `tests/a.py::test_b` matters | `tests/a.py::test_c[0.5 - up]` (slow) | 12345678 |\n"
        "| `bounds.py` | hangs | `the time limit` | 12345678 |\n"
    )
    assert "tests/a.py::test_c[0.5 - up]" in killers(tmp_path)
    assert len(killers(Path(__file__).parent / "mutations")) > 700
