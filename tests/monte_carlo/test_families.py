"""The table of families names modules, which nothing but this imports all together."""

import pytest

from hockeystick.monte_carlo.families import FAMILIES
from hockeystick.pairs.base import DominatingPair


@pytest.mark.parametrize("kind", FAMILIES, ids=lambda kind: kind.__name__)
def test_each_line_leads_to_the_family_of_its_pair(kind: type[DominatingPair]) -> None:
    assert FAMILIES[kind]().pair is kind
