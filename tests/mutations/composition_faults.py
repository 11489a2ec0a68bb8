"""One-line faults in the composition of runs and the choice of the best trial: claims that are too strong.

An entry is (path, old text, new text, reason, tests); the old text occurs once in the file.
"""

COMPOSED = "tests/composition/test_compose.py"
PROFILES = "tests/composition/test_profile_law.py"
TUNED = "tests/composition/test_tuning.py"

FAULTS = [
    (
        "composition/compose.py",
        "composed_powers([(law, count) for law, count in laws if law is not None]",
        "composed_powers([(law, 1) for law, count in laws if law is not None]",
        "a run that was repeated counts once",
        f"{COMPOSED}::test_public_batches_compose_to_one_gaussian",
    ),
    (
        "composition/compose.py",
        "parts[bounds.steps.moments] += bounds.steps.steps * count",
        "parts[bounds.steps.moments] += bounds.steps.steps",
        "Poisson runs that were repeated count once",
        f"{COMPOSED}::test_contours_say_what_laws_say",
    ),
    (
        "composition/compose.py",
        "upper = max(upper, found)",
        "upper = found",
        "the claim for overlapping parts is that of some set of runs, not of the worst",
        f"{COMPOSED}::test_overlapping_parts_are_as_private_as_the_worst_set",
    ),
    (
        "composition/profile_law.py",
        "return 1 - Fraction(ratio) + Fraction(ratio) * delta",
        "return 1 - Fraction(ratio) + Fraction(ratio) * Fraction(ratio) * delta",
        "the add direction enters the law with the wrong factor",
        f"{PROFILES}::test_gaussian_profiles_compose_within_a_tenth_of_a_percent",
    ),
    (
        "laws/dots.py",
        "p_inf = float(hull[-1][1]) * (1.0 + 2 * UNIT_ROUNDOFF) + UNDERFLOW",
        "p_inf = 0.0",
        "what is beyond the last dot is lost",
        f"{PROFILES}::test_the_law_dominates_a_discrete_pair_and_its_compositions",
    ),
    (
        "laws/dots.py",
        "_slope(hull[-2], hull[-1]) >= _slope(hull[-1], place)",
        "False",
        "bounds that are not convex give negative masses",
        f"{PROFILES}::test_loose_profiles_that_are_not_convex_still_give_a_law_that_dominates",
    ),
    (
        "composition/claims.py",
        "total = sum(failures) * (1.0 + 1e-12)",
        "total = 0.5 * sum(failures)",
        "failure probabilities are understated",
        f"{COMPOSED}::test_failure_probabilities_of_monte_carlo_certificates_add_up",
    ),
    (
        "composition/claims.py",
        "if all(one in other.also_holds_for for other in certificates)]",
        "if any(one in other.also_holds_for for other in certificates)]",
        "a claim is made for neighbours for which one of the runs has none",
        f"{COMPOSED}::test_a_notion_of_neighbours_holds_only_if_it_holds_for_all",
    ),
    (
        "composition/claims.py",
        '("unit", [unit_of(one) for one in certificates]),',
        "",
        "claims about users and about examples compose",
        f"{COMPOSED}::test_other_units_are_refused",
    ),
    (
        "composition/verification.py",
        "above is not None and above <= claimed.upper",
        "above is not None",
        "a composed claim may be stronger than what follows",
        f"{COMPOSED}::test_claims_that_are_too_strong_do_not_verify",
    ),
    (
        "composition/verification.py",
        "before == after or not RETIRED.keys().isdisjoint((*before.upper, before.lower))",
        "before != after or before.upper",
        "how a run entered a claim may be anything",
        "tests/certification/test_stand_ins.py::test_runs_compose_whose_certificates_name_a_retired_method",
    ),
    (
        "composition/runs.py",
        "own = replace(settings, resolution=resolution, question=certificate.question)",
        "own, claimed = settings, float('inf')",
        "runs of retired methods compose whatever they claim",
        "tests/certification/test_stand_ins.py::test_runs_whose_claims_nothing_proves_do_not_compose",
    ),
    (
        "composition/verification.py",
        "found += stand_ins_of(one, deadline=deadline, evidence=evidence, executor=executor)",
        "one.content_digest()",
        "the certificates in a claim are not verified",
        f"{COMPOSED}::test_a_certificate_inside_has_to_verify_too",
    ),
    (
        "composition/selection.py",
        "other = Direction.ADD if direction is Direction.REMOVE else Direction.REMOVE",
        "other = direction",
        "the trade-off of one trial is read in the wrong direction",
        f"{TUNED}::test_no_order_of_the_outputs_is_less_private_than_the_bound",
    ),
    (
        "composition/selection.py",
        "beaten = _most_beaten(law, edges[1:], direction)",
        "beaten = edges[1:]",
        "the score tells nothing about the data",
        f"{TUNED}::test_no_order_of_the_outputs_is_less_private_than_the_bound",
    ),
    (
        "composition/trials.py",
        "if abs(shape) < LOGARITHMIC:",
        "if shape == 0.0:",
        "the mean of a law with a shape next to 0 is a fourth too small",
        f"{TUNED}::test_the_mean_is_rounded_up",
    ),
    (
        "composition/trials.py",
        "** -(self.shape + 1.0)",
        "** -self.shape",
        "a negative binomial number of trials counts as one with a smaller shape",
        f"{TUNED}::test_laws_of_the_number_are_what_they_say",
    ),
    (
        "composition/tuning.py",
        "found = question.answer(_bound(Side.LOWER, _scaled(one.lower, some), trials.mean * one.lower_slack))",
        "found = question.answer(_bound(Side.LOWER, _scaled(one.lower, 1.0), trials.mean * one.lower_slack))",
        "the lower bound forgets that there may be no trial",
        f"{TUNED}::test_a_poisson_number_may_be_zero",
    ),
    (
        "accountants/base.py",
        "return [] if pair.copies is None or pair.replaced else [pair.copies]",
        "return [] if pair.copies is None else [pair.copies]",
        "the law of ghosts stands for examples that are replaced",
        f"{COMPOSED}::test_users_whose_examples_are_replaced_have_no_law_of_copies",
    ),
    (
        "composition/claims.py",
        " or one.method.lower == one.method.upper)",
        ")",
        "a sampled lower end of a released run is said to be certain",
        f"{COMPOSED}::test_a_sampled_lower_end_of_a_released_run_may_fail_too",
    ),
    (
        "composition/claims.py",
        "        if self.format.endswith(FIRST):\n            made",
        "        if False:\n            made",
        "claims of format 1 have another digest than the one that they were sealed with",
        "tests/composition/test_claim_formats.py",
    ),
    (
        "composition/claims.py",
        '            if "origin" in values:\n',
        '            if "origin" in values.get("origin", ()):\n',
        "a claim of format 1 may say beside its digest where it comes from",
        "tests/composition/test_claim_formats.py",
    ),
    (
        "composition/verification.py",
        'NUMBERS = {"epsilon", "delta", "digest", "format", "origin"}',
        'NUMBERS = {"epsilon", "delta", "digest", "format", "origin", "requirements"}',
        "a claim may leave out what has to be done",
    ),
]
