"""One-line faults in exact noise: each makes integers that are not those of the rounded real mechanism.

An entry is (path, old text, new text, reason, tests); the old text occurs once in the file.
"""

EXACT = "tests/noise/test_exact.py"
ENCLOSURE = "tests/noise/test_enclosure.py"
THEOREM = f"{EXACT}::test_the_integers_are_those_of_the_theorem"
MOVES = "tests/certification/test_bits.py::test_the_lower_end_of_a_run_is_that_of_a_test_whose_threshold_moves"
TAIL = f"{EXACT}::test_numbers_in_the_tail_are_rounded_like_all_others"

FAULTS = [
    # What is certain.
    (
        "noise/exact/kernels.py",
        "found += abs(value - whole - 0.5) > room",
        "found += 0",
        "doubt is ignored",
        f"{EXACT}::test_what_is_in_doubt_is_decided_alike",
    ),
    (
        "noise/exact/solvers.py",
        "FAR = 5.1",
        "FAR = 8.0",
        "the error of a polynomial without the width of its cell",
        TAIL,
    ),
    (
        "noise/exact/solvers.py",
        "rough=drawing + TWO_ROUNDOFFS * (entries.shape[1] + 4) * (largest / diagonal + 1.0),",
        "rough=drawing * 1e-9,",
        "sums of float64 are taken for exact",
        f"{EXACT}::test_a_sum_of_large_numbers_is_in_doubt",
    ),
    (
        "noise/exact/kernels.py",
        "out[k] = np.int32(whole)",
        "out[k] = np.int32(value)",
        "trunc for floor",
        THEOREM,
    ),
    (
        "noise/exact/kernels.py",
        "zero = np.zeros((len(step.units), 1))",
        "zero = np.ones((len(step.units), 1))",
        "a row beyond the bands counts",
        THEOREM,
    ),
    (
        "noise/exact/kernels.py",
        "whole = np.floor(value)",
        "whole = np.rint(value)",
        "rint for floor",
        THEOREM,
    ),
    (
        "noise/exact/kernels.py",
        "value = row[k] * over + 0.5",
        "value = row[k] * over",
        "floor without the half",
        THEOREM,
    ),
    (
        "noise/exact/kernels.py",
        "return np.int64(np.floor(shifted)) - whole, certain(shifted, step.fine[b])",
        "return np.int64(np.floor(shifted)) + whole, certain(shifted, step.fine[b])",
        "the whole part of the past is added",
        f"{EXACT}::test_sums_in_whole_numbers_agree_with_those_in_float64",
    ),
    (
        "noise/exact/solvers.py",
        "(ring_rows(bands - 1, block), np.int32)",
        "(ring_rows(bands - 1, block), np.int16)",
        "rows that are kept wrap",
        THEOREM,
    ),
    (
        "noise/exact/solvers.py",
        "feed_back(ring, place, z, step, column, b + 1, at)",
        "at[0] = len(z)",
        "what follows a doubtful number is not solved again",
        f"{EXACT}::test_numbers_as_wrong_as_they_may_be_change_nothing",
    ),
    (
        "noise/exact/solvers.py",
        "v = rounded([(weight, lazy(fill, first + b, column))], HALF - past / diagonal)",
        "v = rounded([(weight, lazy(fill, first + b, column))], HALF + past / diagonal)",
        "a doubtful number forgets the sign of the past",
        f"{EXACT}::test_what_is_in_doubt_is_decided_alike",
    ),
    # Numbers whose bits are drawn late.
    (
        "noise/exact/lazily.py",
        "k = (k << 64) + digits",
        "k = (k << 64)",
        "later bits are zero",
        TAIL,
    ),
    (
        "noise/exact/lazily.py",
        "low, high = -high, -low",
        "low, high = low, high",
        "late numbers are never negative",
        TAIL,
    ),
    (
        "noise/exact/lazily.py",
        "if floor(low) == floor(high):",
        "if True:",
        "the first bits decide",
        f"{EXACT}::test_a_sum_is_decided_by_as_many_bits_as_it_takes",
    ),
    # The normal law.
    (
        "noise/exact/enclosure.py",
        "while upper_tail(low, places)[0] < (k + 1) * cell and low > 0:",
        "while False:",
        "the low end of a quantile is not proved",
        f"{ENCLOSURE}::test_a_quantile_is_proved_whatever_the_guess",
    ),
    (
        "noise/exact/enclosure.py",
        "while upper_tail(high, places)[1] > k * cell:",
        "while False:",
        "the high end of a quantile is not proved",
        f"{ENCLOSURE}::test_a_quantile_is_proved_whatever_the_guess",
    ),
    (
        "noise/exact/enclosure.py",
        "guard = 16 + places.bit_length() + (square >> double)",
        "guard = 16 + places.bit_length()",
        "no room for the terms of a large number",
        f"{ENCLOSURE}::test_tails_are_enclosed_to_the_last_place",
    ),
    # The matrix and the grid.
    (
        "strategies/matrix/dyadic.py",
        "if not np.array_equal(units, np.round(units)):",
        "if not np.allclose(units, np.round(units), atol=0.1):",
        "a C that differs from the accounted one by 1e-9",
        f"{EXACT}::test_a_matrix_that_is_not_the_accounted_one_is_refused",
    ),
    (
        "strategies/matrix/dyadic.py",
        "return _checked(InverseToeplitzMatrix(_rounded(matrix.inverse_coefficients), matrix.steps))",
        "return _checked(ToeplitzMatrix(_rounded(matrix.coefficients), matrix.steps))",
        "C is rounded where its inverse has the bands, and W is only near the inverse",
        f"{EXACT}::test_entries_are_multiples_of_two_to_the_minus_24",
    ),
    (
        "mechanism.py",
        "return self.strategy.matrix(self.sampler.steps, exact=self.exact)",
        "return self.strategy.matrix(self.sampler.steps)",
        "another matrix is accounted for than the noise has",
        THEOREM,
    ),
    (
        "strategies/matrix/dyadic.py",
        "if not growth <= LARGEST_GROWTH:",
        "if False:",
        "what is kept may wrap",
        f"{EXACT}::test_what_cannot_be_exact_is_refused",
    ),
    (
        "noise/noise_stream.py",
        'if resumed._grid is not None and int(state["grid"]) != resumed._grid.exponent:',
        "if False:",
        "a run continues on another grid",
        f"{EXACT}::test_states_that_do_not_fit_are_refused",
    ),
    (
        "certification/rounding.py",
        "- 2.0 * alpha",
        "- alpha",
        "the threshold of a rounded test moves in one law alone",
        MOVES,
    ),
    (
        "certification/rounding.py",
        "* (1.0 - step) - 2.0",
        "- 2.0",
        "gradients of a rounded test lose no step",
        MOVES,
    ),
    (
        "certification/rounding.py",
        "matrix.diagonal_entries if feeds_back(matrix) else matrix.dot(np.ones(matrix.steps))",
        "matrix.diagonal_entries",
        "sums are rounded as feedback is",
        MOVES,
    ),
]
