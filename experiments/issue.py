"""Issue the certificates of the experiments again, in the present format: after every change of format or of bounds.

    python -m experiments.issue                                                # all of them
    python -m experiments.issue experiments/*/certificates/*-direct.json       # these alone

A certificate keeps its mechanism, its interval and its statements if the present release confirms the
interval. Otherwise it is certified anew at the same noise multiplier, by the same method. The rows of ``runs.csv``
follow; where an interval changed, ``python -m experiments.report FOLDER`` has to write the page again.
"""

import argparse
import csv
import sys
import time
from pathlib import Path

import hockeystick as hs
from experiments.train import COLUMNS, rows_of
from hockeystick.certificate import FORMAT
from hockeystick.certification.verification import issued_again
from hockeystick.deadline import Deadline
from hockeystick.errors import HockeystickError, VerificationError

HERE = Path(__file__).parent


def again(path: Path, seconds: float) -> tuple[str, hs.Certificate]:
    """The new certificate of a file, and whether its interval was confirmed."""
    former = hs.Certificate.load(path)
    try:
        return "confirmed", issued_again(former, deadline=Deadline(seconds))
    except VerificationError as error:
        print(f"{path}: {error}", file=sys.stderr)
    sampling = hs.MonteCarlo() if former.monte_carlo is not None else None
    asked = {"delta": former.question.delta, "epsilon": former.question.epsilon}
    mechanism = former.mechanism.model_copy(update={"strategy": former.mechanism.strategy.unheld()})
    issued = hs.certify(mechanism, method=former.method.upper, monte_carlo=sampling, **asked)
    return "certified anew", hs.state(issued, former.statements) if isinstance(former, hs.Certificate) else issued


def follow(runs: Path, digest: str, issued: hs.Certificate) -> int:
    """Write the digest and the interval of a certificate into the rows of its runs; the number of these rows."""
    rows = rows_of(runs)
    mine = [row for row in rows if row["certificate"] == digest]
    for row in mine:
        bounds = issued.bounds
        row |= {"certificate": issued.digest, "epsilon_upper": repr(bounds.upper), "epsilon_lower": repr(bounds.lower)}
        row["method"] = issued.method.upper
    if mine:
        with runs.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    return len(mine)


def main() -> None:
    """Issue again, one line a certificate; the exit code is 1 if one of them could not be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("certificates", type=Path, nargs="*", help="files; all of the experiments by default")
    parser.add_argument("--seconds", type=float, default=1800.0, help="deadline of each")
    parser.add_argument("--deterministic", action="store_true", help="leave out Monte Carlo, which draws samples again")
    parser.add_argument("--former", action="store_true", help="leave out those of the present format")
    arguments = parser.parse_args()
    failed = False
    for path in arguments.certificates or sorted(HERE.glob("*/certificates/*.json")):
        former = hs.Certificate.load(path)
        if (arguments.deterministic and former.monte_carlo is not None) or (
            arguments.former and former.format == FORMAT
        ):
            continue
        start = time.perf_counter()
        try:
            how, issued = again(path, arguments.seconds)
        except HockeystickError as error:
            print(f"{path}: {error}", file=sys.stderr, flush=True)
            failed = True
            continue
        issued.save(path)
        rows = follow(path.parent.parent / "runs.csv", former.digest, issued)
        seconds = time.perf_counter() - start
        print(f"{path.parent.parent.name}/{path.name}: {how}, {rows} rows, {seconds:.0f} s", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
