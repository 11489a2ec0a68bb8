"""The solver of the trees: the classical sum over the nodes that make up a prefix."""

from typing import Any

from hockeystick.noise.solver import Dtype, Fill, Layout, Reals, StreamingSolver, Work


class TreeAggregation(StreamingSolver):
    """Noise of a prefix sum: the noise of the nodes in its binary decomposition; of a step: the difference of two.

    The decomposition of the first m steps of a tree has one node for every binary digit 1 of m. With v trailing ones
    in m, ``x_m = z(new node of level v) - sum_{l < v} z(node of level l)``. The nodes below level v that a step
    completes as well are in no decomposition: their rows of z are never asked for.
    Keeps one node a level and one row: at most (log2(steps) + 2) d numbers. O(d) time a step on average.

    Args:
        leaves: steps in a tree, a power of two, or any number that is at least the steps.
        block: of no use here, as a step touches few rows: trees are solved step by step.

    Rounding: x_m is a sum of v + 1 terms, with a relative error below ``v u`` of the sum of their magnitudes.

    Reference: Dwork, Naor, Pitassi and Rothblum (2010), "Differential privacy under continual observation", section 4;
    Chan, Shi and Song (2011), "Private and continual release of statistics", section 3.
    """

    def __init__(self, *, leaves: int, steps: int, dtype: Dtype, block: int | None = None, **options: Any) -> None:
        layout: Layout = {"nodes": (min(leaves, steps).bit_length(), dtype), "output": (1, dtype)}
        super().__init__(steps=steps, block=1, layout=layout, **options)
        self._leaves = leaves

    def row(self, step: int) -> int:
        """Nodes that were completed before a step: a full tree has 2 leaves - 1, m steps of one 2 m - (ones in m)."""
        trees, m = divmod(step, self._leaves)
        return trees * (2 * self._leaves - 1) + 2 * m - m.bit_count()

    def reach(self, step: int) -> int:
        return step + 1 - (1 << self.level(step))

    def level(self, step: int) -> int:
        """Trailing ones of a step's number in its tree: the level of the new node."""
        m = step % self._leaves
        return (~m & (m + 1)).bit_length() - 1

    def replaced(self, step: int) -> list[int]:
        """The rows of the nodes that the new node of a step replaces, one of each level below its own."""
        m = step % self._leaves
        return [self.row(step - m + (m >> level << level) - 1) + level for level in range(self.level(step))]

    def _block(self, first: int, count: int, fill: Fill) -> Work:
        level = self.level(first)
        nodes, output = self.arrays["nodes"], self.arrays["output"][0]

        def solve(start: int, stop: int) -> None:
            total = output[start:stop]
            total[...] = 0.0
            for lower in nodes[:level]:
                total -= lower[start:stop]
            fill(nodes[level : level + 1, start:stop], self.row(first) + level, start)
            total += nodes[level, start:stop]

        return solve

    def _view(self, first: int, count: int) -> Reals:
        return self.arrays["output"]
