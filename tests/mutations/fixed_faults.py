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
CORNERS, CHARGES, BINS = "laws/corners.py", "laws/charges.py", "laws/bins.py"
GAMES = "tests/laws/test_backward_induction.py"
NO_TRIPLE = f"{GAMES}::test_no_triple_has_more_than_the_opposite_one_and_its_charges"
CORNER_TESTS = "tests/laws/test_corners.py"
PATHS = f"{CORNER_TESTS}::test_paths_bend_by_no_more_than_is_allowed"
SHAPES = f"{CORNER_TESTS}::test_boxes_cover_triples_of_all_shapes"
MEANS = f"{CORNER_TESTS}::test_means_over_bins_are_bounded_by_chords"
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
        "low, high = min(other[i], other[i + 1]), max(other[i], other[i + 1])",
        "low, high = other[i], other[i + 1]",
        "ratios of boxes are taken to fall where e' is ahead of v, also where it is behind",
        SHAPES,
    ),
    (
        CORNERS,
        "return 2.0 * squared * bent",
        "return squared * bent",
        "paths of points are taken to be half as curved",
        PATHS,
    ),
    (
        CORNERS,
        "factor * _most_sine(ends[0]) * mixed",
        "0.0 * mixed",
        "a path is taken to bend for its own distance alone",
        PATHS,
    ),
    (
        CORNERS,
        "exp(0.5 * max(order - 1.0, 0.0) * order * squared)",
        "exp(0.0 * squared)",
        "moments of an example are those of one at no distance",
        f"{CORNER_TESTS}::test_moments_are_bounded",
    ),
    (
        CORNERS,
        "self.at_e[0] <= self.at_other[1]",
        "self.at_e[1] <= self.at_other[0]",
        "cells that are partly nearer to e than to e' are left out",
        f"{CORNER_TESTS}::test_cells_are_divided_into_those_that_matter",
    ),
    (
        CHARGES,
        "left[r - k] + right[min(r + k, last)]",
        "right[min(r + k, last)]",
        "what triples exceed the opposite one by on the left is not charged",
        NO_TRIPLE,
    ),
    (
        CHARGES,
        "return settled + left",
        "return settled",
        "cells that are left when all are looked at are left out",
        f"{GAMES}::test_cells_that_are_left_when_all_are_looked_at_are_charged",
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
        "charged @ steps[:reach]",
        "0.0 * steps[:reach]",
        "what triples add at short intervals is not charged",
        f"{GAMES}::test_what_triples_add_is_charged_at_all_ratios",
    ),
    (
        BACKWARDS,
        "others = far * falling",
        "others = 0.0 * falling",
        "what triples add however far curvature reaches is not charged",
        f"{GAMES}::test_what_triples_add_is_charged_at_all_ratios",
    ),
    (
        CHARGES,
        "left + right[min(reach, right.size - 1)] + allowance, out=beyond",
        "0.0 * left, out=beyond",
        "intervals that end nearby are charged nothing, however far they reach on the other side",
        NO_TRIPLE,
    ),
    (
        BINS,
        "found[-first] += float(weights[below] @ -np.expm1(ends[below]))",
        "pass",
        "the bin at 1 is charged for puts in its lower half",
        MEANS,
    ),
    (
        BINS,
        "np.append(begins, 0.0) + np.append(0.0, exp(-half) * begins)",
        "np.append(begins, 0.0) + np.append(0.0, begins)",
        "means of bins are of a law that moves their places",
        MEANS,
    ),
    (
        CHARGES,
        "> LITTLE * self.total))",
        "> 0.1 * self.total))",
        "intervals are taken for long ones where rare ratios are still beyond them",
        f"{GAMES}::test_long_intervals_are_charged_as_those_of_all_places",
    ),
    (
        BACKWARDS,
        "finer = min(spacing, max(wanted, finest))",
        "finer = spacing",
        "from below a rare step has no place between 1 and its smallest ratio",
        f"{GAMES}::test_one_rare_step_is_known_from_below",
    ),
    (
        BACKWARDS,
        "[1.0 + np.geomspace(0.01, 0.97, 40), np.geomspace(ORDERS[-1] + 1.0, 1e9, 150)]",
        "[np.geomspace(ORDERS[-1] + 1.0, 1e9, 150)]",
        "with little noise lattices are planned by moments that large ratios rule",
        f"{GAMES}::test_lattices_with_little_noise_end_near_epsilon",
    ),
    (
        BACKWARDS,
        "max(40.0 * min(distance, 1.0), 2.0 * distance)",
        "40.0 * min(distance, 1.0)",
        "moments are summed without the scores that they come from with next to no noise",
        f"{GAMES}::test_lattices_with_next_to_no_noise_are_refused",
    ),
    (
        BACKWARDS,
        "if end > MOST_PLACES * widest:",
        "if False:",
        "lattices of rare steps are planned by moments, which tell of other ratios",
        f"{GAMES}::test_lattices_of_rare_steps_end_near_epsilon",
    ),
    (
        BACKWARDS,
        "sqrt(-2.0 * log(delta) * steps)",
        "5.0 * sqrt(steps)",
        "lattices of long runs end where a Gaussian has more than the smallest delta",
        f"{GAMES}::test_lattices_of_long_runs_end_as_those_of_a_gaussian",
    ),
    (
        BACKWARDS,
        "max(smallest_delta, LEAST_DELTA)",
        "smallest_delta",
        "the smallest delta is so small that tilted values overflow",
        f"{GAMES}::test_deltas_next_to_nothing_do_not_overflow",
    ),
    (
        BACKWARDS,
        "1.0 + float(np.min(",
        "10.0 + 0.0 * float(np.min(",
        "rare steps are tilted by an order of moments",
        f"{GAMES}::test_rare_steps_are_tilted_until_they_hardly_fall",
    ),
    (
        BACKWARDS,
        "(16.0 - 4.0 * np.log(x)) * UNIT_ROUNDOFF",
        "16.0 * UNIT_ROUNDOFF",
        "changes of slope far from 1 are charged no more than those near it",
        f"{GAMES}::test_slopes_are_charged_for_the_rounding_of_far_places",
    ),
    (
        CORNERS,
        "exp(x) if x < 700.0 else inf",
        "exp(x)",
        "with little noise what is allowed inside cells overflows",
        f"{CORNER_TESTS}::test_allowances_with_little_noise_do_not_overflow",
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
