"""One-line faults in the samples of random allocation.

An entry is (path, old text, new text, reason, tests); the old text occurs once in the file.
"""

ALLOCATIONS = "tests/monte_carlo/test_allocations.py"

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
        "monte_carlo/allocations/family.py",
        "more[0] = beyond[0] / (1.0 + beyond[0])",
        "more[0] = beyond[0]",
        "copies are joined more often than their weights say",
        f"{ALLOCATIONS}::test_copies_are_kept_with_their_weight",
    ),
    (
        "monte_carlo/allocations/family.py",
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
        "(self.order - 1.0) * losses - self.log_norm",
        "self.order * losses - self.log_norm",
        "weights have the density of one copy more",
        f"{ALLOCATIONS}::test_samples_average_to_the_profile",
    ),
    (
        "monte_carlo/allocations/family.py",
        "losses.size, False, -self.beta * rate)",
        "losses.size, False, self.beta * rate)",
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
]
