"""Plots of comparisons: the axis that shows all bars."""

from pathlib import Path
from typing import Any

import pytest

from hockeystick.certification.schedule import Outcome
from hockeystick.report import plot
from hockeystick.types import Kind, Side

pytest.importorskip("matplotlib")


def outcome(method: str, value: float | None, side: Side = Side.UPPER) -> Outcome:
    return Outcome(method, side, Kind.DETERMINISTIC, 1.0, value, 0.1, "ok")


@pytest.mark.parametrize(
    ("values", "scale"),
    [
        ([1.0, 2.0, 9.9], "linear"),
        ([0.5, 5.0], "log"),
        ([0.0, 1.0], "linear"),
        ([0.0, 0.1, 30.0], "log"),
        ([], "linear"),
    ],
)
def test_axis_is_logarithmic_when_one_bound_is_off_by_ten(
    values: list[float], scale: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Any] = []
    save = plot.save_figure

    def saved(figure: Any, path: Path) -> None:
        drawn.append(figure)
        save(figure, path)

    monkeypatch.setattr(plot, "save_figure", saved)
    outcomes = [outcome(f"method {place}", value) for place, value in enumerate(values)] + [outcome("none", None)]
    plot.plot_comparison(outcomes, tmp_path / "bars.png", title="all")
    (axes,) = drawn[0].axes
    assert axes.get_xscale() == scale
    left, right = axes.get_xlim()
    ends = [bar.get_x() + bar.get_width() for bar in axes.patches]
    assert len(ends) == len(values)
    assert all(left <= end <= right for end in ends)
    assert sorted(float(text.get_text()) for text in axes.texts) == sorted(values)


@pytest.mark.parametrize(("side", "says"), [(Side.UPPER, " 2.34562"), (Side.LOWER, " 2.34561")])
def test_bounds_are_written_to_their_safe_side(
    side: Side, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr(plot, "save_figure", lambda figure, path: drawn.append(figure))
    plot.plot_comparison([outcome("one", 2.3456149, side)], tmp_path / "bars.png", title="all")
    assert [text.get_text() for text in drawn[0].axes[0].texts] == [says]
