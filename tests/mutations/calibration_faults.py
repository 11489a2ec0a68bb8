"""One-line faults in how a noise multiplier is searched and released.

An entry is (path, old text, new text, reason, tests); the old text occurs once in the file.
"""

RELEASED = "tests/calibration/test_estimate_verify_release.py"
CALIBRATED = "tests/calibration/test_calibration.py"
LOOKS = "tests/calibration/test_looks.py"

FAULTS = [
    (
        "bracketing.py",
        "if value <= target and above <= 0.75 * width:",
        "if abs(above) <= 0.75 * width:",
        "a noise multiplier just below the crossing is taken for one that passes",
        f"{CALIBRATED}::test_few_evaluations_end_just_above_the_root",
    ),
    (
        "calibration/noise_search.py",
        "nearer = names != light and abs(off) > FAR",
        "nearer = names != light and abs(off) > inf",
        "heavy methods are looked at far from the target, where another may be the best",
        f"{LOOKS}::test_heavy_methods_are_looked_at_near_the_target_and_light_ones_lead_there",
    ),
    (
        "calibration/noise_search.py",
        "rivals[names[0]] = settings\n",
        "pass\n",
        "a method that needs more effort to say anything is forgotten",
        f"{LOOKS}::test_a_method_that_needs_more_effort_is_asked_at_the_end",
    ),
    (
        "certification/schedule.py",
        "for outcome in known if outcome.bound is not None}",
        "for outcome in known if outcome.bound is not None and outcome.side is Side.LOWER}",
        "bounds that a search knows are computed again",
        f"{CALIBRATED}::test_bounds_that_are_known_are_not_computed_again_and_looser_methods_not_at_all",
    ),
    (
        "calibration/noise_search.py",
        "epsilon * (1.0 - 2.0 * PORTABLE)",
        "epsilon",
        "the search leaves no margin for what issuing a certificate gives away",
        f"{CALIBRATED}::test_the_margin_covers_what_issuing_gives_away",
    ),
    (
        "calibration/noise_search.py",
        "found.value is not None and found.value <= self.epsilon",
        "found.value is not None",
        "at a deadline the least noise that was looked at is the answer, whether or not it meets the target",
        f"{CALIBRATED}::test_a_deadline_in_the_middle_leaves_the_best_so_far",
    ),
    (
        "calibration/search.py",
        "Question(delta=verification_target(delta, monte_carlo.failure_probability))",
        "Question(delta=delta)",
        "the last candidate of a verified release leaves out what the tests may err",
        f"{RELEASED}::test_what_is_released_without_a_test_pays_for_those_that_were_made",
    ),
    (
        "calibration/estimate_verify_release.py",
        "goal = verification_target(delta, options.failure_probability)",
        "goal = delta",
        "the tests of a verified release leave out what they may err",
        f"{RELEASED}::test_every_member_has_to_accept_in_time_and_to_pay_for_what_the_test_may_err",
    ),
    (
        "calibration/estimate_verify_release.py",
        "return all(test.accepts() for",
        "return any(test.accepts() for",
        "a candidate is accepted for the sake of one member of its pair",
        f"{RELEASED}::test_every_member_has_to_accept_in_time_and_to_pay_for_what_the_test_may_err",
    ),
    (
        "calibration/estimate_verify_release.py",
        "refused\n            break",
        "refused\n            return Release(certificate=last, tested=True)",
        "a test that the deadline cuts off accepts",
        f"{RELEASED}::test_every_member_has_to_accept_in_time_and_to_pay_for_what_the_test_may_err",
    ),
    (
        "calibration/estimate_verify_release.py",
        "share=share, goal=goal)\n\n\ndef _compare",
        "share=1.0, goal=goal)\n\n\ndef _compare",
        "each of several candidates may err with the whole failure probability",
        f"{RELEASED}::test_candidates_that_are_tested_share_the_failure_probability_and_have_more_and_more_noise",
    ),
    (
        "calibration/search.py",
        "if certain is None or (release.tested and not exact.answer_meets(target)):",
        "if certain is None:",
        "what is released after tests that refused leaves out what they may have erred",
        f"{RELEASED}::test_what_is_released_without_a_test_pays_for_those_that_were_made",
    ),
    (
        "monte_carlo/estimation.py",
        "return self.share * self.upper_share",
        "return self.upper_share",
        "a test ignores its share of the failure probability",
        f"{RELEASED}::test_the_released_mechanism_has_less_noise_and_a_certificate_that_verifies",
    ),
    (
        "calibration/estimate_verify_release.py",
        " or pair.slack > 0.0:",
        ":",
        "tests at one epsilon stand for a mechanism that moves delta by more at larger ones",
        f"{RELEASED}::test_what_cannot_be_sampled_is_calibrated_without",
    ),
]
