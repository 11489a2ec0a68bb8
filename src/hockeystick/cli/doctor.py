"""hockeystick doctor: whether this installation is fit for use."""

from typing import TYPE_CHECKING, Any

import typer

from hockeystick.cli import common

if TYPE_CHECKING:
    from hockeystick.doctor import Findings, Package


def command(json: common.JsonOption = False) -> None:
    """Check this installation.

    It looks at versions, extras, cores and the cache of the kernels, and computes bounds whose values are known. The
    exit code is 1 if a bound is wrong or something that is always needed is missing.
    """
    with common.say_if_slow("compiling kernels and certifying known mechanisms"):
        from hockeystick.doctor import examine

        found = examine()
    if json:
        common.emit_json(_content(found))
    else:
        for line in _lines(found):
            common.emit(line)
    if not found.healthy:
        raise typer.Exit(1)


def _content(found: "Findings") -> dict[str, Any]:
    from dataclasses import asdict

    content = asdict(found)
    content["cache"] = None if found.cache is None else str(found.cache)
    for stated, check in zip(content["checks"], found.checks, strict=True):
        stated["passed"] = check.passed
    return {"healthy": found.healthy, **content}


def _lines(found: "Findings") -> list[str]:
    lines = [f"hockeystick {found.version}, Python {found.python}, {found.platform}, {found.cores} cores"]
    lines += [f"  {_package(one)}" for one in found.core]
    for name, needed in found.extras.items():
        missing = [one.name for one in needed if one.installed is None]
        state = f"missing: {', '.join(missing)}" if missing else ", ".join(map(_package, needed))
        lines.append(f"extra {name}: {state}")
    lines.append(f"kernels' cache: {found.cache if found.cache is not None else 'not writable'}")
    for check in found.checks:
        relation = "exactly" if check.exact else "at most"
        lines.append(
            f"{'ok' if check.passed else 'WRONG':<6}{check.name}: {check.quantity} in "
            f"[{check.lower:.6g}, {check.upper:.6g}], {relation} {check.known:.6g} ({check.source})"
        )
    lines += [f"warning: {line}" for line in found.warnings]
    lines += [f"problem: {line}" for line in found.problems]
    return [*lines, "healthy" if found.healthy else "not healthy"]


def _package(one: "Package") -> str:
    if one.installed is None:
        return f"{one.name} missing (supported: {one.supported})"
    return f"{one.name} {one.installed}" + ("" if one.fits else f" (supported: {one.supported})")
