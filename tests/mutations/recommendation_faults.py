"""One-line faults in the predicted error of recommendations, and in what is called certified.

An entry is (path, old text, new text, reason, tests); the old text occurs once in the file.
"""

WORKLOADS = "tests/recommendation/test_workload.py"
RECOMMENDED = "tests/recommendation/test_recommend.py"
ESTIMATED = "tests/recommendation/test_estimate.py"

FAULTS = [
    (
        "recommendation/workload.py",
        "moves = rates * toeplitz_solve([1.0, -self.momentum], gradients)",
        "moves = toeplitz_solve([1.0, -self.momentum], rates * gradients)",
        "the learning rate of an old step is applied to its part of the velocity",
        WORKLOADS,
    ),
    (
        "recommendation/workload.py",
        "1.0 - self.weight_decay * rates[:, 0]",
        "1.0 - self.weight_decay + 0.0 * rates[:, 0]",
        "weight decay does not follow the schedule",
        WORKLOADS,
    ),
    (
        "recommendation/workload.py",
        "errors += np.einsum(",
        "errors = np.einsum(",
        "only the last block of columns counts in the error",
        WORKLOADS,
    ),
    (
        "recommendation/workload.py",
        "STEP_FACTOR ** ((done >= 0.5) + (done >= 0.75))",
        "STEP_FACTOR ** ((done > 0.5) + (done > 0.75))",
        "a step schedule falls one step late",
        WORKLOADS,
    ),
    (
        "recommendation/search.py",
        "return self.unit_error * self.noise_multiplier / self.expected_batch",
        "return self.unit_error * self.noise_multiplier",
        "errors of different batches are compared as if they were the same",
        f"{RECOMMENDED}::test_the_error_is_per_example_of_the_batch",
    ),
    (
        "recommendation/workload.py",
        'errors.max() if self.measure == "max" else errors.mean()',
        "errors.mean()",
        "the largest error is reported as the mean",
        f"{RECOMMENDED}::test_the_error_is_per_example_of_the_batch",
    ),
    (
        "recommendation/search.py",
        "return self.estimate.noise_multiplier if self.certificate is None else self.certificate.mechanism.sigma",
        "return self.estimate.noise_multiplier",
        "a calibrated choice keeps its estimated noise",
        f"{RECOMMENDED}::test_what_is_certified_is_what_certify_says",
    ),
    (
        "recommendation/calibrations.py",
        "[content, self.asked.epsilon, self.asked.delta, failure]",
        "[content, self.asked.delta, failure]",
        "calibrations for another epsilon are taken from the file of results",
        f"{RECOMMENDED}::test_what_is_certified_is_what_certify_says",
    ),
    (
        "recommendation/candidates.py",
        "<= limits.memory",
        "<= 2 * limits.memory",
        "rows of noise that do not fit are recommended",
        f"{RECOMMENDED}::test_rows_of_noise_fit_in_the_memory",
    ),
    (
        "recommendation/estimate.py",
        "- np.exp(-peak)",
        "- 0.0 * np.exp(-peak)",
        "bins that never collide count as if they did",
        f"{ESTIMATED}::test_bins_that_never_collide_are_random_allocation",
    ),
    (
        "recommendation/recommend.py",
        "failure_probability=total / sum(1 for _ in every(asked.plan, asked.limits))",
        "failure_probability=total",
        "each candidate is verified with the failure probability of all of them",
        f"{RECOMMENDED}::test_all_candidates_together_fail_with_what_was_allowed",
    ),
    (
        "recommendation/calibrations.py",
        "same = certificate.mechanism == mechanism",
        "same = True",
        "a kept certificate of another mechanism is taken for that of the candidate",
        f"{RECOMMENDED}::test_kept_certificates_are_of_the_candidate_and_its_target",
    ),
    (
        "recommendation/calibrations.py",
        "                if whole:",
        "                if True:",
        "what a deadline cut off is kept as if it were calibrated to the end",
        "tests/recommendation/test_budget.py::test_what_a_deadline_cut_is_not_kept_for_later",
    ),
    (
        "recommendation/calibrations.py",
        "Calibration(mechanism, self.asked.epsilon, self.delta, self.monte_carlo",
        "Calibration(mechanism, self.asked.epsilon, self.asked.delta, self.monte_carlo",
        "a first plan without samples takes the part of delta that the samples of others may need",
        "tests/recommendation/test_budget.py::test_with_samples_too_the_first_certified_plan_takes_none",
    ),
    (
        "recommendation/moments.py",
        "(z * (z + 1.0))",
        "(z * z)",
        "the transform of another function of the privacy loss",
        "tests/recommendation/test_moments.py::test_one_step_that_everybody_is_in_is_a_gaussian",
    ),
    (
        "recommendation/moments.py",
        "product + factorials - count * log(bins)",
        "product + factorials",
        "moments of a sum over bins in place of a mean",
        "tests/recommendation/test_moments.py::test_moments_of_an_allocation",
    ),
    (
        "recommendation/sketches.py",
        "rest[0] += 2.0",
        "rest[0] += 1.9",
        "a step that does not converge to the reciprocal",
        "tests/recommendation/test_sketches.py::test_a_sketch_is_the_matrix",
    ),
    (
        "recommendation/workload.py",
        "rates[step] * left + workload.momentum * row",
        "rates[step] * left + row",
        "rows of the optimiser under a schedule leave out how momentum fades",
        f"{WORKLOADS}::test_errors_of_spread_steps_stand_for_all",
    ),
]
