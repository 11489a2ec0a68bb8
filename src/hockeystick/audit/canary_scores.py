"""What one run says about its canaries, as plain data: scores, and the seed of the coins."""

from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from hockeystick.audit.one_run import MOST_CANARIES, check_independent, guesses
from hockeystick.audit.verdict import Verdict
from hockeystick.certificate import AnyCertificate
from hockeystick.errors import InvalidInputError, UnsupportedError, shortened
from hockeystick.files import read_small_file, write_atomically
from hockeystick.samplers import BatchSampler
from hockeystick.spec import Spec

COINS = 0xC014
"""Tells the generator of the coins from others with the same seed."""
MOST_BYTES = 1 << 23
Seed = Annotated[int, Field(ge=0, lt=2**63)]


def coins(seed: int, count: int) -> NDArray[np.bool_]:
    """Which canaries are included, shape (count,): fair coins."""
    return np.random.default_rng([COINS, seed]).random(count) < 0.5


class CanaryScores(Spec):
    """Scores of the canaries of one run, from which anybody can derive the verdict.

    Attributes:
        format: of the file.
        seed: of the coins. Whoever chose it among several, or after the run, chose the verdict.
        num_examples: of the real data; with all canaries, it is the size that the certificate is about.
        observed: whether the scores come from noisy sums, in which canaries had fixed orthogonal gradients. Of other
            scores, losses say, independence cannot be assumed.
        scores: larger where a canary looks included; all finite.
    """

    format: Literal["hockeystick-canaries/1"] = "hockeystick-canaries/1"
    seed: Seed
    num_examples: Annotated[int, Field(ge=0, le=10**9)]
    observed: bool = False
    scores: Annotated[tuple[float, ...], Field(min_length=2, max_length=MOST_CANARIES)]

    @property
    def total(self) -> int:
        """The size of the data set: real examples and all canaries."""
        return self.num_examples + len(self.scores)

    def verdict(self, certificate: AnyCertificate, *, level: float = 1e-3, **options: Any) -> Verdict:
        """The verdict on a certificate of :attr:`total` examples; see :func:`hockeystick.audit.guesses`.

        Args:
            certificate: of the mechanism that ran.
            level: the false-alarm probability.
            options: ``guessed`` of :func:`hockeystick.audit.guesses`.

        Raises: InvalidInputError for a certificate that states another number of examples; and as ``guesses``.
        """
        self._check_counted(certificate)
        verdict = guesses(
            self.scores,
            coins(self.seed, len(self.scores)),
            certificate=certificate,
            level=level,
            independent=self.observed and _are_independent(certificate.mechanism.sampler),
            **options,
        )
        made = {"seed": self.seed, "num_examples": self.num_examples, "observed": self.observed}
        return verdict.model_copy(update={"claimed": verdict.claimed | made})

    def save(self, path: str | Path) -> None:
        """Write the scores as JSON, whole or not at all."""
        write_atomically(path, self.model_dump_json(indent=2) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> "CanaryScores":
        """Read scores; raises InvalidInputError in one sentence for a file that has none."""
        name = f"file of scores {shortened(str(path))}"
        return cls.parse_json(read_small_file(path, name, MOST_BYTES), name)

    def _check_counted(self, certificate: AnyCertificate) -> None:
        statements = getattr(certificate, "statements", None)
        sampler = certificate.mechanism.sampler
        for stated in (getattr(statements, "num_examples", None), getattr(sampler, "num_examples", None)):
            if stated is not None and stated != self.total:
                raise InvalidInputError(
                    f"The 'certificate' argument must be about {self.total} examples: {self.num_examples} real ones "
                    f"and all {len(self.scores)} canaries. It is about {stated}."
                )


def _are_independent(sampler: BatchSampler) -> bool:
    try:
        check_independent(sampler)
    except UnsupportedError:
        return False
    return True
