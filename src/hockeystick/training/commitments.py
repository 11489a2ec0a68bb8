"""A chain of commitments to the batches of a run."""

import hashlib
import hmac

import numpy as np

from hockeystick.errors import InvalidInputError
from hockeystick.mechanism import Mechanism
from hockeystick.samplers.promises import Batch

KEY_BYTES = 32


class CommitmentChain:
    """HMAC-SHA256 over everything that was used, each link over the one before, under a secret key.

    >>> chain = CommitmentChain(bytes(32), b"the mechanism")
    >>> start = chain.head
    >>> chain.add(0, np.array([3, 5]))
    >>> chain.head != start
    True

    Guarantee: whoever does not have the key learns nothing from the heads, as far as HMAC-SHA256 is a pseudorandom
    function; the batches are as secret as they were. Whoever is shown the key later can recompute the heads, and no
    other key or batches lead to the same ones, as far as SHA-256 has no collisions.

    Args:
        key: 32 random bytes.
        context: what the run is about.
        head: where to continue; None at the start.

    Raises: InvalidInputError for a key or a head that is not 32 bytes.
    """

    def __init__(self, key: bytes, context: bytes, head: bytes | None = None) -> None:
        if len(key) != KEY_BYTES or len(head or key) != KEY_BYTES:
            raise InvalidInputError(f"The key and the head of a chain of commitments must be {KEY_BYTES} bytes each.")
        self.key = key
        self.head = hmac.digest(key, b"hockeystick-run/1" + hashlib.sha256(context).digest(), "sha256")
        if head is not None:
            self.head = head

    def add(self, step: int, batch: Batch) -> None:
        """Commit to the batch of a step, empty ones included."""
        link = hmac.new(self.key, self.head, "sha256")
        link.update(step.to_bytes(8, "little"))
        link.update(np.ascontiguousarray(batch, dtype="<i8").tobytes())
        self.head = link.digest()


def context(mechanism: Mechanism, num_examples: int) -> bytes:
    """Identifies the mechanism, a strategy by its matrix, and the size of the dataset."""
    about = mechanism.model_dump_json(exclude={"strategy"})
    return f"{about} {mechanism.matrix.digest} {num_examples}".encode()
