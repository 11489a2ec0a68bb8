"""One-line faults in batches of exactly one size.

An entry is (path, old text, new text, reason, tests); the old text occurs once in the file.
"""

BOUNDS = "tests/pairs/test_fixed_size.py"
COVERED = f"{BOUNDS}::test_upper_bounds_cover_random_datasets_that_react"
ATTAINED = f"{BOUNDS}::test_lower_bounds_are_attained_by_a_dataset"
ONE_STEP = f"{BOUNDS}::test_one_step_of_a_replaced_example_is_known_exactly"
LAWS = "laws/without_replacement.py"
ACCOUNTANT = "accountants/without_replacement.py"
CONFORMANCE = "tests/conformance/test_samplers.py"
TRIPLES, BACKWARDS = "laws/triples.py", "laws/backward_induction.py"
REFLECTIONS = "laws/reflections.py"
GAMES = "tests/laws/test_backward_induction.py"
NO_TRIPLE = f"{GAMES}::test_no_triple_has_more_than_the_opposite_one_and_its_charges"
COVERS = f"{GAMES}::test_covers_are_worse_than_the_triangles_of_their_cells"
UPPER_ENDS = f"{GAMES}::test_the_lemma_is_read_at_the_upper_ends_of_intervals"
BINS = f"{GAMES}::test_the_base_of_the_lemma_is_the_opposite_triple_with_bins_for_places"
TAIL = "tests/laws/test_reflections.py::test_what_is_allowed_is_a_tail"
MEANS = "tests/laws/test_reflections.py::test_means_over_bins_are_bounded_by_chords"
READ = f"{GAMES}::test_profiles_are_read_between_places_to_the_asked_side"

