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

        findings = examine()
    if json:
        common.emit_json(_content(findings))
    else:
        for line in _lines(findings):
            common.emit(line)
    if not findings.healthy:
        raise typer.Exit(1)


def _content(findings: "Findings") -> dict[str, Any]:
    from dataclasses import asdict

    content = asdict(findings)
    content["cache"] = None if findings.cache is None else str(findings.cache)
    for stated, check in zip(content["checks"], findings.checks, strict=True):
        stated["passed"] = check.passed
    return {"healthy": findings.healthy, **content}


def _lines(findings: "Findings") -> list[str]:
    lines = [f"hockeystick {findings.version}, Python {findings.python}, {findings.platform}, {findings.cores} cores"]
    lines += [f"  {_package(package)}" for package in findings.core]
    for name, needed in findings.extras.items():
        missing = [package.name for package in needed if package.installed is None]
        state = f"missing: {', '.join(missing)}" if missing else ", ".join(map(_package, needed))
        lines.append(f"extra {name}: {state}")
    lines.append(f"kernels' cache: {findings.cache if findings.cache is not None else 'not writable'}")
    for check in findings.checks:
        relation = "exactly" if check.exact else "at most"
        lines.append(
            f"{'ok' if check.passed else 'WRONG':<6}{check.name}: {check.quantity} in "
            f"[{check.lower:.6g}, {check.upper:.6g}], {relation} {check.known:.6g} ({check.source})"
        )
    lines += [f"warning: {line}" for line in findings.warnings]
    lines += [f"problem: {line}" for line in findings.problems]
    return [*lines, "healthy" if findings.healthy else "not healthy"]


def _package(package: "Package") -> str:
    if package.installed is None:
        return f"{package.name} missing (supported: {package.supported})"
    return f"{package.name} {package.installed}" + ("" if package.fits else f" (supported: {package.supported})")
