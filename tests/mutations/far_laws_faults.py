"""One-line faults in laws in far units: what lies beyond the largest ratio counts on the wrong side.

An entry is (path, old text, new text, reason, tests); the old text occurs once in the file.
"""

FAULTS = [
    (
        "src/hockeystick/laws/profile.py",
        "law.p_inf * max(1.0 - threshold / law.horizon, 0.0)",
        "law.p_inf",
        "a lower law counts ratios just above its horizon as infinite",
        "tests/laws/test_far.py::test_what_is_beyond_the_horizon_counts_through_every_operation",
    ),
    (
        "src/hockeystick/laws/operations.py",
        "horizon = min(horizon, own.horizon * partners if product else own.horizon)",
        "horizon = min(horizon, own.horizon)",
        "the horizon stays where the partners of a ratio bring it down",
        "tests/laws/test_far.py::test_a_horizon_moves_with_the_mass_of_its_partners",
    ),
    (
        "src/hockeystick/laws/operations.py",
        "beyond += own.p_inf * partners",
        "beyond += own.p_inf",
        "a composition adds P-mass that a lower law has left out",
        "tests/laws/test_far.py::test_a_horizon_moves_with_the_mass_of_its_partners",
    ),
    (
        "src/hockeystick/laws/kernels.py",
        "            skipped_p += p\n            beyond",
        "            beyond",
        "products that overflow lose their P-mass",
        "tests/laws/test_far.py",
    ),
    (
        "src/hockeystick/laws/discretise.py",
        "above = y[last + 1 : last + 2]  # the",
        "above = y[last : last + 1]  # the",
        "P-mass below the largest ratio counts as above it",
        "tests/laws/test_far.py::test_p_mass_beyond_the_horizon_is_that_above_the_largest_ratio",
    ),
    (
        "src/hockeystick/laws/law.py",
        "p_inf=law.p_inf + excess + UNDERFLOW",
        "p_inf=law.p_inf + UNDERFLOW",
        "what ordinary units cannot hold is lost",
        "tests/laws/test_far.py::test_units_change_what_is_held_and_not_the_side",
    ),
]
