"""What one window of b-min-sep subsampling does to an example of which a share is available at once.

With ``F = a (1-q)^b + (1-a) (1-q)^(b-i+1)`` for what takes no part, the ratio of a window is ``rho = F + A``, A as in
:mod:`.participation_groups`, and the share of the next window is ``F / rho``. For each state (a, i) the masses of the
ratio, the next share and the group of the next step are found: the ratio is split on a geometric grid, which keeps
the mean of A, and the share between two of those for which laws are kept.

Proof: docs/theory/separated-windows.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log1p

import numpy as np

from hockeystick.compiling import kernel
from hockeystick.laws.law import Array
from hockeystick.windows.participation_groups import Cut, Numbers, coarse_nodes

NEGLIGIBLE = 1e-20
"""Masses up to this are put on the safe side, which saves work."""


@dataclass(frozen=True)
class Kernels:
    """One window, for some states.

    Attributes:
        masses: shape (states, sources, ratios): chances of a ratio of the window and of the law that comes next.
        infinite, lost: shape (states,), P-masses at infinity and Q-masses at 0.
        used: for each source, which ratios some state has with it.
    """

    masses: Array
    infinite: Array
    lost: Array
    used: list[Numbers]


@dataclass(frozen=True)
class States:
    """The states of an example before a window.

    Attributes:
        prob: q.
        size: b.
        sums: shape (n,), nodes of A in the unit in which ``c_j = q (1-q)^(j-1)``.
        owners: shape (b, groups), how each step is shared by groups, the knots for which laws are kept.
        shares: shape (p,), from 0 to 1, for which laws are kept.
        spacing, shifts: the nodes of ratios are ``exp(spacing shifts)``.
    """

    prob: float
    size: int
    sums: Array
    owners: Array
    shares: Array
    spacing: float
    shifts: Numbers

    @property
    def count(self) -> int:
        """Groups."""
        return int(self.owners.shape[1])

    @property
    def sources(self) -> int:
        """Laws that are kept: of each share below 1 and group, and of what is all available."""
        return (self.shares.size - 1) * self.count + 1

    def alone(self, law: Array, far: float, absent: float) -> Kernels:
        """The kernel for a law of A, of shape (n, groups), with its P-mass at infinity and the ratio of no part."""
        return _joined([self._spread(*self._single(law, 1.0, absent), far, absent)])

    def kernels(self, cuts: Sequence[Cut]) -> Kernels:
        """Those of the states (a, i), for each share a below 1 all i from 2 on, and last of a = 1."""
        present = -log1p(-self.prob)
        kernels: list[list[tuple[Array, float, float]]] = [[] for _ in self.shares]
        nodes = self.sums[coarse_nodes(self.sums.size)]
        for step in range(self.size):
            cut = cuts[step]
            none = (exp(-self.size * present), exp(-(self.size - step) * present))
            if step == 0:
                kernels[-1].append(self._spread(*self._single(cut.alone, 1.0, none[0]), cut.far_alone, none[0]))
                continue
            of_before, of_after = _products(cut)
            weight = float(cut.before.sum(axis=(1, 2)) @ cut.far_after)
            for which, share in enumerate(self.shares[:-1]):
                absent, scale = share * none[0] + (1.0 - share) * none[1], share + (1.0 - share) * exp(step * present)
                if share == 0.0:
                    split, excess = self._single(cut.alone, scale, absent)
                    far = scale * cut.far_alone
                else:
                    split, excess = spread_pairs(nodes, of_before, of_after, share, scale, self._sums(absent))
                    far = share * float(cut.far_before.sum()) + scale * weight
                kernels[which].append(self._spread(split, excess, far, absent))
        return _joined([kernel for states in kernels for kernel in states])

    def _sums(self, absent: float) -> Array:
        """Nodes of A for which ``absent + A`` is a node of ratios, and 0."""
        ratios = np.exp(self.spacing * self.shifts)
        return np.concatenate([[0.0], ratios[ratios > absent * (1.0 + 1e-9)] - absent])

    def _single(self, law: Array, scale: float, absent: float) -> tuple[Array, float]:
        pairs = np.zeros((1, 1, self.sums.size, self.count))
        pairs[0, 0] = law
        return spread_pairs(self.sums, np.zeros_like(pairs[0]), pairs[0], 0.0, scale, self._sums(absent))

    def _spread(self, split: Array, excess: float, far: float, absent: float) -> tuple[Array, float, float]:
        """Masses of sources and ratios, P-mass at infinity and Q-mass at 0, from those of ``_sums`` and groups."""
        sums, ratios = self._sums(absent), np.exp(self.spacing * self.shifts)
        masses = np.zeros((self.sources, self.shifts.size))
        skip = self.shifts.size - sums.size + 1  # ratios at most ``absent``
        rest, shared = sums[1:] / (absent + sums[1:]), absent / (absent + sums[1:])
        cells = np.minimum(np.searchsorted(self.shares, shared, side="right") - 1, self.shares.size - 2)
        low, high = self.shares[cells], self.shares[cells + 1]
        top = high == 1.0
        # Below a share of 1, the smaller of both shares of the ratio keeps its digits.
        inside = np.clip((shared - low) / (high - low), 0.0, 1.0)
        right = np.where(top, 1.0 - np.minimum(rest / (1.0 - low), 1.0), inside)
        columns, rows = skip + np.arange(rest.size), cells[:, None] * self.count + np.arange(self.count)
        masses[rows, columns[:, None]] += (1.0 - right)[:, None] * split[1:]
        beyond = right[:, None] * split[1:]
        masses[-1, columns[top]] += beyond[top].sum(axis=1)
        masses[rows[~top] + self.count, columns[~top, None]] += beyond[~top]
        none = float(split[0].sum())  # nothing but what takes no part, all available; a ratio between two nodes
        above = min(max((absent - ratios[skip - 1]) / (ratios[skip] - ratios[skip - 1]), 0.0), 1.0)
        masses[-1, skip - 1] += none * (1.0 - above)
        masses[-1, skip] += none * above
        small = masses <= NEGLIGIBLE
        lost, dear = float(masses[small].sum()), float((np.where(small, masses, 0.0) @ ratios).sum())
        masses[small] = 0.0
        return masses, far + excess + dear, lost


def _joined(kernels: Sequence[tuple[Array, float, float]]) -> Kernels:
    masses = np.array([kernel[0] for kernel in kernels])
    used = [np.flatnonzero(masses[:, source].any(axis=0)) for source in range(masses.shape[1])]
    return Kernels(
        masses, np.array([kernel[1] for kernel in kernels]), np.array([kernel[2] for kernel in kernels]), used
    )


def _products(cut: Cut) -> tuple[Array, Array]:
    """Masses of pairs of nodes, before and after a cut, by the group of what is before, and of what is after."""
    before, after = cut.before.sum(axis=2), cut.after.sum(axis=2)
    first = np.einsum("cxg,cy->xyg", cut.before, after, optimize=True)
    second = np.einsum("cx,cyg->xyg", before, cut.after, optimize=True)
    return np.ascontiguousarray(first), np.ascontiguousarray(second)


def spread_pairs(
    nodes: Array, first: Array, second: Array, share: float, scale: float, target: Array
) -> tuple[Array, float]:
    """The law of ``A = share x + scale y`` on target nodes, by the group that its terms belong to.

    Args:
        nodes: shape (m,), for x and y; of shape (1, m, groups) are ``first`` and ``second`` where x is 0.
        first, second: shape (m, m, groups), masses of pairs (x, y) by the group of x, and by that of y.

    Returns: shape (targets, groups), and the P-mass of what is above the last node, where the mass stays.
    """
    split = np.zeros((target.size, first.shape[2]))
    return split, _spread_pairs(nodes, first, second, share, scale, target, split)


@kernel
def _spread_pairs(
    nodes: Array, first: Array, second: Array, share: float, scale: float, target: Array, split: Array
) -> float:
    """The P-mass above the last node of :func:`spread_pairs`; the masses are added to ``split``."""
    n, count = split.shape
    excess = 0.0
    for i in range(first.shape[0]):
        x, cell = share * nodes[i], 0
        for j in range(first.shape[1]):
            y = scale * nodes[j]
            value = x + y
            of_x = x / value if value > 0.0 else 0.0
            of_y = y / value if value > 0.0 else 1.0
            while cell < n - 1 and target[cell + 1] <= value:
                cell += 1
            right = 0.0
            if cell < n - 1:
                right = min((value - target[cell]) / (target[cell + 1] - target[cell]), 1.0)
            for g in range(count):
                mass = of_x * first[i, j, g] + of_y * second[i, j, g]
                split[cell, g] += mass * (1.0 - right)
                if cell < n - 1:
                    split[cell + 1, g] += mass * right
                else:
                    excess += mass * (value - target[cell])
    return excess
