"""One-line faults in random allocation, its samples and its bounds with correlated noise; and in samples of rare cuts.

An entry is (path, old text, new text, reason, tests); the old text occurs once in the file.
"""

ALLOCATIONS = "tests/monte_carlo/test_allocations.py"
FRESH = "tests/accountants/test_fresh_bins.py"
CUTS = "tests/monte_carlo/test_rare_cuts.py"

FAULTS = [
    (
        "monte_carlo/allocations/kernels.py",
        "masses[count] = without * masses[count] + with_it * masses[count - 1]",
        "masses[count] = masses[count] + with_it * masses[count - 1]",
        "coins that show 0 cost nothing",
        f"{ALLOCATIONS}::test_the_ratio_is_the_mean_over_all_sets_of_visits",
    ),
    (
        "monte_carlo/allocations/kernels.py",
        "seen[steps[place]] = own",
        "seen[steps[place]] = 0",
        "a copy visits a step twice",
        f"{ALLOCATIONS}::test_copies_are_kept_with_their_weight",
    ),
    (
        "monte_carlo/allocations/kernels.py",
        "while _holds(owners, first, found, owner):",
        "while False and _holds(owners, first, found, owner):",
        "a copy is joined to itself",
        f"{ALLOCATIONS}::test_copies_are_kept_with_their_weight",
    ),
    (
        "monte_carlo/allocations/kernels.py",
        "prob /= COARSE",
        "prob /= 1.0",
        "small chances are never met",
        f"{ALLOCATIONS}::test_small_chances_are_met",
    ),
    (
        "moments/copies/allocations.py",
        "more[0] = beyond[0] / (1.0 + beyond[0])",
        "more[0] = beyond[0]",
        "copies are joined more often than their weights say",
        f"{ALLOCATIONS}::test_copies_are_kept_with_their_weight",
    ),
    (
        "moments/copies/allocations.py",
        "* edge**taken * exp(pull * (vertices - alone))",
        "* edge**taken",
        "graphs lack edges between vertices that are joined already",
        f"{ALLOCATIONS}::test_weights_of_joined_copies_add_up_to_what_copies_have_in_common",
    ),
    (
        "monte_carlo/allocations/family.py",
        "np.cumprod(ratios, out=kept[1:])",
        "assert ratios.size",
        "copies are never given up",
        f"{ALLOCATIONS}::test_copies_are_given_up_as_often_as_their_weights_say",
    ),
    (
        "monte_carlo/allocations/family.py",
        "self.pair.bins * self.pair.epochs * copies.log_zeta",
        "self.pair.bins * copies.log_zeta",
        "Z is that of one epoch",
        f"{ALLOCATIONS}::test_epochs_are_independent",
    ),
    (
        "monte_carlo/allocations/family.py",
        "self.order * losses - self.log_norm",
        "(self.order + 1.0) * losses - self.log_norm",
        "weights have the density of one copy more",
        f"{ALLOCATIONS}::test_samples_average_to_the_profile",
    ),
    (
        "monte_carlo/allocations/family.py",
        "-(beta or 0.0) * rate, drawn)",
        "(beta or 0.0) * rate, drawn)",
        "outputs of the add direction are moved the wrong way",
        f"{ALLOCATIONS}::test_samples_average_to_the_profile",
    ),
    (
        "accountants/monte_carlo.py",
        "ADD_FROM = (direct.ACCOUNTANT, ",
        "ADD_FROM = (",
        "the add direction of allocations is sampled where blocks spare it",
        f"{ALLOCATIONS}::test_a_certificate_that_rests_on_copies_can_be_verified",
    ),
    # Random allocation with correlated noise.
    (
        "accountants/fresh_bins.py",
        "columns * (1.0 - error - rounding_of(matrix))",
        "columns * (1.0 + error + rounding_of(matrix))",
        "inner products of an epoch are raised by what they may be off",
        f"{FRESH}::test_epochs_by_themselves_share_no_more_than_they_do",
    ),
    (
        "accountants/fresh_bins.py",
        "(np.minimum(one, other), many + more)",
        "(np.maximum(one, other), many + more)",
        "epochs that differ are raised to what either has",
        f"{FRESH}::test_epochs_that_are_more_than_laws_are_lowered_to_what_they_share",
    ),
    (
        "accountants/fresh_epochs.py",
        "[long_enough(_stretched(shape, pair.bins), band, rounding) for shape in shapes]",
        "[_stretched(shape, pair.bins) for shape in shapes]",
        "chains in longer epochs are not proved to reveal more",
        f"{FRESH}::test_the_middle_of_a_chain_is_repeated_and_then_proved",
    ),
    (
        "accountants/fresh_epochs.py",
        "return 1.0 / np.arange(bins, 0.0, -1.0)",
        "return np.full(bins, 1.0 / bins)",
        "an example may take no part in an epoch",
        f"{FRESH}::test_without_correlation_both_sides_are_those_of_independent_noise",
    ),
    (
        "windows/chains.py",
        "coins[step] * ratios[step], 1.0 - coins[step], grid)",
        "coins[step] * ratios[step], 1.0 - coins[0], grid)",
        "steps wait with the chance of the first",
        f"{FRESH}::test_without_correlation_both_sides_are_those_of_independent_noise",
    ),
    (
        "pairs/fresh_bins.py",
        "return float(np.sqrt(largest.sum()))",
        "return float(np.sqrt(np.trace(largest)))",
        "columns of different epochs are taken to be orthogonal",
        "tests/pairs/test_fresh_bins.py::test_known_batches_reveal_no_more_than_the_longest_sum_of_columns",
    ),
    (
        "pairs/users.py",
        "if not isinstance(single, AveragedSteps) or sampler.participations > 1 or examples > MOST_EXAMPLES:",
        "if sampler.participations > 1 or examples > MOST_EXAMPLES:",
        "users with correlated noise have the laws of independent noise",
        "tests/pairs/test_fresh_bins.py::test_a_user_is_a_chain_of_single_examples",
    ),
    # Truncated batches that are hardly ever cut.
    (
        "monte_carlo/renewal/truncated.py",
        "stand_for_others(rest, log(self.added) - log(OTHER_SHARE),",
        "stand_for_others(rest, log(self.added),",
        "a sixty-fourth of what cuts change is added",
        f"{CUTS}::test_the_samples_that_stand_for_cuts_count_at_every_epsilon",
    ),
    (
        "monte_carlo/weighing.py",
        "log_weights -= log1p(-OTHER_SHARE)",
        "log_weights -= 0.0",
        "the samples without a cap stand for all",
        f"{CUTS}::test_the_mean_is_that_without_a_cap_and_what_cuts_add",
    ),
    (
        "monte_carlo/renewal/truncated.py",
        "{Direction.REMOVE: 2.0 * chance, Direction.ADD: chance + expected}",
        "{Direction.REMOVE: chance, Direction.ADD: chance}",
        "cuts cost half in remove, and nothing but their chance in add",
        f"{CUTS}::test_the_mean_is_that_without_a_cap_and_what_cuts_add",
    ),
    (
        "monte_carlo/renewal/truncated.py",
        "rest = 1.001 * self.added / OTHER_SHARE",
        "rest = 0.0",
        "samples that stand for cuts are larger than M",
        f"{CUTS}::test_the_mean_is_that_without_a_cap_and_what_cuts_add",
    ),
    (
        "monte_carlo/renewal/truncated.py",
        "return Side.UPPER in self.inner.sides and self.inner.proved and isfinite(self.added)",
        "return self.inner.proved and isfinite(self.added)",
        "proposals for lower bounds are taken for upper ones",
        f"{CUTS}::test_nothing_else_is_built_where_columns_reach_beyond_the_separation",
    ),
    (
        "monte_carlo/renewal/truncated.py",
        "return _why_not_naive(self.pair) is None",
        "return True",
        "the naive recursion is taken beyond the columns that it is for",
        f"{CUTS}::test_nothing_else_is_built_where_columns_reach_beyond_the_separation",
    ),
    (
        "pairs/fresh_bins.py",
        "if bins == 1:",
        "if bins == 0:",
        "one bin has a sensitivity that nothing attains",
        "tests/pairs/test_fresh_bins.py::test_a_single_bin_is_a_gaussian_however_long_the_run",
    ),
]
