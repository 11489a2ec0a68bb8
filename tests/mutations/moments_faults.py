"""Faults in the engines of moments and in the covariance comparison: (path, old, new, reason).

Each replaces one passage of a file, which occurs there once. The tests of the file's room must fail with it.
"""

MOMENTS = "src/hockeystick/moments"

FAULTS: list[tuple[str, str, str, str]] = [
    (
        f"{MOMENTS}/exact_gram.py",
        "gram * (1.0 + slack + np.where(diagonal, change, 0.0)), np.inf",
        "gram * (1.0 + np.where(diagonal, change, 0.0)), np.inf",
        "upper Gram matrices are not raised by the rounding of the true one",
    ),
    (
        f"{MOMENTS}/exact_gram.py",
        "gram * (1.0 - slack - np.where(diagonal, 0.0, change)), 0.0",
        "gram * (1.0 + slack - np.where(diagonal, 0.0, change)), 0.0",
        "lower Gram matrices are raised by the rounding",
    ),
    (
        f"{MOMENTS}/exact_gram.py",
        "if side is Side.UPPER and Fraction(scale) < exact:",
        "if side is Side.UPPER and Fraction(scale) > exact:",
        "1 / sigma^2 is rounded to the wrong side",
    ),
    (
        f"{MOMENTS}/exact_gram.py",
        "common=max(common, _common(part))",
        "common=_common(part) + common",
        "a class splits off more of its common factor than there is",
    ),
    (
        f"{MOMENTS}/common_factor.py",
        "rational_exponential(-variance * (k * (k - 1) // 2))",
        "rational_exponential(-variance * (k * (k + 1) // 2))",
        "the common factor is divided out with the exponent of the next order",
    ),
    (
        f"{MOMENTS}/ring_kernels.py",
        "gather(total, complex(jump - 1.0, 0.0),",
        "gather(total, complex(float(jump), 0.0),",
        "on a circulant ring one first place too many is counted for the jump across the seam",
    ),
    (
        f"{MOMENTS}/ring.py",
        "for origin in range(1, min(bins, factors.longest + reach)):",
        "for origin in range(1, min(bins, factors.longest + reach) - 1):",
        "the last place where a jump across the seam may end is left out",
    ),
    (
        f"{MOMENTS}/ring.py",
        "reach, max(min(reach, gram.bins - 1 - reach), 0)",
        "reach, max(min(reach, gram.bins - 2 - reach), 0)",
        "the farthest bin that is near the other way round the ring is forgotten",
    ),
    (
        f"{MOMENTS}/ring.py",
        "error=relative_error(factors, by_bins=by_bins),",
        "error=relative_error(factors, by_bins=by_bins) / 10**9,",
        "the rounding of moments is not charged",
    ),
    (
        f"{MOMENTS}/summation.py",
        "error=2 * (weights + tails * loss)",
        "error=2 * weights",
        "the error of normal tails is not charged on cells and strips",
    ),
    (
        f"{MOMENTS}/strips.py",
        "floors=tuple(_floor(gram, label, start) for start in starts)",
        "floors=tuple(_floor(gram, label, start) for start in [*starts[1:], starts[-1]])",
        "the floor of a strip is that of its upper end",
    ),
    (
        f"{MOMENTS}/strips.py",
        "bordered[0, 0] = variance",
        "bordered[0, 0] = 1.000001 * variance",
        "the Gaussian of the strips is proved to exist with more variance than it is given",
    ),
    (
        f"{MOMENTS}/floor.py",
        "DEVIATIONS = 38.0",
        "DEVIATIONS = 0.38",
        "the mixture is often below its floor",
    ),
    (
        f"{MOMENTS}/bands.py",
        "return LogMoments(orders, np.maximum(values, 0.0) + 4 * UNIT_ROUNDOFF * (depth + size))",
        "return LogMoments(orders, np.maximum(values, 0.0))",
        "the rounding of banded moments is not charged",
    ),
    (
        f"{MOMENTS}/bands.py",
        "common = float(ring_maxima(scaled)[width:].max(initial=0.0))",
        "common = float(ring_maxima(scaled)[width + 1 :].max(initial=0.0))",
        "the first ring distance outside the band is forgotten",
    ),
    (
        f"{MOMENTS}/recheck.py",
        "AGREEMENT = 1e-7",
        "AGREEMENT = 1e-5",
        "the second computation of moments lets an error of a millionth pass",
    ),
    (
        f"{MOMENTS}/recheck.py",
        "visible = stated > SMALLEST_VISIBLE * stated.sum()",
        "visible = stated > 1e-6 * stated.sum()",
        "moments on ranges of small probability are not confirmed",
    ),
    (
        f"{MOMENTS}/geometric_mean.py",
        "drift = mean * (1.0 + error) - 0.5 * variance * (1.0 - error)",
        "drift = mean * (1.0 - error) - 0.5 * variance * (1.0 + error)",
        "the drift of the geometric mean is rounded down",
    ),
    (
        f"{MOMENTS}/order_programme.py",
        "return min([one_order, *(max(bound, exp(SMALLEST_LOG_DELTA)) for bound in bounds)])",
        "return min([one_order, *(0.999 * max(bound, exp(SMALLEST_LOG_DELTA)) for bound in bounds)])",
        "the programme's bound is a thousandth too good",
    ),
    (
        f"{MOMENTS}/majorant/proof.py",
        "return _rounded(total + margin, inf) if side is Side.UPPER",
        "return _rounded(total, inf) if side is Side.UPPER",
        "the error of moments is not charged to upper expectations",
    ),
    (
        f"{MOMENTS}/majorant/proof.py",
        "Fraction(1001, 1000) * (1 if side is Side.UPPER else -1)",
        "Fraction(1001, 1000)",
        "lower candidates are repaired upwards",
    ),
    (
        f"{MOMENTS}/majorant/proof_kernels.py",
        "errors[cell, k] += factor * magnitude[k]",
        "errors[cell, k] += 1e-12 * factor * magnitude[k]",
        "the rounding of Taylor coefficients is not charged",
    ),
    (
        f"{MOMENTS}/majorant/majorant.py",
        "value = _away(value, price_below(polynomial, floor), side)",
        "value = _away(value, 0.0, side)",
        "what may hide below the floor is not charged",
    ),
    (
        f"{MOMENTS}/majorant/majorant.py",
        "return nextafter(value + distance, inf) if side is Side.UPPER else",
        "return nextafter(value - distance, inf) if side is Side.UPPER else",
        "a charge lowers upper bounds",
    ),
    (
        f"{MOMENTS}/majorant/majorant.py",
        "if epsilon > LARGEST_EPSILON and side is Side.LOWER:",
        "if epsilon > LARGEST_EPSILON and side is Side.UPPER:",
        "far epsilons get an upper bound of 0",
    ),
    (
        f"{MOMENTS}/majorant/ranges.py",
        "start = least_ratio(float(cells.edges[place - 1]), cells.variance, bins)",
        "start = least_ratio(float(cells.edges[place]), cells.variance, bins)",
        "polynomials on a cell need to hold beyond its upper end only",
    ),
    (
        f"{MOMENTS}/majorant/ranges.py",
        "order = 1 if hockey_stick.direction is Direction.REMOVE else 0",
        "order = 0 if hockey_stick.direction is Direction.REMOVE else 1",
        "the trivial bound on a strip is that of the other direction",
    ),
    (
        "src/hockeystick/accountants/moment_majorant.py",
        "gram = proved_gram(pair.gram, pair.rounding, pair.noise_multiplier, side)",
        "gram = proved_gram(pair.gram, pair.rounding, pair.noise_multiplier, Side.LOWER)",
        "upper bounds come from a lower Gram matrix",
    ),
    (
        "src/hockeystick/accountants/comparison.py",
        "common = float(others.max(initial=0.0)) * (1.0 + error)",
        "common = float(others.max(initial=0.0))",
        "the entries of upper blocks are not raised by their rounding",
    ),
    (
        "src/hockeystick/accountants/comparison.py",
        "inside = min(float(gram[first : first + size, first : first + size].min()) for first in ends)",
        "inside = max(float(gram[first : first + size, first : first + size].min()) for first in ends)",
        "lower blocks take the entry of their best block",
    ),
    (
        "src/hockeystick/accountants/published/bin_renyi.py",
        "lowest[place] = np.minimum(lowest[place], each.values)",
        "lowest[place] = np.minimum(lowest[place], each.values) - 1e-6",
        "every order is a little below all of its bounds",
    ),
]
