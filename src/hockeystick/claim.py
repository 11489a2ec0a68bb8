"""What a certificate says about the samples behind it, and what a choice by a random test costs.

Estimate, verify, release: the mechanism that runs is chosen by the outcome of a random test. The whole of it - test,
choose, run - satisfies (epsilon, delta' + q (1 - delta')) when candidates that are not (epsilon, delta')-private are
accepted with probabilities whose sum is at most q. Unlike a confidence statement this is a guarantee about the released
output itself.

Proof, and what it needs: docs/theory/monte-carlo/release.md (dong-ganesh-2026-b-min-sep, Theorem A.1, without its
assumption that the tests are independent).
"""

import json
import zlib
from base64 import b64decode, b64encode
from enum import StrEnum
from typing import Annotated, Any

import numpy as np
from pydantic import (
    Field,
    GetJsonSchemaHandler,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from hockeystick.errors import InvalidInputError
from hockeystick.samples import LARGEST_CHUNK, Node, Run, Seed
from hockeystick.spec import Count, Spec
from hockeystick.types import Direction, Side

FailureProbability = Annotated[float, Field(gt=0.0, lt=1.0)]
MOST_NODES = 1 << 14
_SIDES = tuple(Side)
_COLUMNS = ("epsilon", "theta", "weight_bound", "failure")
_NODE_BYTES = 1 + 8 * len(_COLUMNS)


class Statement(StrEnum):
    """What the failure probability is about."""

    CONFIDENCE = "confidence"
    """The interval holds the truth, except with the failure probability over the draw of the samples."""
    ESTIMATE_VERIFY_RELEASE = "estimate_verify_release"
    """The whole procedure, which draws the samples and then runs what it accepted, is (epsilon, delta)-DP."""


class PackedRun(Spec):
    """A run as a certificate writes it: its nodes in one line.

    Attributes:
        key: SHA-256 of the run, under which evidence is stored.
        samples: ``chunks * chunk_size``.
        nodes: :func:`pack_nodes`.
        others: as in :class:`~hockeystick.samples.Run`.
    """

    key: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    direction: Direction
    proposal: str
    parameters: dict[str, float]
    seed: Seed
    chunks: Count
    chunk_size: Annotated[int, Field(ge=1, le=LARGEST_CHUNK)]
    samples: int
    kernels: int
    subject: str
    nodes: str


class RunClaim(Spec):
    """A run, and how many of its chunks were used: the streams from 0 on.

    In JSON it is a :class:`PackedRun`; the former form, with every node as an object, is read as well, and written
    for the context ``{"format": 1}``.
    """

    run: Run
    chunks: Count

    @property
    def samples(self) -> int:
        """How many samples the claim rests on."""
        return self.chunks * self.run.chunk_size

    def packed(self) -> PackedRun:
        """The same with the nodes in one line."""
        run = self.run.model_dump(exclude={"nodes"})
        return PackedRun(
            **run, key=self.run.key, chunks=self.chunks, samples=self.samples, nodes=pack_nodes(self.run.nodes)
        )

    @model_serializer(mode="wrap")
    def _written(self, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        if info.mode != "json" or (info.context or {}).get("format") == 1:
            plain: dict[str, Any] = handler(self)
            return plain
        return self.packed().model_dump(mode="json")

    @model_validator(mode="before")
    @classmethod
    def _read(cls, values: Any) -> Any:
        if not isinstance(values, dict) or isinstance(values.get("run"), Run):
            return values
        try:
            if "run" in values:
                return values | {"run": Run.model_validate_json(json.dumps(values["run"]))}
            packed = PackedRun.model_validate_json(json.dumps(values))
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            where = ".".join(map(str, problem["loc"]))
            raise InvalidInputError(f"The 'monte_carlo.runs.{where}' field is not valid: {problem['msg']}") from None
        shared = packed.model_dump(exclude={"key", "samples", "chunks", "nodes"})
        claim = cls(run=Run(**shared, nodes=unpack_nodes(packed.nodes)), chunks=packed.chunks)
        claim._check("samples", packed.samples, claim.samples)
        claim._check("key", packed.key, claim.run.key)
        return {"run": claim.run, "chunks": claim.chunks}

    @staticmethod
    def _check(name: str, claimed: object, actual: object) -> None:
        if claimed != actual:
            raise InvalidInputError(f"The 'monte_carlo.runs.{name}' field must be {actual!r} for this run")

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return handler(PackedRun.__pydantic_core_schema__)


class MonteCarloClaim(Spec):
    """The runs of an estimation; their bounds follow from the stored chunks, or from drawing them again.

    Attributes:
        statement: what is claimed.
        failure_probability: of all bounds together.
        runs: every attempt, in the order in which they were made.
    """

    statement: Statement
    failure_probability: FailureProbability
    runs: tuple[RunClaim, ...]

    @property
    def samples(self) -> int:
        """How many samples all runs have together."""
        return sum(claim.samples for claim in self.runs)


def pack_nodes(nodes: tuple[Node, ...]) -> str:
    """Nodes in one line, without loss: base64 of zlib of their columns, sides as bytes and the rest as doubles.

    >>> node = Node(side=Side.UPPER, epsilon=1.0, theta=0.1, weight_bound=2.0, failure=1e-9)
    >>> unpack_nodes(pack_nodes((node,))) == (node,)
    True
    """
    sides = bytes(_SIDES.index(node.side) for node in nodes)
    columns = [np.array([getattr(node, name) for node in nodes], dtype="<f8").tobytes() for name in _COLUMNS]
    return b64encode(zlib.compress(b"".join([sides, *columns]), 9)).decode()


def unpack_nodes(text: str) -> tuple[Node, ...]:
    """The nodes of :func:`pack_nodes`; raises InvalidInputError for any other text."""
    opening = zlib.decompressobj()
    try:
        content = opening.decompress(b64decode(text, validate=True), _NODE_BYTES * MOST_NODES)
    except (ValueError, zlib.error):
        content = b""
    count, rest = divmod(len(content), _NODE_BYTES)
    if rest or not count or not opening.eof or opening.unused_data or max(content[:count]) >= len(_SIDES):
        raise InvalidInputError(f"The 'nodes' field must be at most {MOST_NODES} nodes, packed by this package")
    columns = np.frombuffer(content, dtype="<f8", offset=count).reshape(len(_COLUMNS), count).T.tolist()
    return tuple(
        Node(side=_SIDES[side], **dict(zip(_COLUMNS, row, strict=True)))
        for side, row in zip(content[:count], columns, strict=True)
    )


def release_delta(delta_prime: float, q: float) -> float:
    """The delta that a release satisfies: ``delta' + q (1 - delta')``, rounded up.

    Args:
        delta_prime: the delta that was verified, in [0, 1].
        q: bound on the probability with which tests accept what they should refuse, in [0, 1].
    """
    _check_share("delta_prime", delta_prime)
    _check_share("q", q)
    if delta_prime == 0.0 or q == 0.0:  # exact
        return delta_prime + q
    # Three roundings of positive numbers, 1 - delta' being exact or relatively accurate, and then up.
    return min((delta_prime + q * (1.0 - delta_prime)) * (1.0 + 2.0**-50), 1.0)


def verification_target(delta: float, q: float) -> float:
    """What to verify so that the release satisfies ``delta``: the delta' ``(delta - q) / (1 - q)``, rounded down.

    Raises: InvalidInputError unless ``0 <= q < delta <= 1``.
    """
    _check_share("delta", delta)
    _check_share("q", q)
    if not q < delta:
        raise InvalidInputError(f"The 'q' argument must be below delta = {delta!r}. Got {q!r} instead.")
    if q == 0.0:  # exact
        return delta
    # Moved down, relatively to delta, by more than this quotient and release_delta round up together.
    return max(delta * (1.0 - 2.0**-48) - q, 0.0) / (1.0 - q)


def _check_share(name: str, value: float) -> None:
    if not 0.0 <= value <= 1.0:
        raise InvalidInputError(f"The {name!r} argument must be from 0 to 1. Got {value!r} instead.")
