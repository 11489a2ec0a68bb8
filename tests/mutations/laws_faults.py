"""One-line faults in the laws, pairs, posteriors, windows and their accountants, each of which some test must notice.

An entry is (path, old text, new text, reason); the old text occurs once in the file.
"""

FAULTS = [
    # Batches that are cut.
    (
        "src/hockeystick/pairs/truncated_steps.py",
        "tight = others > cap - k",
        "tight = others > cap",
        "a step with as many others as the batch holds counts as roomy",
        "tests/pairs/test_truncated_steps.py",
    ),
    (
        "src/hockeystick/accountants/direct.py",
        "opposed_law(weights, 2.0 * counts, counts,",
        "opposed_law(weights, counts, 0.0 * counts,",
        "what an example pushes out of a batch is forgotten",
        "tests/pairs/test_truncated_steps.py",
    ),
    (
        "src/hockeystick/pairs/truncated_steps.py",
        "attained = _normalised((roomy * (1.0 - q) + cut, roomy * q + kept), error)",
        "attained = _normalised((1.0 - q, q), error)",
        "a lower bound on batches that are cut takes every example that is drawn to survive",
        "tests/pairs/test_truncated_steps.py",
    ),
    (
        "src/hockeystick/laws/opposed.py",
        "right[j] += part * min(excess / rise * of_q[j + 1], density)",
        "right[j] += part * min(excess / rise * of_q[j], density)",
        "the share of a cell's right end is relative to the wrong density",
        "tests/laws/test_opposed.py",
    ),
    (
        "src/hockeystick/laws/opposed.py",
        "p_inf = float(weights @ ndtr(right_shifts - y[-1])) * (1.0 + TAIL_ERROR + error) + UNDERFLOW",
        "p_inf = 0.0",
        "the tail of the crowded steps is dropped",
        "tests/laws/test_opposed.py",
    ),
    # Rounding and what is spent, which no test saw once.
    (
        "src/hockeystick/posteriors/participations/engine.py",
        "delta = (law_delta(law, epsilon, direction) + spent)",
        "delta = (law_delta(law, epsilon, direction) + spent * (direction is Direction.REMOVE))",
        "delta_1 is not charged in the add direction of MMCC",
    ),
    (
        "src/hockeystick/accountants/split_noise.py",
        "np.sqrt(lengths) * (1.0 + entries.error)",
        "np.sqrt(lengths)",
        "the rounding of the lengths of split noise is dropped",
    ),
    (
        "src/hockeystick/laws/operations.py",
        "rounding = (2 * a.size + b.size + 16) * UNIT_ROUNDOFF",
        "rounding = 0.0",
        "a composition does not charge for the rounding of its masses",
    ),
    (
        "src/hockeystick/laws/operations.py",
        "place_error += 2 * (b.size",
        "place_error += 0 * (b.size",
        "a composition does not charge for the rounding of its places",
    ),
    # The law engine.
    (
        "src/hockeystick/laws/operations.py",
        "mass_error = a.mass_error + b.mass_error + rounding",
        "mass_error = max(a.mass_error, b.mass_error) + rounding",
        "errors of masses do not add up in a product",
    ),
    (
        "src/hockeystick/laws/operations.py",
        "place_error = a.place_error + b.place_error if product else max(a.place_error, b.place_error)",
        "place_error = max(a.place_error, b.place_error)",
        "errors of places do not add up in a product",
    ),
    (
        "src/hockeystick/laws/operations.py",
        "mass[0] += skipped_q + UNDERFLOW",
        "mass[0] += UNDERFLOW",
        "the Q-mass of skipped pairs is lost",
    ),
    (
        "src/hockeystick/laws/operations.py",
        "+ excess + skipped_p + UNDERFLOW",
        "+ excess + UNDERFLOW",
        "the P-mass of skipped pairs is lost",
    ),
    (
        "src/hockeystick/laws/operations.py",
        "+ excess + skipped_p + UNDERFLOW",
        "+ skipped_p + UNDERFLOW",
        "the P-mass above the grid is lost",
    ),
    (
        "src/hockeystick/laws/operations.py",
        "p_inf = (a.p_inf + b.p_inf) *",
        "p_inf = max(a.p_inf, b.p_inf) *",
        "masses at infinity do not add up",
    ),
    (
        "src/hockeystick/laws/operations.py",
        "place_error=relative * (1.0 + absent / (rate * UNTHIN_FLOOR)) + 2e-12",
        "place_error=relative + 2e-12",
        "unthin ignores what its subtraction does to errors of places",
    ),
    (
        "src/hockeystick/laws/profile.py",
        "threshold = threshold * (1.0 - moved) if upper else threshold / (1.0 - moved)",
        "threshold = threshold / (1.0 - moved) if upper else threshold * (1.0 - moved)",
        "the threshold moves to the wrong side",
    ),
    (
        "src/hockeystick/laws/profile.py",
        "(law.support[first:] - threshold)) + law.p_inf",
        "(law.support[first:] - threshold))",
        "the mass at infinity is not read",
    ),
    (
        "src/hockeystick/laws/profile.py",
        "slack = law.mass_error + moved + (law.size + 8) * UNIT_ROUNDOFF",
        "slack = moved + (law.size + 8) * UNIT_ROUNDOFF",
        "the error of masses is not charged when a law is read",
    ),
    (
        "src/hockeystick/laws/profile.py",
        "return high if side is Side.UPPER else low",
        "return low",
        "an upper epsilon is the unsafe end of its bracket",
    ),
    (
        "src/hockeystick/laws/discretise.py",
        "p_inf = float(weights @ ndtr(shifts - y[-1])) * (1.0 + allowance) + UNDERFLOW",
        "p_inf = UNDERFLOW",
        "the tail of P beyond the last node is lost",
    ),
    (
        "src/hockeystick/laws/discretise.py",
        "masses[2:] += right\n    masses[1:-1] += mass - right",
        "masses[2:] += mass - right\n    masses[1:-1] += right",
        "the two ends of a cell are swapped",
    ),
    (
        "src/hockeystick/laws/lattice.py",
        "lost += (beyond + removed) * (1.0 + 1e-9)",
        "lost += removed * (1.0 + 1e-9)",
        "shifts out of reach are dropped from an upper law",
    ),
    (
        "src/hockeystick/laws/lattice.py",
        "return replace(whole, p_inf=whole.p_inf + lost)",
        "return whole",
        "mass at an infinite sensitivity is lost",
    ),
    (
        "src/hockeystick/laws/mixtures.py",
        "np.floor(exact * (1.0 + 4.0 * UNIT_ROUNDOFF))",
        "np.ceil(exact * (1.0 + 4.0 * UNIT_ROUNDOFF))",
        "sensitivities of lower laws are rounded up",
    ),
    (
        "src/hockeystick/laws/mixtures.py",
        "start = factor - 1 if side is Side.UPPER else 0",
        "start = 0",
        "a coarser lattice rounds down for upper laws",
    ),
    (
        "src/hockeystick/laws/mixtures.py",
        "error = (4.0 * chances.size + 16.0) * UNIT_ROUNDOFF",
        "error = 0.0",
        "sums of Bernoulli variables do not charge for their rounding",
    ),
    (
        "src/hockeystick/laws/gaussian.py",
        "sign = 1.0 if side is Side.UPPER else -1.0",
        "sign = -1.0 if side is Side.UPPER else 1.0",
        "the closed form of a Gaussian is rounded to the wrong side",
    ),
    # Posteriors.
    (
        "src/hockeystick/posteriors/participations/tails.py",
        "(log(blocks.informed) - log(spent))",
        "(-log(spent))",
        "no union bound over the informed pairs",
    ),
    (
        "src/hockeystick/posteriors/participations/tail_kernels.py",
        "growth(rate * high, prob) + prob * other * total[k]",
        "growth(rate * high, prob)",
        "the mean of the other participations is left out of the tail",
    ),
    (
        "src/hockeystick/posteriors/participations/rows.py",
        "norm = blocks.norm * (1.0 + blocks.error)",
        "norm = blocks.norm",
        "norms of blocks are not raised by their rounding",
    ),
    (
        "src/hockeystick/posteriors/participations/rows.py",
        "informed += int(np.count_nonzero(block[1]))",
        "informed = max(informed, int(np.count_nonzero(block[1])))",
        "the informed pairs of one block alone are counted",
    ),
    (
        "src/hockeystick/posteriors/bins/budget.py",
        "return shares * ((1.0 - 1e-9) / total) if total > 0.0 else shares",
        "return shares",
        "shares of the failure probability do not sum to 1",
    ),
    (
        "src/hockeystick/posteriors/bins/kernels.py",
        "above = min(above + (1.0 - above) * hazard * (1.0 + 1e-12), 1.0)",
        "above = max(above, hazard)",
        "the tail of a level forgets the levels above",
    ),
    (
        "src/hockeystick/posteriors/bins/dominating_steps.py",
        "tails[strongest_first[start : start + size]].max(axis=0)",
        "tails[strongest_first[start : start + size]].mean(axis=0)",
        "a block of rows is bounded by its mean row",
    ),
    (
        "src/hockeystick/posteriors/bins/levels.py",
        "np.maximum.at(values, level, distinct)",
        "values[level[::-1]] = distinct[::-1]",
        "a level has the smallest of its means",
    ),
    (
        "src/hockeystick/accountants/conditional_composition.py",
        "(law_delta(law, epsilon, direction) + spent)",
        "law_delta(law, epsilon, direction)",
        "delta_E is not charged",
    ),
    # Windows and their accountants.
    (
        "src/hockeystick/windows/windows.py",
        "extreme = np.max if side is Side.UPPER else np.min",
        "extreme = np.min if side is Side.UPPER else np.max",
        "similar windows are bounded on the wrong side",
    ),
    (
        "src/hockeystick/windows/orthogonal_columns.py",
        "(np.maximum if upper else np.minimum).at(levels, level, values)",
        "(np.minimum if upper else np.maximum).at(levels, level, values)",
        "norms that are about equal are rounded to the wrong side",
    ),
    (
        "src/hockeystick/accountants/linear_statistic.py",
        "shifts * (1.0 - entries.error)",
        "shifts",
        "the rounding of the shifts of linear statistics is dropped",
    ),
    (
        "src/hockeystick/accountants/linear_statistic.py",
        "np.where(window == entries.last // size, entries.sums, 0.0)",
        "entries.sums",
        "rows that see two windows are kept",
    ),
    (
        "src/hockeystick/accountants/direct.py",
        "error = pair.sensitivity_error if side is Side.UPPER else -pair.sensitivity_error",
        "error = 0.0",
        "the rounding of column norms is not charged",
    ),
    (
        "src/hockeystick/accountants/direct.py",
        "power(step, opportunities + 1, resolution, tick=tick)",
        "power(step, opportunities, resolution, tick=tick)",
        "secret groups with an opportunity more are counted short",
    ),
    (
        "src/hockeystick/accountants/direct.py",
        "power(block, longer, resolution, tick=tick)",
        "power(block, longer - 1, resolution, tick=tick)",
        "a block of k-of-t allocation is left out",
    ),
    (
        "src/hockeystick/accountants/gaussian.py",
        "error = pair.sensitivity_error if side is Side.UPPER else -pair.sensitivity_error",
        "error = -pair.sensitivity_error if side is Side.UPPER else pair.sensitivity_error",
        "the sensitivity of the Gaussian is rounded to the wrong side",
    ),
    (
        "src/hockeystick/accountants/projection.py",
        "self.missing + other.missing + outside",
        "self.missing + other.missing",
        "what the ends of a sum leave out is not counted",
    ),
    (
        "src/hockeystick/accountants/shuffle_thresholds.py",
        "-np.expm1(log_with) * (1.0 - error) + scale * (np.expm1(log_without) * (1.0 + error) - UNDERFLOWN)",
        "-np.expm1(log_with) + scale * np.expm1(log_without)",
        "threshold sets are not rounded down",
    ),
    # Published methods.
    (
        "src/hockeystick/accountants/published/analytic.py",
        "law_delta(law, epsilon, direction) + slack * (1.0 + ROUNDING)",
        "law_delta(law, epsilon, direction)",
        "the bad event is not charged",
    ),
    (
        "src/hockeystick/accountants/published/renyi.py",
        "np.logaddexp(0.0, log_excess + rounding)",
        "np.logaddexp(0.0, log_excess)",
        "the rounding of moments is dropped",
    ),
    (
        "src/hockeystick/accountants/dong_chen_ozgur.py",
        "np.logaddexp(0.0, log_excess + rounding)",
        "np.logaddexp(0.0, log_excess)",
        "the rounding of overlap moments is dropped",
    ),
    (
        "src/hockeystick/accountants/shuffle_clones.py",
        "moved = delta1 + (bins - 1) * clone * (delta0 + delta1)",
        "moved = (bins - 1) * clone * delta0",
        "the example's own approximation is not charged",
    ),
    (
        "src/hockeystick/accountants/published/shuffled_tree.py",
        "bad.append(3.0 * failure)",
        "bad.append(failure)",
        "two of three bad events are not charged",
    ),
    # Pairs.
    (
        "src/hockeystick/pairs/averaged_steps.py",
        "return self.noise_multiplier / float(self.replays**0.5)",
        "return self.noise_multiplier",
        "replays of the same bins are counted once",
    ),
    (
        "src/hockeystick/pairs/independent_steps.py",
        "slack = min(max(sampler.steps * tail * (1.0 + BINOMIAL_TAIL_ROUNDING), SMALLEST_SLACK), 1.0)",
        "slack = min(max(tail * (1.0 + BINOMIAL_TAIL_ROUNDING), SMALLEST_SLACK), 1.0)",
        "truncation is charged for a single step",
    ),
    (
        "src/hockeystick/pairs/subset_mixture.py",
        "return None if self.groups_are_public else",
        "return None if True else",
        "lower bounds on known groups are reported for secret ones",
    ),
    (
        "src/hockeystick/pairs/secret_groups.py",
        " or sampler.steps % sampler.groups:",
        ":",
        "a last round that is cut short is left out",
    ),
    (
        "src/hockeystick/pairs/renewal_mixture.py",
        "found *= 1.0 + 8.0 * matrix.rounding",
        "found *= 1.0",
        "overlaps of columns are not raised by their rounding",
    ),
    (
        "src/hockeystick/pairs/bin_mixture.py",
        "return 4.0 * self.matrix.rounding",
        "return 0.0",
        "the Gram matrix of bins counts as exact",
    ),
]
"""(path, old text, new text, reason)."""
