"""What a reproduction has computed: kept as a CSV file beside its figures, and reused while the code is the same."""

import csv
import io
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

from hockeystick._version import __version__
from hockeystick.files import write_atomically

HEADER = ["key", "value"]


@dataclass
class Kept:
    """Results by key. Without a path they are kept in memory alone.

    Attributes:
        path: a CSV file with one result a row, as JSON; rewritten as a whole after every new result.
        code: identifies the code that computed the results; those of any other code are not read.
    """

    path: Path | None = None
    code: str = ""
    _texts: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.path is None or not self.path.is_file():
            return
        with self.path.open(newline="") as file:
            rows = [row for row in csv.reader(file) if len(row) == len(HEADER)]
        if rows[:2] == [HEADER, ["code", self.code]]:
            self._texts = dict(rows[2:])

    def value(self, key: str, compute: Callable[[], Any]) -> Any:
        """The result of ``compute``, which JSON can write, or what it was when this key was first asked for."""
        if key not in self._texts:
            self._texts[key] = json.dumps(compute())
            self._write()
        return json.loads(self._texts[key])

    def stored(self, key: str) -> Any:
        """The result that was kept, or None."""
        return json.loads(self._texts.get(key, "null"))

    def forget(self, key: str) -> None:
        """Compute this one again."""
        self._texts.pop(key, None)

    def _write(self) -> None:
        if self.path is None:
            return
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerows([HEADER, ["code", self.code], *self._texts.items()])
        write_atomically(self.path, text.getvalue())


def code_of(folders: Iterable[Path]) -> str:
    """A digest of the Python files in these folders and of the libraries that they compute with."""
    digest = sha256(" ".join([__version__, *(version(name) for name in ("numpy", "scipy", "numba"))]).encode())
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
