"""What the tests of all papers use."""

from pathlib import Path

import pytest

from hockeystick.deadline import Deadline
from hockeystick.reproduction.papers import Output


@pytest.fixture
def output(tmp_path: Path) -> Output:
    """Where a figure is written, with all the time that it takes."""
    return Output(tmp_path, Deadline())
