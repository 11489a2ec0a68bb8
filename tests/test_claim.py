"""Runs in certificates: one line each, without loss, and nothing else is read from that line."""

import json
import zlib
from base64 import b64encode
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hockeystick.claim import MOST_NODES, MonteCarloClaim, pack_nodes, unpack_nodes
from hockeystick.errors import InvalidInputError
from hockeystick.samples import Node
from hockeystick.types import Side

FORMER = Path(__file__).parents[0] / "certification" / "certificates-0.1.0" / "monte-carlo.json"

positive = st.floats(5e-324, 1e308)
nodes = st.builds(
    Node,
    side=st.sampled_from(Side),
    epsilon=st.floats(0.0, 700.0),
    theta=positive,
    weight_bound=positive,
    failure=st.floats(1e-300, 0.999),
)


def claim() -> MonteCarloClaim:
    return MonteCarloClaim.parse_json(json.dumps(json.loads(FORMER.read_text())["monte_carlo"]))


@settings(derandomize=True)
@given(st.lists(nodes, min_size=1, max_size=20).map(tuple))
def test_nodes_come_back_to_the_last_digit(some: tuple[Node, ...]) -> None:
    assert unpack_nodes(pack_nodes(some)) == some


def test_a_claim_comes_back_and_is_small() -> None:
    stated = claim()
    text = stated.model_dump_json()
    assert MonteCarloClaim.parse_json(text) == stated
    assert len(text) < 4000 < 30_000 < len(json.dumps(stated.model_dump(mode="json", context={"format": 1})))
    assert stated.samples == sum(run["samples"] for run in json.loads(text)["runs"])
    assert [run["key"] for run in json.loads(text)["runs"]] == [claimed.run.key for claimed in stated.runs]


def packed(content: bytes) -> str:
    return b64encode(zlib.compress(content)).decode()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not base64",
        b64encode(b"not zlib").decode(),
        packed(b""),
        packed(b"\x00" * 34),
        packed(b"\x02" + b"\x00" * 32),
        packed(b"\x00" * 33 * (MOST_NODES + 1)),
        packed(b"\x00" * 10**8),
        b64encode(zlib.compress(b"\x00" * 33) + b"more").decode(),
        b64encode(zlib.compress(b"\x00" * 33)[:-1]).decode(),
    ],
    ids=["empty", "text", "bytes", "none", "odd", "side", "many", "bomb", "more", "cut"],
)
def test_nothing_else_is_unpacked(text: str) -> None:
    with pytest.raises(InvalidInputError, match="'nodes' field"):
        unpack_nodes(text)


def test_packed_numbers_are_checked_like_others() -> None:
    with pytest.raises(InvalidInputError, match="'theta' field"):
        unpack_nodes(packed(b"\x00" * 33))


@pytest.mark.parametrize(
    ("field", "value"),
    [("seed", 8), ("samples", 1), ("chunks", 1), ("direction", "add"), ("key", "0" * 64), ("kernels", 1)],
)
def test_a_run_of_which_one_field_is_changed_is_not_read(field: str, value: object) -> None:
    content = json.loads(claim().model_dump_json())
    content["runs"][0][field] = value
    with pytest.raises(InvalidInputError, match="field must be"):
        MonteCarloClaim.parse_json(json.dumps(content))


def test_a_missing_field_is_named() -> None:
    content = json.loads(claim().model_dump_json())
    del content["runs"][0]["seed"]
    with pytest.raises(InvalidInputError, match=r"monte_carlo\.runs\.seed"):
        MonteCarloClaim.parse_json(json.dumps(content))
