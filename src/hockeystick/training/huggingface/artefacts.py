"""What a training leaves behind, and what of it the certificate is about.

A certificate is about the trained weights of every step. A Trainer writes more than these: losses of single batches,
the state of the optimizer, in which the run with its noise is, and random states. Each file is named here with what it
is. A file that is not known counts as not covered.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

from hockeystick.errors import InvalidInputError
from hockeystick.files import write_atomically


class Cover(StrEnum):
    """Whether something may be published by what the certificate says."""

    COVERED = "covered"
    """It follows from the trained weights, or from what was public before."""
    SETTINGS = "settings"
    """It was written by who trains. It says nothing about the examples, unless it was made from them before."""
    NOT_COVERED = "not covered"


class Kind(NamedTuple):
    """Files of a name, with what they are."""

    pattern: str
    cover: Cover
    reason: str


WEIGHTS = "trained weights, of the last step or of one before"
LOSSES = "losses of batches, without noise"
STATE = "holds the state of the run, from which its noise follows"
SETUP = "arguments of the model or of the training"
TOKENS = "made before the training; not covered if it was fitted to the same examples"
KINDS = (
    Kind("*.run.json", Cover.COVERED, "the record of the run"),
    Kind("*.certificate.json", Cover.COVERED, "the certificate"),
    Kind("adapter_model*", Cover.COVERED, WEIGHTS),
    Kind("model*.safetensors*", Cover.COVERED, WEIGHTS),
    Kind("pytorch_model*", Cover.COVERED, WEIGHTS),
    Kind("trainer_state.json", Cover.NOT_COVERED, LOSSES),
    Kind("*_results.json", Cover.NOT_COVERED, LOSSES),
    Kind("events.out.tfevents*", Cover.NOT_COVERED, LOSSES),
    Kind("optimizer.*", Cover.NOT_COVERED, STATE),
    Kind("optimizer_shard_*", Cover.NOT_COVERED, STATE),
    Kind("rng_state*", Cover.NOT_COVERED, "the random numbers of layers, which are assumed secret"),
    Kind("scheduler.pt", Cover.SETTINGS, "the learning rate of the step"),
    Kind("scaler.pt", Cover.NOT_COVERED, "depends on gradients without noise"),
    Kind("training_args.bin", Cover.SETTINGS, SETUP),
    Kind("*config.json", Cover.SETTINGS, SETUP),
    Kind("README.md", Cover.NOT_COVERED, "the model card, in which transformers writes the losses of training"),
    Kind("tokenizer*", Cover.SETTINGS, TOKENS),
    Kind("special_tokens_map.json", Cover.SETTINGS, TOKENS),
    Kind("vocab*", Cover.SETTINGS, TOKENS),
    Kind("merges.txt", Cover.SETTINGS, TOKENS),
    Kind("*.jinja", Cover.SETTINGS, TOKENS),
)
"""Of several patterns that match, the first counts."""
UNKNOWN = Kind("*", Cover.NOT_COVERED, "not known here")
LOG = ("the log, and what was printed or sent to trackers", LOSSES)


@dataclass(frozen=True, kw_only=True)
class Artefact:
    """A file, or what else is left.

    Attributes:
        name: of the file.
        cover: whether the certificate covers it.
        reason: what it is.
    """

    name: str
    cover: Cover
    reason: str


@dataclass(frozen=True, kw_only=True)
class Artefacts:
    """All that a training left, each with whether the certificate covers it."""

    entries: tuple[Artefact, ...]

    def __str__(self) -> str:
        width = max(len(entry.name) for entry in self.entries)
        return "\n".join(f"{entry.name:<{width}}  {entry.cover:<11}  {entry.reason}" for entry in self.entries)

    def save(self, path: Path | str) -> None:
        """As JSON, whole or not at all."""
        entries = [vars(entry) for entry in self.entries]
        write_atomically(Path(path), json.dumps({"artefacts": entries}, indent=2) + "\n")


def artefacts_in(folders: Iterable[Path | str]) -> Artefacts:
    """What is in some folders, with the log of the training beside it.

    Raises: InvalidInputError for a folder that is not there.
    """
    files: dict[Path, None] = {}
    for folder in map(Path, folders):
        if not folder.is_dir():
            raise InvalidInputError(f"The 'folders' argument must name folders that exist. Got {str(folder)!r}.")
        files |= dict.fromkeys(sorted(path for path in folder.rglob("*") if path.is_file()))
    entries = [Artefact(name=LOG[0], cover=Cover.NOT_COVERED, reason=LOG[1])]
    for path in files:
        kind = next((kind for kind in KINDS if fnmatch(path.name, kind.pattern)), UNKNOWN)
        entries.append(Artefact(name=str(path), cover=kind.cover, reason=kind.reason))
    return Artefacts(entries=tuple(entries))
