"""One-line faults in the samples of random allocation with correlated noise.

An entry is (path, old text, new text, reason, tests); the old text occurs once in the file.
"""

VISITS = "tests/monte_carlo/test_fresh_bins.py"

FAULTS = [
    (
        "monte_carlo/far/kernels.py",
        "share * (terms[e] / taken)",
        "share * (0.5 * terms[e] / taken)",
        "the mean field is half of the mean",
        f"{VISITS}::test_the_ratio_lies_between_its_bounds",
    ),
    (
        "pairs/visits.py",
        "Edges(np.full(bins, self.prob),",
        "Edges(np.full(bins, 1.0),",
        "a step is as likely as an epoch",
        f"{VISITS}::test_the_mean_field_is_the_ratio_where_columns_do_not_overlap",
    ),
    (
        "monte_carlo/far/kept_counts.py",
        "allowed = -np.log(1.0 - rng.random())",
        "allowed = 1.0 - np.log(1.0 - rng.random())",
        "counts are kept more often than leaves them their own weight",
        f"{VISITS}::test_counts_are_kept_with_their_weight",
    ),
    (
        "monte_carlo/far/linked_kernels.py",
        "if visits[owner, times[i] // bins] >= 0:",
        "if False:",
        "a copy may have two linked visits in an epoch",
        f"{VISITS}::test_linked_visits_are_kept_with_their_weight",
    ),
    (
        "monte_carlo/far/linked_kernels.py",
        "while visits[owner, times[i] // bins] == times[i]:",
        "while False:",
        "linked visits at one step are given to one copy",
        f"{VISITS}::test_linked_visits_are_kept_with_their_weight",
    ),
    (
        "monte_carlo/far/limits.py",
        "before = powers[-1] / (1.0 - decay**limit.block)",
        "before = powers[-1]",
        "only the epoch before exerts a field",
        f"{VISITS}::test_the_two_largest_fields_of_a_copy",
    ),
    (
        "moments/copies/fields.py",
        "for left in range(bins, 1, -1)), last])",
        "for left in range(bins + 1, 2, -1)), last])",
        "too many copies are left for the last step",
        f"{VISITS}::test_counts_are_kept_with_their_weight",
    ),
    (
        "moments/copies/fields.py",
        "start = np.zeros(copies + 1, dtype=np.int64)",
        "start = numbers",
        "nobody visits a second epoch",
        f"{VISITS}::test_counts_are_kept_with_their_weight",
    ),
    (
        "monte_carlo/far/linked.py",
        "min((leaves + bins - 2) // bins + 1, leaves, own.steps // bins)",
        "min(-(-leaves // bins), leaves, own.steps // bins)",
        "nodes never reach over the end of an epoch",
        f"{VISITS}::test_a_copy_has_at_most_so_many_visits_below_a_node",
    ),
    (
        "pairs/visit_kernels.py",
        "for v in range(following, min(at + window, steps)):",
        "for v in range(at + 1, min(at + window, steps)):",
        "a copy visits an epoch twice",
        f"{VISITS}::test_moments_are_those_of_all_runs",
    ),
    (
        "monte_carlo/far/proposals.py",
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
