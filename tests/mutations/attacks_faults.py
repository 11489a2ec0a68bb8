"""Plausible one-line faults of what attackers gain, of whole profiles and of conversions that tests must notice."""

ATTACKS = "tests/attacks/test_attacks.py"
PROFILES = "tests/certification/test_profiles.py"
CONFIGURATIONS = "tests/interop/test_configurations.py"

FAULTS = [
    (
        "attacks/samples.py",
        "over = objective(epsilons[:-1], deltas[1:])",
        "over = objective(epsilons[:-1], deltas[:-1])",
        "a lower bound is read at the near end of an interval only, as if it fell by itself",
        ATTACKS + "::test_trade_off_of_small_pairs_is_the_enumerated_one",
    ),
    (
        "attacks/samples.py",
        "max(attained, float(over.max()), beyond)",
        "max(attained, float(over.max()))",
        "epsilons beyond the last sample are forgotten",
        ATTACKS + "::test_gaussian_closed_forms",
    ),
    (
        "attacks/measures.py",
        "end = 0 if side is Side.UPPER else 1",
        "end = 0",
        "a lower bound's trade-off function is the largest of finitely many terms",
        ATTACKS + "::test_gaussian_closed_forms",
    ),
    (
        "attacks/measures.py",
        "return _one_direction(bound, direction), _one_direction(bound, other)",
        "return _one_direction(bound, direction), _one_direction(bound, direction)",
        "one direction's profile on both halves of a trade-off function",
        ATTACKS + "::test_trade_off_of_small_pairs_is_the_enumerated_one",
    ),
    (
        "attacks/measures.py",
        "least = min(",
        "least = max(",
        "the weaker of the two orders is reported",
        ATTACKS + "::test_trade_off_of_small_pairs_is_the_enumerated_one",
    ),
    (
        "attacks/measures.py",
        "rarer = min(prior, 1.0 - prior)",
        "rarer = 1.0 - prior",
        "the error of a guess for a prior above one half only",
        ATTACKS + "::test_bayes_error_of_a_gaussian_is_that_of_the_best_threshold",
    ),
    (
        "attacks/gaussian.py",
        "covered = np.clip(beta + unexplained, 0.0, 1.0)",
        "covered = np.clip(beta + 2.0 * unexplained, 0.0, 1.0)",
        "mu leaves twice the allowance unexplained",
        ATTACKS + "::test_mu_covers_the_profile_and_is_needed",
    ),
    (
        "attacks/gaussian.py",
        "return float(covering.max()) * (1.0 + 1e-9) + 1e-13",
        "return attained",
        "mu covers the profile at the samples only",
        ATTACKS + "::test_gaussian_closed_forms",
    ),
    (
        "attacks/gaussian.py",
        "/ (1.0 + np.exp(epsilon))",
        "/ np.exp(epsilon)",
        "the regret is measured along one axis",
        ATTACKS + "::test_regret_is_the_distance_along_the_diagonal",
    ),
    (
        "certification/profiles.py",
        "pick: Callable[..., float] = min if self.side is Side.UPPER else max",
        "pick: Callable[..., float] = min",
        "the loosest lower bound at each epsilon",
        PROFILES + "::test_an_envelope_is_the_tightest_of_its_bounds_at_every_epsilon_and_direction",
    ),
    (
        "certification/profiles.py",
        "value = lower[near] + (lower[near] - upper[far]) * times",
        "value = lower[near] + (upper[near] - lower[far]) * times",
        "extended chords from the wrong sides",
        PROFILES + "::test_interpolation_stays_on_its_side_of_any_profile",
    ),
    (
        "certification/profiles.py",
        "share = expm1(epsilon - knots[left]) / expm1(knots[right] - knots[left])",
        "share = (epsilon - knots[left]) / (knots[right] - knots[left])",
        "chords in epsilon, in which delta is not convex",
        PROFILES + "::test_interpolation_stays_on_its_side_of_any_profile",
    ),
    (
        "interop/opacus.py",
        "if poisson_sampling is not True:",
        "if poisson_sampling is None:",
        "a shuffled loader is taken for Poisson sampling",
        CONFIGURATIONS,
    ),
    (
        "interop/jax_privacy.py",
        "if drawn != accounted.sampler:",
        "if drawn.steps != accounted.sampler.steps:",
        "a plan that draws balls in bins and accounts for Poisson sampling is converted",
        CONFIGURATIONS,
    ),
    (
        "interop/jax_privacy.py",
        "chance / (1.0 + (min_sep - 1) * chance)",
        "chance",
        "the chance of available examples is taken for the rate",
        CONFIGURATIONS,
    ),
    (
        "interop/opake.py",
        "if draws != mechanism.sampler.kind:",
        "if draws is None:",
        "a sequential loader is taken for Poisson sampling",
        CONFIGURATIONS,
    ),
    (
        "interop/dp_events.py",
        "return events[0] if len(events) == 1 else",
        "return events[0] if events else",
        "only the first phase is accounted for",
        "tests/interop/test_dp_events.py",
    ),
]
