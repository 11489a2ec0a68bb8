"""One-line faults in the samples of random allocation with correlated noise.

An entry is (path, old text, new text, reason, tests); the old text occurs once in the file.
"""

VISITS = "tests/monte_carlo/test_fresh_bins.py"

FAULTS = [
    (
        "monte_carlo/fresh_bins/kernels.py",
        "left[v] *= kept[chosen, v - chosen]",
        "left[v] *= 1.0",
        "visits take nothing off later ones",
        f"{VISITS}::test_the_ratio_lies_between_its_bounds",
    ),
    (
        "monte_carlo/fresh_bins/kernels.py",
        "fields[v] += chance * couplings[u, v - u]",
        "fields[v] += 0.5 * chance * couplings[u, v - u]",
        "the mean field is half of the mean",
        f"{VISITS}::test_the_ratio_lies_between_its_bounds",
    ),
    (
        "monte_carlo/fresh_bins/kernels.py",
        "total += top + np.log(mass / bins)",
        "total += top + np.log(mass)",
        "a step is as likely as an epoch",
        f"{VISITS}::test_the_mean_field_is_the_ratio_where_columns_do_not_overlap",
    ),
    (
        "monte_carlo/fresh_bins/kernels.py",
        "if excess > allowed:",
        "if excess > allowed + 1.0:",
        "counts are kept more often than leaves them their own weight",
        f"{VISITS}::test_counts_are_kept_with_their_weight",
    ),
    (
        "monte_carlo/fresh_bins/kernels.py",
        "if visits[owner, times[i] // bins] >= 0:",
        "if False:",
        "a copy may have two linked visits in an epoch",
        f"{VISITS}::test_linked_visits_are_kept_with_their_weight",
    ),
    (
        "monte_carlo/fresh_bins/kernels.py",
        "while visits[owner, times[i] // bins] == times[i]:",
        "while False:",
        "linked visits at one step are given to one copy",
        f"{VISITS}::test_linked_visits_are_kept_with_their_weight",
    ),
    (
        "monte_carlo/fresh_bins/kernels.py",
        "for u in range(max(first, v - window + 1), min(first + bins, v)):",
        "for u in range(max(first, v - window + 1), min(first + bins - 1, v)):",
        "visits at the last step of an epoch exert no field",
        f"{VISITS}::test_the_two_largest_fields_of_a_copy",
    ),
    (
        "monte_carlo/fresh_bins/epochs.py",
        "before = decay ** (places + 1.0) / (1.0 - decay**bins)",
        "before = decay ** (places + 1.0)",
        "only the epoch before exerts a field",
        f"{VISITS}::test_the_two_largest_fields_of_a_copy",
    ),
    (
        "monte_carlo/fresh_bins/epochs.py",
        "for left in range(bins, 1, -1)), last])",
        "for left in range(bins + 1, 2, -1)), last])",
        "too many copies are left for the last step",
        f"{VISITS}::test_counts_are_kept_with_their_weight",
    ),
    (
        "monte_carlo/fresh_bins/epochs.py",
        "start = np.zeros(copies + 1, dtype=np.int64)",
        "start = numbers",
        "nobody visits a second epoch",
        f"{VISITS}::test_counts_are_kept_with_their_weight",
    ),
    (
        "monte_carlo/fresh_bins/epochs.py",
        "return tuple(min((size + bins - 2) // bins + 1, size, epochs) for size in leaves)",
        "return tuple(min(-(-size // bins), size, epochs) for size in leaves)",
        "nodes never reach over the end of an epoch",
        f"{VISITS}::test_a_copy_has_at_most_so_many_visits_below_a_node",
    ),
    (
        "monte_carlo/fresh_bins/family.py",
        "log_power_bound(order, log_norm, epsilon) - log(TILTED_SHARE)",
        "log_power_bound(order, log_norm, epsilon) - epsilon - log(TILTED_SHARE)",
        "M is smaller than samples can be",
        f"{VISITS}::test_each_side_stays_on_its_side_of_the_truth",
    ),
    (
        "monte_carlo/fresh_bins/family.py",
        "other_epoch = steps[:-lag] // bins != steps[lag:] // bins",
        "other_epoch = steps[:-lag] // bins >= 0",
        "a copy visits an epoch twice",
        f"{VISITS}::test_moments_are_those_of_all_runs",
    ),
    (
        "monte_carlo/fresh_bins/family.py",
        "return 2 <= self.order <= MAX_ORDER and self.decay in DECAYS and super().proved",
        "return super().proved",
        "any order and decay may be claimed",
        f"{VISITS}::test_only_what_is_listed_is_proved",
    ),
    (
        "monte_carlo/estimation.py",
        "or self._seconds(replace(add, goal=reached)) > COSTLY_ALONE * left",
        "or left < 0.0",
        "a costly bound that spares nothing never counts, however little samples show",
        f"{VISITS}::test_a_costly_bound_takes_the_place_of_samples_that_would_not_show_as_much",
    ),
]
