"""One-line faults in the floors of other libraries' noise, and in what refuses and says them.

An entry is (path, old text, new text, reason, tests); the old text occurs once in the file.
"""

FLOORS = "tests/noise/test_generators.py"
CLAIMS = "tests/certification/test_generators.py"
TORCH = "tests/training/test_torch_parts.py"
JAX = "tests/interop/test_configurations.py"

FAULTS = [
    # Floors that are too high refuse what is true.
    (
        "noise/generators.py",
        "wide, narrow = 1.0 + self.rounding, 1.0 - self.rounding",
        "wide, narrow = 1.0 - self.rounding, 1.0 + self.rounding",
        "roundings count for leaving the interval",
        f"{FLOORS}::test_the_chance_of_leaving_is_that_of_all_numbers_of_jax_or_a_little_less",
    ),
    (
        "noise/generators.py",
        "return max(ceil((room - nearest) / cell), 0) * 2.0**-bits",
        "return max(ceil((room - nearest) / cell) + 1, 0) * 2.0**-bits",
        "one number of JAX too many is beyond the end",
        f"{FLOORS}::test_the_chance_of_leaving_is_that_of_all_numbers_of_jax_or_a_little_less",
    ),
    (
        "noise/generators.py",
        "np.maximum(arcs - angle, 0.0)",
        "np.maximum(arcs + angle, 0.0)",
        "arcs of the circle hold more angles than there are",
        f"{FLOORS}::test_tails_fall_and_are_at_most_what_a_normal_law_of_that_grid_has",
    ),
    (
        "noise/generators.py",
        "return lambda t: chance(t / 2.0) ** 4",
        "return lambda t: chance(t / 2.0) ** 2",
        "the sum of four numbers is large when two of them are",
        f"{FLOORS}::test_secure_mode_of_opacus_ends_twice_as_far_out",
    ),
    (
        "noise/generators.py",
        "shift = float(matrix.diagonal_entries.min())",
        "shift = float(matrix.diagonal_entries.max())",
        "every step moves by the largest entry of the diagonal",
        f"{FLOORS}::test_the_smallest_entry_of_the_diagonal_is_what_moves",
    ),
    (
        "noise/generators.py",
        "if matrix.rows != matrix.steps:",
        "if matrix.rows < matrix.steps:",
        "trees release rows that their runs do not",
        f"{FLOORS}::test_trees_have_no_floor",
    ),
    (
        "noise/generators.py",
        "return sampler.mean_participations / most * -expm1(most * log1p(-chance)) * SAFE",
        "return -expm1(most * log1p(-chance)) * SAFE",
        "every example is in as many batches as one can be",
        f"{FLOORS}::test_floors_are_at_most_the_truth_of_drawn_participations",
    ),
    (
        "samplers/truncation.py",
        "return float(whole + cut) * (1.0 - ROUNDING)",
        "return rate",
        "floors forget that batches are cut",
        f"{FLOORS}::test_floors_are_at_most_the_truth_of_drawn_participations",
    ),
    (
        "samplers/multi_attribution.py",
        "return max(self.steps - waits, 0) * self.rate",
        "return self.steps * self.rate",
        "after a warm-up nobody waits",
        f"{FLOORS}::test_floors_are_at_most_the_truth_of_drawn_participations",
    ),
    # What is refused and said.
    (
        "certification/description.py",
        "if delta < lowest:",
        "if delta < 0.0:",
        "claims that the ends refute are issued",
        CLAIMS,
    ),
    (
        "certification/description.py",
        "elif delta < of_known:",
        "elif delta < lowest:",
        "known batches have the floor of secret ones",
        CLAIMS,
    ),
    (
        "certification/description.py",
        '"numbers": _at_least(certificate.numbers, lowest),',
        '"numbers": certificate.numbers,',
        "an attacker is said to gain less than the ends show",
        CLAIMS,
    ),
    (
        "certification/verification.py",
        "return again if certificate.generator is None else drawn_by(again, certificate.generator.name)",
        "return again.model_copy(update={'generator': certificate.generator, 'format': certificate.format})",
        "verify does not compute the floor again",
        CLAIMS,
    ),
    (
        "certificate/certificate.py",
        "if self.format == FORMAT_2 and self.generator is not None:",
        "if False:",
        "a generator may hide in a certificate of format 2",
        CLAIMS,
    ),
    (
        "calibration/search.py",
        "    if least > found.sigma:",
        "    if False:",
        "calibration forgets the floor",
        CLAIMS,
    ),
    (
        "composition/claims.py",
        "if one.generator is not None:",
        "if False:",
        "runs with other noise compose as if it were Gaussian",
        CLAIMS,
    ),
    (
        "training/record.py",
        "if self.certificate is not None and self.certificate.generator is not None:",
        "if False:",
        "a record of hockeystick's noise takes a certificate of other noise",
        CLAIMS,
    ),
    (
        "interop/jax_privacy.py",
        "if generator not in WIDE:",
        "if False:",
        "noise of 128 values is converted as Gaussian",
        JAX,
    ),
    (
        "training/torch/accountant.py",
        "self.generators |= generators_of(optimizer)",
        "pass",
        "the accountant for Opacus does not look at the noise",
        TORCH,
    ),
    (
        "training/torch/accountant.py",
        "if type(optimizer) not in (DPOptimizer, DPOptimizerFastGradientClipping):",
        "if not isinstance(optimizer, DPOptimizer):",
        "clipping per layer is taken for clipping of all layers together",
        TORCH,
    ),
]
