"""What the examples end with: a plot of accuracy by epsilon, and a certificate that is verified."""

import subprocess
import sys
from pathlib import Path


def finish(points: list[tuple[float, float]], out: Path, certificate: Path, delta: float) -> None:
    """Plot pairs of epsilon and accuracy, and verify a certificate as its reader would."""
    from matplotlib.figure import Figure

    axes = (figure := Figure(layout="constrained")).subplots()
    axes.plot(*zip(*sorted(points), strict=True), "o-")
    axes.set(xscale="log", xlabel=f"epsilon at delta = {delta:g}", ylabel="test accuracy", ylim=(0.0, 1.0))
    figure.savefig(out / "accuracy.png")
    print(f"hockeystick verify {certificate}", flush=True)
    subprocess.run([sys.executable, "-m", "hockeystick", "verify", str(certificate)], check=True)
