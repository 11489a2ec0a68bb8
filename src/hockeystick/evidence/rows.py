"""Runs and chunks as rows of a store, bit for bit, with digests that reveal damage."""

import hashlib
import json
import struct
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from hockeystick.errors import EvidenceError
from hockeystick.samples import LARGEST_CHUNK, Chunk, Run

COLUMNS = "samples, sums, logs, largest, cells, digest"
"""The columns that :func:`chunk_row` writes and :func:`read_chunk` reads, in this order."""
Row = tuple[Any, ...]
_CELL_BYTES = 16
"""One cell and its count: two int32 and one int64."""
_LEVEL = 1
"""The compression level; slower levels make these tables no smaller."""


def run_content(run: Run) -> str:
    """The canonical JSON of a run, whose SHA-256 is the run's key."""
    return json.dumps(run.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))


def chunk_row(key: str, chunk: Chunk) -> Row:
    """The values of :data:`COLUMNS` for a chunk. Floats keep their bits, NaN and signed zeros included."""
    cells = zlib.compress(chunk.cells.astype("<i4").tobytes() + chunk.counts.astype("<i8").tobytes(), _LEVEL)
    return (
        chunk.samples,
        chunk.sums.astype("<f8").tobytes(),
        chunk.logs.astype("<f8").tobytes(),
        struct.pack("<d", chunk.largest),
        cells,
        chunk_digest(key, chunk),
    )


def chunk_digest(key: str, chunk: Chunk) -> bytes:
    """SHA-256 over the run's key and the uncompressed chunk, so that it does not depend on the version of zlib."""
    sizes = (chunk.stream, chunk.samples, chunk.sums.size, chunk.logs.size, chunk.counts.size)
    digest = hashlib.sha256(f"hockeystick-chunk/1 {key}".encode())
    digest.update(struct.pack("<5Qd", *sizes, chunk.largest))
    for array, kind in ((chunk.sums, "<f8"), (chunk.logs, "<f8"), (chunk.cells, "<i4"), (chunk.counts, "<i8")):
        digest.update(np.ascontiguousarray(array, dtype=kind).tobytes())
    return digest.digest()


def read_chunk(key: str, stream: int, row: Row, most: int = LARGEST_CHUNK) -> Chunk:
    """The chunk of a row, if it is what was stored.

    Args:
        most: samples that the chunks of its run have; a row that claims more is not even inflated.

    Raises: ValueError saying what is wrong, in half a sentence.
    """
    try:
        samples, sums, logs, largest, cells, digest = row
        if not 1 <= samples <= most:
            raise ValueError
        chunk = _chunk(stream, samples, sums, logs, largest, cells)
        intact = chunk_digest(key, chunk) == digest
    except (ValueError, TypeError, OverflowError, struct.error, zlib.error):  # flipped bits can be any of these
        raise ValueError("its values cannot be read") from None
    if not intact:
        raise ValueError("its values do not have the digest that was stored with them")
    return chunk


def _chunk(stream: int, samples: int, sums: bytes, logs: bytes, largest: bytes, cells: bytes) -> Chunk:
    inflater = zlib.decompressobj()
    table = inflater.decompress(cells, _CELL_BYTES * samples + 1)  # every cell was hit: no more cells than samples
    if not inflater.eof or inflater.unused_data or len(table) % _CELL_BYTES:
        raise ValueError
    hit = len(table) // _CELL_BYTES
    return Chunk(
        stream=stream,
        samples=samples,
        sums=np.frombuffer(sums, dtype="<f8").astype(np.float64),
        logs=np.frombuffer(logs, dtype="<f8").astype(np.float64),
        largest=struct.unpack("<d", largest)[0],
        cells=np.frombuffer(table, dtype="<i4", count=2 * hit).astype(np.int32).reshape(hit, 2),
        counts=np.frombuffer(table, dtype="<i8", offset=8 * hit).astype(np.int64),
    )


@dataclass(frozen=True)
class RunSummary:
    """What a store holds of one run.

    Attributes:
        key: of the run.
        content: canonical JSON of the run.
        label: what the run is about, for human readers; may be empty.
        created_at: when its first chunk was stored (UTC, ISO 8601).
        code_version: the version of hockeystick that stored it.
        chunks: how many are stored.
        prefix: how many have the streams 0, 1, ... without a gap; bounds use only these.
    """

    key: str
    content: str
    label: str
    created_at: str
    code_version: str
    chunks: int
    prefix: int

    @property
    def run(self) -> Run:
        """The run; raises EvidenceError if another version of hockeystick described it in another form."""
        try:
            run = Run.parse_json(self.content)
        except ValueError as error:
            raise EvidenceError(
                f"The run {short(self.key)} was stored by hockeystick {self.code_version} in a form that this version "
                f"does not know: {error}"
            ) from None
        if run.key != self.key:
            raise EvidenceError(
                f"The run {short(self.key)} was stored by hockeystick {self.code_version} in a form that this version "
                f"writes differently."
            )
        return run


def short(key: str) -> str:
    """The first digits of a key, for messages."""
    return key[:12]
