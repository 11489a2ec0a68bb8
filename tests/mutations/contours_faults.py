"""One-line faults in contour integrals, their moments and profiles, each of which some test must notice.

An entry is (path, old text, new text, reason, tests); the old text occurs once in the file.
"""

_CONTOURS, _MOMENTS = "src/hockeystick/laws/contours.py", "src/hockeystick/laws/poisson_moments.py"
_TESTS = "tests/laws/test_contours.py"
_PRODUCT, _OF_PRODUCTS = "src/hockeystick/laws/product_moments.py", "tests/laws/test_product_moments.py"

FAULTS = [
    (
        "src/hockeystick/laws/profile.py",
        "if not (slack < 1.0 and law.is_finite):",
        "if not slack < 1.0:",
        "an overflow in a law becomes an epsilon of zero",
        "tests/laws/test_profile.py",
    ),
    (
        _CONTOURS,
        "parts = np.cos(angles) * self.terms.real + np.sin(angles) * self.terms.imag",
        "parts = np.cos(angles[:1]) * self.terms.real + np.sin(angles) * self.terms.imag",
        "epsilons that share a line are read at the first of them",
        f"{_TESTS}::test_epsilons_together_have_the_answers_that_they_have_alone",
    ),
    (
        _CONTOURS,
        "*(sides.upper for _, sides in tried)",
        "*(sides.lower for _, sides in tried)",
        "where no line answers, a lower side is taken for the bound from above",
        _TESTS,
    ),
    (
        _CONTOURS,
        "lower = factor * max(value - error - distant, 0.0)",
        "lower = factor * max(value - error, 0.0)",
        "what the trapezoidal rule adds is taken for the value",
        _TESTS,
    ),
    (
        _CONTOURS,
        "self.before.total(-x, self.window) + ",
        "",
        "what the trapezoidal rule adds from before is forgotten",
        _TESTS,
    ),
    (
        _CONTOURS,
        " + self.after.total(x, self.window))",
        ")",
        "what the trapezoidal rule adds from after is forgotten",
        _TESTS,
    ),
    (
        _CONTOURS,
        "error=1.01 * float(errors.sum()) + cut_off,",
        "error=1.01 * float(errors.sum()),",
        "what is cut off the line is forgotten",
        _TESTS,
    ),
    (
        _CONTOURS,
        "upper = factor * (value + error)",
        "upper = factor * (value - error)",
        "an upper side is below the sum by its error",
        _TESTS,
    ),
    (
        _CONTOURS,
        "self._contours[direction, order] = self._contour(order, direction, known)",
        "self._contours[direction, order] = self._contour(order + 1e-3 * len(self._contours), direction, known)",
        "a line depends on what was asked before",
        _TESTS,
    ),
    (
        _MOMENTS,
        "by_slabs = 2.0 * (frequency / pi) ** 2",
        "by_slabs = 8.0 * (frequency / pi) ** 2",
        "slabs lower the size of the integrand four times too much",
        _TESTS,
    ),
    (
        _MOMENTS,
        "(pi / settled)",
        "(16.0 * pi / settled)",
        "slabs on which the angle turns around",
        _TESTS,
    ),
    (
        _MOMENTS,
        "variations = (4.0 if c > -1.0 else 2.0) *",
        "variations = 0.1 *",
        "the total variation of a density is below its largest value",
        _TESTS,
    ),
    (
        _MOMENTS,
        "excess = QUADRATURE + 0.5 * d * d",
        "excess = 3.0 + 0.5 * d * d",
        "nodes too far apart for the trapezoidal rule",
        _TESTS,
    ),
    (
        _PRODUCT,
        "log_moment += share * line.log_moment",
        "log_moment += line.log_moment / len(self.parts)",
        "different steps count alike, however many there are of each",
        _OF_PRODUCTS,
    ),
    (
        _PRODUCT,
        "changes += share * np.where(vague, 0.0, relative",
        "changes += 1e-4 * share * np.where(vague, 0.0, relative",
        "errors of the factors are lost in their product",
        _OF_PRODUCTS,
    ),
    (
        _PRODUCT,
        "errors = np.where(lost, np.exp(most",
        "errors = np.where(lost, 1e-3 * np.exp(most",
        "a product with a factor that may be zero is taken for one that is",
        _OF_PRODUCTS,
    ),
    (
        _PRODUCT,
        "np.min((weighted - log_size) / weights)",
        "np.min((weighted + log_size) / weights)",
        "a line of different steps begins before their total variations suffice",
        _OF_PRODUCTS,
    ),
    (
        "laws/contours.py",
        "bounds.append(exp(min(least + extra + 1e-9, 0.0)))",
        "bounds.append(exp(min(least + 1e-9, 0.0)))",
        "what moments say of a call far away is not in its own units",
        "tests/laws/test_contours.py",
    ),
    (
        "laws/contours.py",
        "return self.lower > APART * delta or APART * self.upper < delta",
        "return self.upper > APART * delta or APART * self.lower < delta",
        "vague sides are taken where they decide, and epsilon is loose",
        "tests/accountants/test_comparisons.py",
    ),
    (
        "laws/hidden_visits.py",
        "strike = log1p(expm1(min(epsilon, FAR)) / self.rate)",
        "strike = min(epsilon, FAR) / self.rate",
        "calibration starts far from its end",
        "tests/calibration/test_first_guess.py",
    ),
    (
        "laws/poisson_moments.py",
        "(float(together), ceil(count / together))",
        "(float(together + 1), ceil(count / together))",
        "blocks of rotations are not those that follow the first one",
        "tests/laws/test_contours.py",
    ),
    (
        "laws/mean_of_ratios.py",
        "both = first[:, None] * second\n        both += first[:, None]",
        "both = np.zeros(1) * first[:, None] * second\n        both += first[:, None]",
        "exponentials of a sum lack the product of those of its parts",
        "tests/laws/test_allocated_epochs.py",
    ),
    (
        _PRODUCT,
        "float(np.log1p(-min(by_slabs, 1.0 - 1e-9)))",
        "4.0 * float(np.log1p(-min(by_slabs, 1.0 - 1e-9)))",
        "slabs of different steps lower the size of the integrand too much",
        _OF_PRODUCTS,
    ),
]
