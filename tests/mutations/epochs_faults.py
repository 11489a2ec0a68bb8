"""One-line faults in the transforms of random allocation, each of which some test must notice.

An entry is (path, old text, new text, reason, tests); the old text occurs once in the file.
"""

_MEAN, _POWERS = "src/hockeystick/laws/mean_of_ratios.py", "src/hockeystick/laws/tilted_powers.py"
_EPOCHS, _TESTS = "src/hockeystick/laws/allocated_epochs.py", "tests/laws/test_allocated_epochs.py"
_RARE, _OF_RARE = "src/hockeystick/laws/rare_steps.py", "tests/laws/test_rare_steps.py"
_MOMENTS, _OF_MOMENTS = "src/hockeystick/laws/mean_moments.py", "tests/laws/test_mean_moments.py"

FAULTS = [
    (
        _MOMENTS,
        "(sizes + sizes**2 / self.bins)",
        "(sizes**2 / self.bins)",
        "the mean of a logarithm is forgotten in moments below 0",
        _OF_MOMENTS,
    ),
    (
        _MOMENTS,
        "/ factorials / float(self.bins) ** orders",
        "/ float(self.bins) ** orders",
        "ways to choose the same step are counted wrongly",
        _OF_MOMENTS,
    ),
    (
        _MOMENTS,
        "return exp(min(least + extra + MARGIN, 0.0))",
        "return exp(min(least + MARGIN, 0.0))",
        "a call far away is not paid in its own units",
        _OF_MOMENTS,
    ),
    (
        _MEAN,
        "lower = values - known - errors - 1.0 / expm1(DAMPING)",
        "lower = values - known - errors",
        "what the rule adds out of the money is taken for the value",
        _TESTS,
    ),
    (
        _MEAN,
        "error=1.01 * float(errors.sum()) + cut_off,",
        "error=1.01 * float(errors.sum()),",
        "what is cut off the line is forgotten",
        _TESTS,
    ),
    (
        _MEAN,
        "known += np.maximum(shifts, 0.0)",
        "known *= 1.0",
        "a put is taken for what is out of the money",
        _TESTS,
    ),
    (
        _MEAN,
        "most = exp(SMALLEST_POWER / bins) - off",
        "most = exp(0.8 * SMALLEST_POWER / bins) - off",
        "lines end too early",
        _TESTS,
    ),
    (
        _MEAN,
        "shares = np.full(count, 2.0 / window)",
        "shares = np.full(count, 1.9999 / window)",
        "frequencies count a little less than twice",
        _TESTS,
    ),
    (
        _POWERS,
        "sag = widths * kinks[:-1]",
        "sag = 0.1 * widths * kinks[:-1]",
        "chords of a contraction are above the profile between two places",
        _TESTS,
    ),
    (
        _POWERS,
        "(with_place + alone) + OUTSIDE * self.largest",
        "(with_place + alone)",
        "what comes around from beyond the window is taken for the value",
        _TESTS,
    ),
    (
        _POWERS,
        "unknown[1:-1] |= (lower < 0.0)[:-2] | (lower < 0.0)[2:]",
        "unknown[1:-1] |= False",
        "chords of a contraction that begin at 0 are above the profile",
        _TESTS,
    ),
    (
        _POWERS,
        "shift = -0.5 * MOVED if upper",
        "shift = -40.0 * MOVED if upper",
        "places below the threshold count as losses",
        _TESTS,
    ),
    (
        _POWERS,
        "self._charge = self.count * exp(",
        "self._charge = exp(",
        "infinite ratios are charged once for all epochs",
        _TESTS,
    ),
    (
        _POWERS,
        "tilted = np.roll(np.fft.irfft(powers, length), -start)",
        "tilted = np.roll(np.fft.irfft(powers, length), 1 - start)",
        "sums are one place too high",
        _TESTS,
    ),
    (
        _EPOCHS,
        "self._asked[epsilon, direction] = self._useful(epsilon, direction)",
        "self._asked[epsilon, direction] = self._useful(epsilon + 1e-3 * len(self._asked), direction)",
        "an answer depends on what was asked before",
        _TESTS,
    ),
    (
        _POWERS,
        "masses[last] += beyond",
        "masses[last] += 1.0 - beyond",
        "the kink of 1 is given to the farther place",
        _TESTS,
    ),
    (
        _POWERS,
        "origin = count * float(self._logs[main])",
        "origin = float(self._logs[main])",
        "the most likely place counts once for all steps",
        _TESTS,
    ),
    (
        _POWERS,
        "high = min(reach[1],",
        "high = 0.5 * min(reach[1],",
        "windows end before the mass does",
        _TESTS,
    ),
    (
        _POWERS,
        "sag[0] = 0.0",
        "sag[:9] = 0.0",
        "a put that is curved between two places is taken for a straight one",
        _OF_RARE,
    ),
    (
        _POWERS,
        "return min(exp(min(exponent + error + MOVED, 0.0)) + self._charge * infinite, 1.0)",
        "return min(exp(min(exponent + error + MOVED, 0.0)), 1.0)",
        "a bound by moments forgets what is at 0 and at infinity",
        _TESTS,
    ),
    (
        _POWERS,
        "exponent = log_size - order * x + extra + float(log_peaks(np.array([order]))[0])",
        "exponent = log_size - order * x + float(log_peaks(np.array([order]))[0])",
        "a bound by moments of a call far away is not in its own units",
        _TESTS,
    ),
    (
        _RARE,
        "/ (1.0 - beyond)) + ERROR_OF_MEANS",
        "/ (1.0 - beyond)) - 0.2 * self.rate",
        "the place of nearly all steps is below their mean",
        _OF_RARE,
    ),
    (
        _RARE,
        "self.rate * np.where(puts, values * np.minimum(strikes, 1.0), 0.0)",
        "self.rate * np.where(puts, values, 0.0)",
        "puts are paid in the wrong units",
        _OF_RARE,
    ),
    (
        _RARE,
        "epsilon > -self.steps * log1p(-self.rate)",
        "epsilon > -0.5 * self.steps * log1p(-self.rate)",
        "a delta of the add direction is 0 too early",
        _OF_RARE,
    ),
]
