"""The names of a package that load on first use."""

from collections.abc import Iterable, Mapping
from importlib import import_module


def loaded(
    package: str,
    homes: Mapping[str, str],
    name: str,
    *,
    rooms: Iterable[str] = (),
    elsewhere: Mapping[str, str] | None = None,
) -> object:
    """What has this name in a package.

    Args:
        package: its full name.
        homes: for each name the module that defines it, relative to the package.
        rooms: other names that are there, for the hint.
        elsewhere: names that are looked for here and are in a room, each with its dotted name.

    Raises: AttributeError, which says what is meant by a name that is not there.
    """
    if name in homes:
        return getattr(import_module(f".{homes[name]}", package), name)
    meant = None if name.startswith("_") else (elsewhere or {}).get(name) or _nearest(name, (*homes, *rooms))
    hint = f" (did you mean '{package}.{meant}'?)" if meant else ""  # never for what programs look for in any module
    raise AttributeError(f"module {package!r} has no attribute {name!r}{hint}")


def _nearest(name: str, known: Iterable[str]) -> str | None:
    from hockeystick.misspelt import nearest

    names = {each.lower(): each for each in known}
    return names.get(nearest(name, names) or "")
