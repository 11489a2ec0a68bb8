"""Theorem 5.2 with its constants: one shuffled binary tree, for gradients that are fixed beforehand.

The theorem says that epsilon is at most a constant times ``sqrt(ln(1/delta) ln ln(1/delta)) / sigma``, whatever n. The
figure has the constant of our bound, which has a proof of its own (docs/theory/subsets/shuffled-tree.md), beside that
of the run without amplification, which grows like ``sqrt(log2 n + 1)``.
"""

from collections.abc import Sequence
from functools import partial
from math import exp, log, sqrt

import hockeystick as hs
from hockeystick.reproduction.curves import Axes, Curve, Series, publish_panels
from hockeystick.reproduction.papers import Check, Output

from .runs import DELTA, UPPER, epsilon_of

EXPONENTS = (4, 7, 10, 13, 16, 19)
"""Of n; the theorem asks for delta of at most 1/n."""
MULTIPLIERS = (30.0, 100.0, 1000.0)
"""Noise multipliers; the theorem asks for at least some constant times the square root above, which is 6.02."""
COLOURS = dict(zip(MULTIPLIERS, ("#0072b2", "#d55e00", "#009e73"), strict=True))
SCALE = sqrt(-log(DELTA) * log(-log(DELTA)))


def shuffled(sigma: float, exponent: float) -> hs.Mechanism:
    """The tree of ``2^exponent`` shuffled batches of one example."""
    sampler = hs.Shuffle(batch_size=1, bins=1 << int(exponent))
    return hs.Mechanism(strategy=hs.BinaryTree(), sampler=sampler, noise_multiplier=sigma)


def constants(sigma: float, exponents: Sequence[int], output: Output) -> dict[str, list[float]]:
    """``epsilon sigma / SCALE`` by both accountants."""
    return {
        method: [epsilon_of(shuffled(sigma, exponent), method, UPPER, output) * sigma / SCALE for exponent in exponents]
        for method in ("shuffled_tree", "gaussian")
    }


def loss_checks(epsilons: Sequence[float] = (0.1, 0.5, 2.0)) -> list[Check]:
    """Lemma C.5 on two outcomes: its bound on the chance of a loss above 2 epsilon, under either law of the outputs.

    One outcome has the loss ``2 epsilon`` and a little more, and the chance 0.01; delta is that of the remove
    direction, and add has none.
    """
    checks = []
    for epsilon in epsilons:
        chance, loss = 0.01, 2.0 * epsilon * (1.0 + 1e-9)
        other = chance * exp(-loss)
        delta = chance - exp(epsilon) * other
        claimed = delta / (epsilon * exp(epsilon))
        for whose, value in (("the run's own outputs", chance), ("outputs of the other run", other)):
            what = f"Lemma C.5, {whose}: chance of a loss above 2 eps / the claimed bound, eps={epsilon:g}"
            ratio = value / claimed
            note = "" if ratio <= 1.0 else "refuted by two outcomes"
            checks.append(Check(what, "<=", 1.0, ratio, ratio <= 1.0, note))
    return checks


def tree_figure(output: Output, exponents: Sequence[int] = EXPONENTS) -> None:
    """Theorem 5.2: the constants of both bounds over log2 n, and what becomes of them as n grows."""
    values: dict[Curve, list[float]] = {}
    checks = []
    for sigma, colour in COLOURS.items():
        by_method = constants(sigma, exponents, output)
        for method, label, style in (
            ("shuffled_tree", "shuffled", {"marker": "."}),
            ("gaussian", "no amplification", {"linestyle": "--", "linewidth": 0.8}),
        ):
            line = Curve(
                column=f"sigma{sigma:g}_{method}_upper",
                label=f"{label}, sigma = {sigma:g}",
                mechanism=partial(shuffled, sigma),
                method=method,
                style={"color": colour, **style},
            )
            values[line] = by_method[method]
        ours, alone = (values[-1] / values[0] for values in by_method.values())
        lengths = f"from n=2^{exponents[0]} to 2^{exponents[-1]}"
        what = f"Theorem 5.2: growth of the constant {lengths} / without amplification, sigma={sigma:g}"
        checks.append(Check(what, "<", 1.0, ours / alone, ours < alone, f"{ours:.3g} and {alone:.3g}"))
        largest = max(by_method["shuffled_tree"])
        checks.append(Check(f"Theorem 5.2: largest constant, sigma={sigma:g}", "<=", 3.0, largest, largest <= 3.0))
    checks += loss_checks()
    axes = Axes(
        places="log2_n",
        x=r"$\log_2 n$",
        y=r"$\varepsilon\sigma / \sqrt{\ln(1/\delta)\ln\ln(1/\delta)}$",
        title=f"one shuffled binary tree, delta = {DELTA:g}",
        log="",
    )
    publish_panels(output, "theorem-5-2", {"": (Series(list(map(float, exponents)), values), axes)}, columns=1)
    output.checks("theorem-5-2-verdicts", checks)
