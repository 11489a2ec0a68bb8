"""One-line faults in what is said of users with several examples; brute force over a few steps must notice each.

An entry is (path, old text, new text, reason, tests); the old text occurs once in the file.
"""

BRUTE_FORCE = "tests/pairs/test_units.py"

FAULTS = [
    (
        "accountants/base.py",
        "return (pair.why_not_from_below if side is Side.LOWER else None) or self.refusal(pair, side)",
        "return self.refusal(pair, side)",
        "a pair that nothing attains has lower bounds",
        "tests/conformance/test_registry.py",
    ),
    (
        "src/hockeystick/pairs/users.py",
        "return _coins(mechanism, sampler.participation_prob, attained=False)",
        "return _coins(mechanism, sampler.sampling_prob, attained=False)",
        "b-min-sep is compared with Poisson sampling at the long-run rate, which is no bound",
        BRUTE_FORCE,
    ),
    (
        "src/hockeystick/pairs/users.py",
        "return _coins(mechanism, sampler.participation_prob, attained=False)",
        "return _coins(mechanism, sampler.participation_prob, attained=True)",
        "a pair that takes part more often than the run gives lower bounds",
        BRUTE_FORCE,
    ),
    (
        "src/hockeystick/pairs/users.py",
        "step = binomial_step(examples, sampler.sampling_prob, 1.0, sampler.steps)",
        "step = binomial_step(1, sampler.sampling_prob, 1.0, sampler.steps)",
        "a user under Poisson sampling has one example",
        BRUTE_FORCE,
    ),
    (
        "src/hockeystick/pairs/users.py",
        "bins=sampler.bins, examples=examples, replays=sampler.epochs",
        "bins=sampler.bins, examples=examples",
        "bins that are replayed count once",
        BRUTE_FORCE,
    ),
    (
        "src/hockeystick/accountants/base.py",
        "chained(profiles, (direction,), pair.examples, slow=accountant.plans_effort)",
        "chained(profiles, (direction,), pair.examples - 1, slow=accountant.plans_effort)",
        "the chain is one link short",
        BRUTE_FORCE,
    ),
    (
        "src/hockeystick/accountants/base.py",
        "replaced = chained(best, (Direction.REMOVE, Direction.ADD), slow=accountant.plans_effort)",
        "replaced = best[Direction.REMOVE]",
        "replacing an example costs as much as removing it",
        BRUTE_FORCE,
    ),
    (
        "src/hockeystick/laws/groups.py",
        "np.equal(part >= 0.0, link is Direction.REMOVE)",
        "np.full(part.shape, link is Direction.REMOVE)",
        "a link that is asked below 0 is read in its own direction",
        "tests/laws/test_groups.py",
    ),
    (
        "src/hockeystick/laws/groups.py",
        "* (value + LOST)",
        "* value",
        "a link whose delta is below all doubles counts as 0",
        "tests/laws/test_groups.py::test_links_of_profiles_that_round_to_0_count",
    ),
    (
        "src/hockeystick/laws/groups.py",
        "        before += part\n",
        "        before += 0.0\n",
        "the links of a chain add their deltas without the factors between them",
        ("tests/laws/test_groups.py", BRUTE_FORCE),
    ),
    (
        "src/hockeystick/pairs/occupancy.py",
        "squares[sum(size * size for size in pattern)] += chance",
        "squares[sum(size for size in pattern)] += chance",
        "examples that meet in a shuffled batch count as if they did not",
        BRUTE_FORCE,
    ),
    (
        "src/hockeystick/pairs/occupancy.py",
        "probability_error=max(PROBABILITY_ROUNDING, epochs * EPOCH_ROUNDING),",
        "probability_error=PROBABILITY_ROUNDING,",
        "the rounding of many shuffled epochs is not charged",
        f"{BRUTE_FORCE}::test_what_the_chances_of_many_epochs_are_rounded_by_is_charged",
    ),
    (
        "src/hockeystick/mechanism.py",
        "sampler=self.sampler, noise_multiplier=noise_multiplier, unit=self.unit",
        "sampler=self.sampler, noise_multiplier=noise_multiplier",
        "calibration forgets the unit",
        "tests/pairs/test_unit_plans.py",
    ),
    (
        "src/hockeystick/pairs/users.py",
        "return sampler.batch_size is None or examples <= sampler.batch_size",
        "return True",
        "more examples than a fixed batch holds are bounded from below as if they shared it",
        "tests/pairs/test_unit_plans.py",
    ),
    (
        "src/hockeystick/pairs/min_separated.py",
        'covered = exact or sampler.exclusion == "sampled" or matrix.toeplitz_column is not None',
        "covered = True",
        "the cold start stands for a warm-up whatever the columns, though participating examples exclude",
        "tests/properties/test_participating.py",
    ),
    (
        "src/hockeystick/pairs/min_separated.py",
        "if sampler.users_are_revealed or not covered:",
        "if not covered:",
        "users who share examples are amplified",
        "tests/pairs/test_min_separated.py",
    ),
    (
        "src/hockeystick/pairs/min_separated.py",
        'exact = sampler.exclusion == "participating" and sampler.warm_up_steps == 0',
        'exact = sampler.exclusion == "participating"',
        "a warm-up gives lower bounds of a cold start",
        "tests/pairs/test_min_separated.py",
    ),
    (
        "pairs/counted_visits.py",
        "min(visits, matrix.bands)",
        "1",
        "correlated noise counts as independent for a sampler without a pair of its own",
        "tests/pairs/test_counted_visits.py",
    ),
    (
        "pairs/counted_visits.py",
        "attained=possible <= {0, sampler.steps}",
        "attained=True",
        "a pair that tells no steps apart has lower bounds",
        "tests/pairs/test_counted_visits.py",
    ),
    (
        "pairs/counted_visits.py",
        "if chances is None or Adjacency.ADD_REMOVE not in sampler.holds_for:",
        "if chances is None:",
        "the number of steps is taken as hidden where other examples give it away",
        "tests/pairs/test_counted_visits.py",
    ),
    (
        "pairs/counted_visits.py",
        "probability_error=CHANCE_ERROR,",
        "probability_error=0.0,",
        "chances that a sampler rounds are taken as exact",
        "tests/pairs/test_counted_visits.py",
    ),
    (
        "accountants/direct.py",
        "1.0 if side is Side.UPPER else 1.0 + pair.excess",
        "1.0",
        "lower bounds are of norms that were rounded up",
        "tests/pairs/test_counted_visits.py",
    ),
]
"""(path, old text, new text, reason, tests)."""
