"""hockeystick audit: test the sampler, the noise and the certificate of a plan, or a training loop."""

import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from hockeystick.cli import common
from hockeystick.errors import HockeystickError, InvalidInputError, ViolationError, shortened

if TYPE_CHECKING:
    from hockeystick.audit import Verdict
    from hockeystick.deadline import Deadline
    from hockeystick.mechanism import Mechanism

SAMPLES, LEVEL = "20000", "0.001"
PARTS = ("sampler", "noise", "mechanism")
MOST_EXAMPLES = 1000
"""Examples whose batches are looked at, where the sampler takes any number."""
NUMBERS = 200_000
"""Numbers of noise that are looked at: enough to tell a scale that is off by 2 percent."""
FEWEST_PARAMETERS = 50
MOST_ROWS = 10_000
"""Rows of noise that are looked at, as each is compared with all before it."""


def command(
    plan: Annotated[
        str | None, typer.Argument(metavar="PLAN", help="Plan file (TOML or JSON).", show_default=False)
    ] = None,
    noise_multiplier: common.NoiseOption = None,
    delta: common.DeltaOption = None,
    part: Annotated[
        list[str] | None, typer.Option("--part", help="Only 'sampler', 'noise' or 'mechanism'; may be repeated.")
    ] = None,
    samples: Annotated[
        str | None,
        typer.Option("--samples", metavar="NUMBER", help=f"Pairs of outputs that are drawn, at most; {SAMPLES}."),
    ] = None,
    level: Annotated[
        str | None,
        typer.Option("--level", metavar="NUMBER", help=f"False-alarm probability, of all parts together; {LEVEL}."),
    ] = None,
    seed: Annotated[
        str | None, typer.Option("--seed", metavar="NUMBER", help="Seed of the runs; by default a fresh one.")
    ] = None,
    replay: Annotated[
        str | None,
        typer.Option(
            "--replay",
            metavar="SCRIPT",
            help="Replay the training loop of this Python file instead; only a plan, its noise and --seed go with it.",
        ),
    ] = None,
    budget: common.BudgetOption = None,
    json: common.JsonOption = False,
) -> None:
    """Test the sampler, the noise and the certificate of a plan by running them; exit code 1 if one fails."""
    from hockeystick.plan import Plan

    if plan is None and replay is None:
        raise InvalidInputError("The PLAN argument is missing; give a plan, or a training loop with --replay.")
    start = None if seed is None else _whole("--seed", seed)
    if replay is not None:
        _replays_without({"--delta": delta, "--part": part, "--samples": samples, "--level": level, "--budget": budget})
        if plan is None and noise_multiplier is not None:
            raise InvalidInputError("The '--noise-multiplier' option is for a PLAN; with --replay alone there is none.")
    loaded = None if plan is None else Plan.load(plan)
    mechanism = None if loaded is None else common.mechanism_with_noise(loaded, noise_multiplier)
    if replay is not None:
        with redirect_stdout(sys.stderr):  # whatever the script prints
            verdict = _replayed(replay, mechanism, start or 0)
        _report([verdict], json)
        return
    assert loaded is not None  # checked above
    assert mechanism is not None
    wanted = _parts(part)
    at = common.wanted_delta(loaded, delta) if "mechanism" in wanted else None
    count, share = _whole("--samples", samples or SAMPLES), _level(level or LEVEL) / len(wanted)
    with common.working("auditing", budget, mechanism) as deadline:
        verdicts = [
            _audit(one, mechanism, loaded.data.num_examples, at, count, share, start, deadline) for one in wanted
        ]
    _report(verdicts, json)


def _replays_without(options: Mapping[str, object]) -> None:
    """Raise InvalidInputError for an option that a replay has no use for: it draws nothing, and nothing is random."""
    for name, value in options.items():
        if value:
            raise InvalidInputError(
                f"The {name!r} option does not go with --replay, which compares two runs and leaves nothing to chance."
            )


