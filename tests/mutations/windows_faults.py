"""One-line faults in the engines of windows: laws that leave something out, and rounding that nobody pays for.

An entry is (path, old text, new text, reason, tests); the old text occurs once in the file.
"""

BLOCKS = "tests/windows/test_block_statistics.py"
CHAINS = "tests/windows/test_chains.py"
SUMS = "tests/windows/test_renewal_sums.py"
ORTHOGONAL = "tests/windows/test_subset_reductions.py"
SPLIT = "tests/accountants/test_split_noise.py"
LINEAR = "tests/accountants/test_linear_statistic.py"

FAULTS = [
    (
        "windows/block_statistics.py",
        "        found[0] += first[step]\n",
        "        found[0] += 0.0\n",
        "a run in which the example is never available has no place in the law of a statistic",
        BLOCKS,
    ),
    (
        "windows/block_statistics.py",
        "return without, taking_part, 2.0 * (2.0 * blocks.count * (error + moved) + sums)",
        "return without, taking_part, 2.0 * sums",
        "the rounding of the masses of cells is not charged",
        BLOCKS,
    ),
    (
        "windows/block_statistics.py",
        "_add_convolution(moved, found, plain, one + 1, 1.0)",
        "moved[:] = found",
        "blocks before the example is available add nothing to the statistic",
        BLOCKS,
    ),
    (
        "windows/renewal_sums.py",
        "        found[0] += first[u]\n",
        "        found[0] += 0.0\n",
        "a run in which the example is never available has no place in the law of a sum",
        SUMS,
    ),
    (
        "windows/renewal_sums.py",
        "return masses, (counts.size + 2.0) * 4.0 * (chances.size + 1.0) * UNIT_ROUNDOFF",
        "return masses, 0.0",
        "the rounding of a sum over participations is not charged",
        SUMS,
    ),
    (
        "windows/chains.py",
        "excess[j] += mass * (value - target[cell])",
        "excess[j] += 0.0",
        "what is above the last node of a window's ratio is lost",
        CHAINS,
    ),
    (
        "windows/chains.py",
        "return Law(support, mass, p_inf + lost, Side.UPPER, mass_error, place_error)",
        "return Law(support, mass, p_inf, Side.UPPER, mass_error, place_error)",
        "states that are out of reach reveal nothing",
        CHAINS,
    ),
    (
        "windows/chains.py",
        "    mass[0] += lost\n",
        "",
        "states that are out of reach have no mass without the example",
        CHAINS,
    ),
    (
        "windows/chains.py",
        "place_error = steps * (6.0 * LATTICE_ERROR",
        "place_error = (6.0 * LATTICE_ERROR",
        "the lattice of a chain errs once, however many steps there are",
        CHAINS,
    ),
    (
        "windows/chains.py",
        "np.where(same, own, (height[:-1] - height[1:]) / np.diff(places))",
        "np.where(same, own, own)",
        "between two nodes the law that was largest stays so",
        CHAINS,
    ),
    (
        "windows/chains.py",
        "beyond = (1.0 - prob) * beyond + excess",
        "beyond = excess",
        "what was above the last node at a later step is forgotten",
        CHAINS,
    ),
    (
        "windows/dominating_chain.py",
        "room = (ROOM + 2.0 * width * (2.0 * rounding + (3.0 * width + 32.0) * UNIT_ROUNDOFF)) * largest",
        "room = ROOM * largest",
        "a matrix counts as positive semidefinite that is so only as far as it is known",
        CHAINS,
    ),
    (
        "windows/dominating_chain.py",
        "            high = middle\n        else:\n            low = middle",
        "            low = middle\n        else:\n            high = middle",
        "the search for a chain keeps the one that does not dominate",
        CHAINS,
    ),
    (
        "windows/column_entries.py",
        "error = 4.0 * matrix.rounding + 4.0 *",
        "error = 4.0 *",
        "the rounding of a matrix's own entries is not charged",
        "tests/windows/test_column_entries.py",
    ),
    (
        "windows/orthogonal_columns.py",
        "rows = rows[(rows > worst).any(axis=1)]",
        "rows = rows[(rows > worst).all(axis=1)]",
        "a group that is worse in some of its steps alone is left out",
        ORTHOGONAL,
    ),
    (
        "windows/orthogonal_columns.py",
        "row = norms.max(axis=0) if side is Side.UPPER else",
        "row = norms[0] if side is Side.UPPER else",
        "one group stands for others that are worse",
        ORTHOGONAL,
    ),
    (
        "windows/orthogonal_columns.py",
        "return row[first if side is Side.UPPER else np.minimum(first + size, row.size) - 1]",
        "return row[first if side is Side.LOWER else np.minimum(first + size, row.size) - 1]",
        "neighbouring norms are rounded to the wrong side",
        ORTHOGONAL,
    ),
    (
        "windows/orthogonal_columns.py",
        "parts.append(power(step, count, resolution, tick=tick))",
        "parts.append(step)",
        "equal norms count once",
        ORTHOGONAL,
    ),
    (
        "windows/windows.py",
        "int((levels == level).sum())",
        "1",
        "windows that are alike count once",
        (SPLIT, LINEAR),
    ),
    (
        "windows/windows.py",
        "part = power(part, count, resolution, tick=deadline.tick)",
        "part = power(part, max(count - 1, 1), resolution, tick=deadline.tick)",
        "one of several windows is left out",
        (SPLIT, LINEAR),
    ),
]
