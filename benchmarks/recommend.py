"""How fast and how good recommendations are, on six plans, against an exhaustive search.

    python -m benchmarks.recommend PLAN...            the first answer and the refinement, for these plans (all six)
    python -m benchmarks.recommend --offline PLAN...  the same, then estimates of all candidates and the best calibrated
    python -m benchmarks.recommend --estimates        estimates against noise multipliers that were calibrated
    python -m benchmarks.recommend --update           docs/reference/recommend.md from what is measured so far

Results are kept in ``benchmarks/recommend.json``, and calibrations in one file for each plan beside it, from which a
stopped run goes on. Rows that were not measured are left empty.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hockeystick as hs
from benchmarks.regime_noise import NOISE
from benchmarks.regimes import DELTA as REGIME_DELTA
from hockeystick.certificate import number
from hockeystick.files import write_atomically
from hockeystick.recommendation.calibrations import calibrations
from hockeystick.recommendation.candidates import EXPONENTS, Candidate, every
from hockeystick.recommendation.estimate import colliding_bins
from hockeystick.recommendation.search import Choice, Search, of_plan

ROOT = Path(__file__).resolve().parents[1]
PLANS = ROOT / "examples" / "plans"
MEASURED = ROOT / "benchmarks" / "recommend.json"
PAGE = ROOT / "docs" / "reference" / "recommend.md"
MARK = "<!-- measured by python -m benchmarks.recommend; do not edit below -->"
CASES = {
    "mnist-poisson": "MNIST CNN, 15 epochs",
    "cifar10-wide-resnet": "CIFAR-10 wide ResNet, 200 epochs of 12 batches",
    "lora-balls-in-bins": "LoRA, 3 epochs",
    "federated-2000-rounds": "federated, 2,000 rounds",
    "production-b-min-sep": "production, 7,200 steps, less than one epoch",
    "large-set-one-epoch": "one epoch of ten million examples",
}


def calibrations_of(name: str) -> Path:
    """The file of calibrations."""
    return MEASURED.with_name(f"recommend-{name}.jsonl")


def first(name: str) -> dict[str, Any]:
    """Seconds of the clock and of the processor for the first answer, in a fresh process with compiled kernels."""
    code = (
        "import time, resource, sys; start = time.perf_counter(); import hockeystick as hs;"
        "found = hs.recommend(hs.Plan.load(sys.argv[1]), budget=0);"
        "used = resource.getrusage(resource.RUSAGE_SELF);"
        "print(time.perf_counter() - start, used.ru_utime + used.ru_stime)"
    )
    command = [sys.executable, "-c", code, str(PLANS / f"{name}.toml")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    clock, processor = map(float, done.stdout.split())
    return {"clock": clock, "processor": processor}


def refined(name: str, calibrations: int) -> dict[str, Any]:
    """The refined answer."""
    file = calibrations_of(name)
    recommendation = hs.recommend(
        hs.Plan.load(PLANS / f"{name}.toml"), budget=1e9, calibrations=calibrations, results=file
    )
    plain = min(choice.error for choice in recommendation.choices if choice.candidate.plan.strategy.kind == "identity")
    return {
        "best": recommendation.best.candidate.name,
        "noise_multiplier": recommendation.best.noise_multiplier,
        "error": recommendation.best.error,
        "plain": plain,
    }


def swept(candidate: Candidate) -> bool:
    """Whether the offline sweep has it: every number of bands, and exponents in steps of 0.1."""
    strategy = candidate.plan.strategy
    return not isinstance(strategy, hs.BandedInverseFractionalRoot) or EXPONENTS.index(strategy.exponent) % 2 == 0


def offline(name: str, each: int) -> dict[str, Any]:
    """Estimates of all candidates of the sweep, and calibrations of the best of each family."""
    asked = of_plan(hs.Plan.load(PLANS / f"{name}.toml"))
    search = Search(asked)
    for candidate in filter(swept, every(asked.plan, asked.limits)):
        search.error(candidate)
    best: dict[tuple[str, str], list[Choice]] = {}
    for choice in search.ranked():
        kind = (choice.candidate.plan.strategy.kind, choice.candidate.plan.sampler.kind)
        if kind[1] != "b_min_sep":  # its bounds are loose without Monte Carlo, and take minutes
            best.setdefault(kind, []).append(choice)
    errors = {}
    with calibrations(asked, results=calibrations_of(name)) as calibrating:
        for choice in (candidate for ranked in best.values() for candidate in ranked[:each]):
            certificate = calibrating.certificate(choice.candidate)
            errors[choice.candidate.name] = choice.unit_error * certificate.mechanism.sigma / choice.expected_batch
            print(f"{name}: {choice.candidate.name} {errors[choice.candidate.name]:.6g}", flush=True)
    return {"candidates": len(search.choices), "errors": errors}


def estimates() -> dict[str, Any]:
    """Estimates over the noise multipliers of :mod:`benchmarks.regimes`, for the square root in balls-in-bins."""
    ratios = []
    for (strategy, bands, bins, epochs, epsilon), noise in NOISE.items():
        if strategy == "BSR":
            gram = hs.BandedSquareRoot(bands=bands).matrix(bins * epochs).bin_gram(bins)
            ratios.append(colliding_bins(gram, epsilon, REGIME_DELTA) / noise)
    return {"cells": len(ratios), "least": min(ratios), "most": max(ratios)}


def page(measured: dict[str, Any]) -> str:
    """The table, with empty cells for what was not measured."""
    lines = [
        "| plan | first answer, s | processor, s | recommended | noise multiplier | error over plain | candidates | "
        "error over the best offline |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, what in CASES.items():
        record = measured.get(name, {})
        start, answer, all_of_them = record.get("first"), record.get("refined"), record.get("offline")
        cells = [f"[{what}](../../examples/plans/{name}.toml)"]
        cells += [f"{start['clock']:.1f}", f"{start['processor']:.1f}"] if start else ["", ""]
        if not answer:
            lines.append("| " + " | ".join(cells + [""] * 5) + " |")
            continue
        errors = all_of_them["errors"] if all_of_them else {}
        plain = min((error for name, error in errors.items() if name.startswith("identity")), default=answer["plain"])
        cells += [f"`{answer['best']}`", number(answer["noise_multiplier"]), f"{answer['error'] / plain:.3f}"]
        if all_of_them:
            cells += [
                str(all_of_them["candidates"]),
                f"{answer['error'] / min([*errors.values(), answer['error']]):.3f}",
            ]
        else:
            cells += ["", ""]
        lines.append("| " + " | ".join(cells) + " |")
    estimates = measured.get("estimates")
    if estimates:
        lines += [
            "",
            f"Estimates for balls-in-bins with the square root over the noise of [regimes](regimes.md): from "
            f"{estimates['least']:.2f} to {estimates['most']:.2f} times in {estimates['cells']} cells (`--estimates`).",
        ]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, or write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recommend", description=__doc__)
    parser.add_argument("plans", nargs="*", metavar="PLAN", help=f"of {', '.join(CASES)}")
    parser.add_argument("--offline", action="store_true", help="the exhaustive search")
    parser.add_argument("--each", type=int, default=1, help="candidates of each family that the sweep calibrates")
    parser.add_argument("--calibrations", type=int, default=8, help="candidates that the refinement calibrates")
    parser.add_argument("--estimates", action="store_true", help="how far estimates for balls-in-bins are off")
    parser.add_argument("--update", action="store_true", help="write the page")
    options = parser.parse_args(arguments)

    def measured() -> dict[str, Any]:
        return json.loads(MEASURED.read_text()) if MEASURED.exists() else {}

    def put(name: str, field: str, value: dict[str, Any]) -> None:
        content = measured()
        content.setdefault(name, {})[field] = value
        write_atomically(MEASURED, json.dumps(content, indent=1) + "\n")
        print(name, field, value, flush=True)

    if options.update:
        head = PAGE.read_text().split(MARK)[0]
        write_atomically(PAGE, f"{head}{MARK}\n\n{page(measured())}")
        return 0
    if options.estimates:
        content = measured() | {"estimates": estimates()}
        write_atomically(MEASURED, json.dumps(content, indent=1) + "\n")
        print(content["estimates"])
        return 0
    for name in options.plans or CASES:
        if "first" not in measured().get(name, {}):
            put(name, "first", first(name))
        put(name, "refined", refined(name, options.calibrations))
        if options.offline:
            put(name, "offline", offline(name, options.each))
    return 0


if __name__ == "__main__":
    sys.exit(main())
