"""Where a fault belongs in a source that was written anew: other line breaks, other names, the same tokens.

A fault is written with the text of its day. It is planted where that text stands, or else where the same sequence of
tokens does with names exchanged one for one, and then its new text takes the names that are found there.
"""

import builtins
import keyword
import re
from collections.abc import Iterator
from dataclasses import dataclass

TOKENS = re.compile(r"\w+|[^\w\s]")
KEPT = 0.5
"""Share of the distinct names of a text that have to be found as they were."""
FEWEST = 4
"""Tokens without which a text is no place but where it stands."""


@dataclass(frozen=True)
class Place:
    """A stretch of the source, and the names that a text has there.

    Attributes:
        names: by those of the text.
        around: a text whose white space before and after the tokens is outside of the stretch.
    """

    start: int
    end: int
    names: dict[str, str]
    around: str = ""

    @property
    def renamed(self) -> int:
        """How many names are other ones."""
        return sum(old != new for old, new in self.names.items())

    def replaced(self, source: str, new: str) -> str:
        """The source with the new text at this place, in the names of the source."""
        before = self.around[: len(self.around) - len(self.around.lstrip())]
        after = self.around[len(self.around.rstrip()) :]
        text = re.sub(
            r"\w+", lambda word: self.names.get(word[0], word[0]), new.removeprefix(before).removesuffix(after)
        )
        return source[: self.start] + text + source[self.end :]


def places(source: str, old: str) -> list[Place]:
    """Where the old text stands; if nowhere, the places of its tokens with the fewest other names."""
    exact = [Place(match.start(), match.end(), {}) for match in re.finditer(re.escape(old), source)]
    if exact:
        return exact
    alike = list(_alike(source, old))
    least = min((place.renamed for place in alike), default=0)
    return [place for place in alike if place.renamed == least]


def _alike(source: str, old: str) -> Iterator[Place]:
    wanted = TOKENS.findall(old)
    spans = list(TOKENS.finditer(source))
    tokens = [span[0] for span in spans]
    if len(wanted) < FEWEST:
        return
    fixed = next((place for place, token in enumerate(wanted) if not _is_name(token)), 0)
    starts = (at - fixed for at, token in enumerate(tokens) if token == wanted[fixed] or _is_name(wanted[fixed]))
    for start in starts:
        if not 0 <= start <= len(tokens) - len(wanted):
            continue
        names = _exchanged(wanted, tokens, start)
        if names is not None and sum(old == new for old, new in names.items()) >= KEPT * len(names):
            yield Place(spans[start].start(), spans[start + len(wanted) - 1].end(), names, old)


def _exchanged(wanted: list[str], tokens: list[str], start: int) -> dict[str, str] | None:
    """The name that each name of the text has from this token on; None where tokens differ by more than names."""
    names: dict[str, str] = {}
    for place, old in enumerate(wanted, start):
        new = tokens[place]
        if not (_is_name(old) and _is_name(new)):
            if old != new:
                return None
        elif names.setdefault(old, new) != new:
            return None
    return names if len(set(names.values())) == len(names) else None


def _is_name(token: str) -> bool:
    return token.isidentifier() and not keyword.iskeyword(token) and not hasattr(builtins, token)