def _report(verdicts: "list[Verdict]", json: bool) -> None:
    """Print the verdicts; raises ViolationError if one of them refutes its claim."""
    refuted = [verdict.about for verdict in verdicts if verdict.refuted]
    if json:
        content = [verdict.model_dump(mode="json") for verdict in verdicts]
        common.emit_json({"refuted": bool(refuted), "level": sum(one.level for one in verdicts), "verdicts": content})
    else:
        common.emit("\n".join(map(str, verdicts)))
    if refuted:
        raise ViolationError(f"The audit found evidence against the claim about: {', '.join(refuted)}.")


def _replayed(script: str, mechanism: "Mechanism | None", seed: int) -> "Verdict":
    """The verdict on the training loop of a script, which is run."""
    import runpy

    from hockeystick.audit import replay
    from hockeystick.files import opened

    with opened(script, f"'--replay' file {shortened(script)}"):
        pass
    try:
        found = runpy.run_path(script)
        missing = [name for name in ("train", "DATA", "NEIGHBOUR", "CLIP_NORM") if name not in found]
        if missing:
            raise InvalidInputError(
                f"The '--replay' file must define train, DATA, NEIGHBOUR and CLIP_NORM. It lacks {', '.join(missing)}."
            )
        return replay(
            found["train"],
            found["DATA"],
            found["NEIGHBOUR"],
            clip_norm=found["CLIP_NORM"],
            mechanism=found.get("MECHANISM", mechanism),
            neighbours=found.get("NEIGHBOURS", "zero_out"),
            seed=seed,
        )
    except HockeystickError:
        raise
    except (Exception, SystemExit) as error:  # a script that exits would look like an audit that passed
        what = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(".")
        raise InvalidInputError(f"The '--replay' file {shortened(script)} failed with {what}.") from error


def _parts(given: list[str] | None) -> tuple[str, ...]:
    for name in given or ():
        if name not in PARTS:
            raise InvalidInputError(
                f"The '--part' option must be 'sampler', 'noise' or 'mechanism'. Got {shortened(name)} instead."
            )
    return tuple(part for part in PARTS if part in (given or PARTS))


def _level(text: str) -> float:
    from hockeystick.audit.sampling import check_level

    value = common.number("--level", text)
    check_level(value)
    return value


def _whole(name: str, text: str) -> int:
    value = common.number(name, text)
    if not (0 <= value < 2**63 and value == int(value)):
        raise InvalidInputError(
            f"The {name!r} option must be a whole number of at least 0. Got {shortened(text)} instead."
        )
    return int(value)


def _audit(
    part: str,
    mechanism: "Mechanism",
    num_examples: int,
    delta: float | None,
    samples: int,
    level: float,
    seed: int | None,
    deadline: "Deadline",
) -> "Verdict":
    import numpy as np

    from hockeystick import audit
    from hockeystick.certification.issue import certify
    from hockeystick.noise import stream

    rng = np.random.default_rng(None if seed is None else [PARTS.index(part), seed])
    if part == "sampler":
        size = _examples(mechanism, num_examples)
        batches = mechanism.sampler.batches(size, rng)
        return audit.sampler(batches, mechanism.sampler, num_examples=size, level=level)
    if part == "noise":
        size = max(-(-NUMBERS // mechanism.sampler.steps), FEWEST_PARAMETERS)
        rows = islice(stream(mechanism, size, rng=rng), MOST_ROWS)
        return audit.noise(rows, mechanism, level=level)
    certificate = certify(mechanism, delta=delta, deadline=deadline)
    return audit.mechanism(mechanism, certificate=certificate, samples=samples, level=level, rng=rng, deadline=deadline)


def _examples(mechanism: "Mechanism", num_examples: int) -> int:
    """How many examples to draw batches of: the plan's, or fewer where the sampler takes any number."""
    import numpy as np

    fewer = min(MOST_EXAMPLES, num_examples)
    try:
        mechanism.sampler.batches(fewer, np.random.default_rng(0))
    except InvalidInputError:
        return num_examples
    return fewer