FAULTS = [
    (
        LAWS,
        "np.log1p(excess) * (1.0 - SAFE)",
        "epsilons",
        "a step whose draws are known is read at the ratio of the Gaussians and not at its own",
        COVERED,
    ),
    (
        LAWS,
        "above_one = exponent + log(-expm1(-exponent))",
        "above_one = exponent + log(exponent / (1.0 + exponent))",
        "moments are taken to be smaller than they are",
        f"{BOUNDS}::test_moments_that_are_hardly_above_one_keep_their_digits",
    ),
    (
        LAWS,
        "share * other + (1.0 - share) * own",
        "(1.0 - share) * other + share * own",
        "the shares of advanced joint convexity change places",
        f"{BOUNDS}::test_an_example_in_the_place_of_its_opposite_is_covered_at_low_rates",
    ),
    (
        LAWS,
        "share = (1.0 - rate) * above / (1.0 + above)",
        "share = 0.0 * above",
        "a step is charged for what replaces the example alone, not for whose place it takes",
        COVERED,
    ),
    (
        "src/hockeystick/laws/dots.py",
        "deltas((1.0 - lowered) / lowered)",
        "deltas(2.0 * (1.0 - lowered) / lowered)",
        "the add direction is read too far out",
        COVERED,
    ),
    (
        LAWS,
        "above = excess / rate",
        "above = excess / rate**0.5",
        "the amplification is that of another rate",
        ONE_STEP,
    ),
    (
        LAWS,
        "0.5 * integrals[usable] / room[usable]",
        "0.25 * integrals[usable] / room[usable]",
        "the majorant of a profile is half as high, and touches it no more",
        BOUNDS,
    ),
    (
        LAWS,
        "np.cumsum(areas[::-1])[::-1]",
        "areas",
        "integrals reach one place far only",
        BOUNDS,
    ),
    (
        LAWS,
        "np.append(np.cumsum(areas[::-1])[::-1], 0.0) + _beyond(logs, end)",
        "np.append(np.cumsum(areas[::-1])[::-1], 0.0)",
        "what is beyond the last place is left out",
        f"{BOUNDS}::test_integrals_that_end_early_say_no_less",
    ),
    (
        LAWS,
        "rest + rate * cells(shift), rest + rate * cells(2.0 * shift)",
        "rest + rate * cells(0.5 * shift), rest + rate * cells(2.0 * shift)",
        "a lower bound is of a dataset that there is not",
        ATTAINED,
    ),
    (
        ACCOUNTANT,
        "ghost = {Direction.REMOVE: Distances(one, two), Direction.ADD: Distances(one, one)}",
        "ghost = {Direction.REMOVE: Distances(one, one), Direction.ADD: Distances(one, one)}",
        "the example that is zeroed out displaces nobody",
        COVERED,
    ),
    (
        ACCOUNTANT,
        "replaced = dict.fromkeys(Direction, Distances(two, two))",
        "replaced = dict.fromkeys(Direction, Distances(two, one))",
        "a replaced example displaces nobody",
        COVERED,
    ),
    (
        ACCOUNTANT,
        "power(step, pair.most_cohorts, settings.resolution",
        "power(step, pair.whole_cohorts, settings.resolution",
        "a last, shorter cohort is not charged for",
        BOUNDS,
    ),
    (
        ACCOUNTANT,
        "worst = _poisson(pair, 2.0, pair.steps)",
        "worst = _poisson(pair, 1.0, pair.steps)",
        "the worst dataset is one in which nobody is displaced",
        COVERED,
    ),
    (
        ACCOUNTANT,
        "_poisson(pair, 2.0 if pair.replaced else 1.0, pair.whole_cohorts)",
        "_poisson(pair, 2.0, pair.whole_cohorts)",
        "an example that is zeroed out is bounded from below as if it were replaced",
        ATTAINED,
    ),
    (
        "pairs/fixed_size.py",
        "return self.noise_multiplier / sqrt(self.cohort_steps)",
        "return self.noise_multiplier",
        "the steps of a cohort count as one",
        BOUNDS,
    ),
    (
        "pairs/fixed_size.py",
        "return (2.0 if self.replaced else 1.0) * sqrt(self.steps)",
        "return sqrt(self.steps)",
        "known batches of a replaced example are charged as if it were zeroed out",
        f"{BOUNDS}::test_known_batches_are_a_gaussian_of_twice_the_sensitivity",
    ),
    (
        "pairs/registry.py",
        "single, replaced = other, False  #",
        "single, replaced, examples = other, False, 1  #",
        "all examples of a user are replaced for the price of one",
        f"{BOUNDS}::test_users_that_are_replaced_are_covered_and_cost_a_link_for_each_example",
    ),
    (
        TRIPLES,
        "for _, high in (cell.at_other, cell.at_e)",
        "for high, _ in (cell.at_other, cell.at_e)",
        "a cell is covered by its smallest distances",
        COVERS,
    ),
    (
        TRIPLES,
        "squared * sin(least_e) * sin(least_other) * cosine",
        "squared * sin(cell.at_e[1]) * sin(cell.at_other[1]) * cosine",
        "a cell is covered at more than its least inner product",
        COVERS,
    ),
    (
        BACKWARDS,
        "left[r - k] + right[min(r + k, last)]",
        "right[min(r + k, last)]",
        "what triples exceed the opposite one by on the left is not charged",
        NO_TRIPLE,
    ),
    (
        BACKWARDS,
        "max([SAME, *(-negative for negative, _, _, _ in waiting)])",
        "SAME",
        "cells that are left when all are looked at are left out",
        NO_TRIPLE,
    ),
    (
        BACKWARDS,
        "x, beyond = np.exp(logs[: places + 1]), np.expm1(logs[places + 1 :])",
        "x, beyond = np.exp(logs[: places + 1]), np.exp(logs[places + 1 :])",
        "beyond the threshold the adversary is said to have all",
        f"{GAMES}::test_one_step_is_exact_but_for_what_is_left_of_cells",
    ),
    (
        BACKWARDS,
        "at = ceil(place * (1.0 + ROUNDING))",
        "at = floor(place * (1.0 + ROUNDING))",
        "a lower bound is read at a smaller epsilon",
        READ,
    ),
    (
        BACKWARDS,
        "found = float(deltas[at]) + share *",
        "found = float(deltas[at]) + 1.0 *",
        "an upper bound is read at a larger epsilon",
        READ,
    ),
    (
        BACKWARDS,
        "charged @ (falling[:reach] - falling[1 : reach + 1])",
        "0.0 * falling[:reach]",
        "what triples add at short intervals is not charged",
        f"{GAMES}::test_what_triples_add_is_charged_at_all_ratios",
    ),
    (
        BACKWARDS,
        "added[::-1] += far * falling[beyond]",
        "",
        "what triples add however far curvature reaches is not charged",
        f"{GAMES}::test_what_triples_add_is_charged_at_all_ratios",
    ),
    (
        BACKWARDS,
        "limits[ranks + np.maximum(ranks, raised.reach)]",
        "limits[2 * np.maximum(ranks, raised.reach)]",
        "long intervals are taken to reach farther up than they do",
        UPPER_ENDS,
    ),
    (
        BACKWARDS,
        "limits[np.add.outer(ranks[: raised.reach], ranks[: raised.reach])]",
        "limits[np.add.outer(ranks[: raised.reach], 2 * ranks[: raised.reach])]",
        "short intervals are taken to reach farther up than they do",
        UPPER_ENDS,
    ),
    (
        BACKWARDS,
        "spread_opposite(rate, run.distance, spacing, -places, 2 * places) if proved else nearby",
        "nearby",
        "the lemma is used with curvature at places, where it is about curvature on bins",
        BINS,
    ),
    (
        BACKWARDS,
        "if proved:\n        ranks",
        "if True:\n        ranks",
        "the lemma is used with a base that is not raised for it",
        f"{GAMES}::test_the_lemma_is_not_used_with_a_base_that_is_not_raised_for_it",
    ),
    (
        REFLECTIONS,
        "np.minimum(np.expm1(highs), share / (1.0 - share)) * (1.0 - SAFE)",
        "np.expm1(highs) * (1.0 - SAFE)",
        "outputs of which an example is nearly all are taken to be reflected",
        TAIL,
    ),
    (
        REFLECTIONS,
        "np.minimum(np.expm1(highs), share / (1.0 - share)) * (1.0 - SAFE)",
        "share / (1.0 - share) + 0.0 * highs",
        "outputs beyond the interval are taken to be in it",
        TAIL,
    ),
    (
        REFLECTIONS,
        "(logs - 1.5 * squared) / sqrt(squared)",
        "(logs - 0.5 * squared) / sqrt(squared)",
        "the tail is one of the first moment, not of the second",
        TAIL,
    ),
    (
        REFLECTIONS,
        "np.where(logs > 0.0, (logs - 1.5 * squared) / sqrt(squared), -inf)",
        "(logs - 1.5 * squared) / sqrt(squared)",
        "where it is not a tail, the largest distance is taken for the worst",
        TAIL,
    ),
    (
        REFLECTIONS,
        "2.5 * squared * tails",
        "0.5 * squared * tails",
        "only the first half of the way to the opposite triple is charged",
        TAIL,
    ),
    (
        REFLECTIONS,
        "0.25 * (3.0 - sqrt(1.0 + 4.0 * least))",
        "0.25 * (4.0 - sqrt(1.0 + 4.0 * least))",
        "an example may be more of an output than the lemma allows",
        TAIL,
    ),
    (
        REFLECTIONS,
        "values[-first] += float(weights[below] @ -np.expm1(ends[below]))",
        "pass",
        "the bin at 1 is charged for puts in its lower half",
        MEANS,
    ),
    (
        REFLECTIONS,
        "np.append(begins, 0.0) + np.append(0.0, exp(-half) * begins)",
        "np.append(begins, 0.0) + np.append(0.0, begins)",
        "means of bins are of a law that moves their places",
        MEANS,
    ),
    (
        "accountants/backward_induction.py",
        "2.0 / pair.noise_multiplier",
        "1.0 / pair.noise_multiplier",
        "a replaced example displaces nobody",
        f"{BOUNDS}::test_runs_backwards_cover_random_datasets_that_react",
    ),
    (
        "accountants/backward_induction.py",
        "pair.cohort_steps > 1 or",
        "",
        "cohorts are taken for fresh batches",
        f"{BOUNDS}::test_runs_backwards_say_what_they_do_not_bound",
    ),
    (
        "samplers/fixed_size.py",
        "if step % self.cohort_steps == 0:\n                cohort",
        "if step == 0:\n                cohort",
        "one cohort is used for the whole run",
        CONFORMANCE,
    ),
    (
        "samplers/fixed_size.py",
        'expect(batch.size == self.sampler.batch_size, "batch_size")',
        'expect(batch.size <= self.sampler.batch_size, "batch_size")',
        "shorter batches are recorded as kept promises",
        "tests/training/test_run.py",
    ),
    (
        "audit/chances.py",
        "places = self.sampler.batch_size - before(present)",
        "places = np.full(self.size, self.sampler.batch_size)",
        "the audit forgets that a batch is filled",
        "tests/audit/test_sampler_audit.py",
    ),
    (
        "interop/dp_events.py",
        'noise = 2.0 * read_number(event.event, "noise_multiplier")',
        'noise = 1.0 * read_number(event.event, "noise_multiplier")',
        "noise in units of a replacement is taken for noise in clipping norms",
        "tests/interop/test_dp_events.py",
    ),
]
