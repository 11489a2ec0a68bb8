"""One-line faults in what issues, verifies and calibrates: a claim that is too strong, or one that is not checked.

An entry is (path, old text, new text, reason, tests); the old text occurs once in the file.
"""

ISSUED = "tests/certification/test_certification.py"
RELEASED = "tests/calibration/test_estimate_verify_release.py"
CALIBRATED = "tests/calibration/test_calibration.py"
FIELDS = "tests/certification/test_fields.py"
FORMATS = "tests/certification/test_formats.py"
ATTACK = "tests/certification/test_attack.py"
SAMPLED = "tests/monte_carlo/test_verification.py"

FAULTS = [
    # Verification.
    (
        "certification/verification.py",
        "if prepared(certificate.mechanism, deadline) != certificate.mechanism:",
        "if prepared(certificate.mechanism, deadline) is None:",
        "verify does not compare the digest of a matrix with the file that is there",
        f"{ISSUED}::test_a_matrix_without_its_digest_does_not_verify",
    ),
    (
        "certification/verification.py",
        "mechanism.matrix.digest != digest",
        "mechanism.matrix is None",
        "a certificate about one optimum verifies for another",
        f"{ISSUED}::test_an_optimum_that_another_machine_finds_differently_is_told",
    ),
    (
        "certification/verification.py",
        "if certificate.digest != certificate.content_digest():",
        "if certificate.digest is None:",
        "an altered certificate counts as intact",
        f"{ISSUED}::test_altered_certificates_do_not_verify",
    ),
    (
        "certification/verification.py",
        "if certificate.method.lower is not None and claimed.lower is not None:",
        "if False:",
        "verify skips the lower bound",
        f"{ISSUED}::test_altered_certificates_do_not_verify",
    ),
    (
        "certification/verification.py",
        "return found <= claimed if upper else found >= claimed",
        "return found <= claimed * (1.0 + 2e-6) if upper else found >= claimed",
        "a claimed delta may be too small by a millionth",
        f"{ISSUED}::test_a_claim_that_is_stronger_by_a_millionth_fails_though_it_is_sealed_again",
    ),
    (
        "certification/verification.py",
        "bound.delta(min(claimed, MAX_EPSILON)) <= question.delta",
        "bound.delta(min(claimed * (1.0 + 2e-6), MAX_EPSILON)) <= question.delta",
        "a claimed epsilon may be too small by a millionth",
        f"{ISSUED}::test_a_claim_that_is_stronger_by_a_millionth_fails_though_it_is_sealed_again",
    ),
    (
        "certification/verification.py",
        'beside = {*NOT_RECOMPUTED, "digest"}',
        'beside = {*NOT_RECOMPUTED, "digest", "assumptions"}',
        "assumptions may be struck out of a certificate",
        f"{ISSUED}::test_altered_certificates_do_not_verify",
    ),
    (
        "certification/verification.py",
        'beside = {*NOT_RECOMPUTED, "digest"}',
        'beside = {*NOT_RECOMPUTED, "digest", "sentence"}',
        "the sentence of a certificate may say anything",
        FIELDS,
    ),
    (
        "certification/verification.py",
        '"numbers", "sensitivity", "rates", "noise")',
        '"numbers", "sensitivity", "rates", "noise", "confidence")',
        "a sampled certificate may say that it is certain",
        FIELDS,
    ),
    (
        "certification/verification.py",
        "ROUNDED = PORTABLE / 2.0",
        "ROUNDED = 2.0 * PORTABLE",
        "numbers beside the bounds verify on the wrong side",
        f"{FIELDS}::test_numbers_beside_the_bounds_are_upper_bounds_too",
    ),
    (
        "certification/verification.py",
        '{"format", "accuracy", "hockeystick_version", "cut_off"}',
        '{"format", "accuracy", "hockeystick_version", "cut_off", "requirements"}',
        "requirements may be struck out of a certificate of format 1",
        FORMATS,
    ),
    (
        "monte_carlo/claim.py",
        '        claim._check("key", packed.key, claim.run.key)\n',
        "",
        "the key of a run in a certificate may be any",
        "tests/monte_carlo/test_claim.py",
    ),
    (
        "monte_carlo/claim.py",
        "_NODE_BYTES * MOST_NODES)",
        "0)",
        "a few bytes of a certificate may unpack to all the memory there is",
        "tests/monte_carlo/test_claim.py",
    ),
    (
        "certificate/certificate.py",
        "if certificate.digest != certificate.content_digest():",
        "if certificate.digest is None:",
        "an altered file is read as a certificate",
        "tests/test_certificate.py::test_loading_checks_the_digest",
    ),
    (
        "certificate/parts.py",
        "if not text.isprintable():",
        "if not text:",
        "words of a user may look like lines of a certificate",
        FIELDS,
    ),
    # What is said beside the bound.
    (
        "certification/attack.py",
        "share = (1.0 - exp(at - epsilon)) / (1.0 + exp(-epsilon))",
        "share = (1.0 - exp(at - epsilon)) / (1.0 + exp(epsilon))",
        "two numbers are said to imply less delta than they do",
        ATTACK,
    ),
    (
        "certification/attack.py",
        "    if at >= epsilon:",
        "    if at >= 0.0:",
        "the certified delta is taken for the one at a smaller epsilon",
        ATTACK,
    ),
    (
        "certification/attack.py",
        "bound.delta(0.0)",
        "bound.delta(0.5)",
        "the advantage is read at the wrong epsilon",
        ATTACK,
    ),
    (
        "certification/attack.py",
        "alone = replace(bound, profiles=dict.fromkeys(Direction, profile))",
        "alone = replace(bound, profiles=dict.fromkeys(Direction, profile), slack=0.0)",
        "the numbers of truncated batches leave the truncation out",
        ATTACK,
    ),
    (
        "certification/wording.py",
        'for name in ("statements.num_examples", "rates.expected_batch_size")',
        'for name in ("statements.num_examples",)',
        "the size of the data set is published as a batch size",
        "tests/report/test_certificate.py",
    ),
    (
        "certification/wording.py",
        "status=Status.ASSERTED if name in given else Status.UNCHECKED",
        "status=Status.HOLDS",
        "what nobody has checked is said to hold",
        FIELDS,
    ),
    (
        "certification/wording.py",
        "if mechanism.sampler.kind in PUBLIC_BATCHES:",
        "if mechanism.sampler.kind is None:",
        "public batches are said to be unknown",
        "tests/report/test_certificate.py",
    ),
    (
        "certification/rates.py",
        "return _Participation(sampler.rate, sampler.epochs)",
        "return _Participation(sampler.rate, 1)",
        "an example is said to take part once, whatever the epochs",
        "tests/certification/test_rates.py",
    ),
    (
        "accountants/monte_carlo.py",
        "if any(one.run.subject not in subjects for one in claim.runs):",
        "if not claim.runs:",
        "runs about another mechanism are not refused",
        f"{SAMPLED}::test_forgeries_are_refused",
    ),
    # What is issued.
    (
        "certification/issue.py",
        "min(upper.value * (1.0 + PORTABLE), loosest)",
        "min(upper.value * (1.0 - PORTABLE), loosest)",
        "an upper bound is moved to its wrong side when it is issued",
        f"{ISSUED}::test_bounds_are_issued_with_room_for_the_rounding_of_another_machine",
    ),
    (
        "certification/issue.py",
        "lower.value * (1.0 - PORTABLE)",
        "lower.value * (1.0 + PORTABLE)",
        "a lower bound is moved to its wrong side when it is issued",
        f"{ISSUED}::test_its_own_certificates_verify",
    ),
    (
        "certification/issue.py",
        "confidence=1.0 if sampled is None else sampled.confidence",
        "confidence=1.0",
        "a sampled bound is stated as certain",
        f"{SAMPLED}::test_it_follows_from_its_seeds_and_from_its_evidence",
    ),
    (
        "certification/schedule.py",
        "(min if side is Side.UPPER else max)",
        "(max if side is Side.UPPER else min)",
        "the loosest bound is stated instead of the tightest",
        f"{ISSUED}::test_compare_runs_everything_that_applies",
    ),
    (
        "certification/schedule.py",
        "elif one.kind is Kind.DETERMINISTIC and cost > max(work, CHEAP):",
        "elif cost > float('inf'):",
        "the planned work limits nothing",
        f"{ISSUED}::test_what_costs_more_than_the_planned_work_is_left_out_whatever_the_clock_says",
    ),
    (
        "certification/building_blocks.py",
        "step_of(counts, weights, error, 1.0 + displaced_norm, steps)",
        "step_of(counts, weights, error, 1.0, steps)",
        "the examples whose places a group takes are not charged",
        "tests/certification/test_building_blocks.py",
    ),
    (
        "bounds.py",
        "change = (1.0 + exp(epsilon)) * self.slack",
        "change = self.slack",
        "truncation is charged once instead of 1 + e^epsilon times",
        f"{ISSUED}::test_truncation_pays_its_slack",
    ),
    # Calibration.
    (
        "calibration/search.py",
        "epsilon * (1.0 - 2.0 * PORTABLE)",
        "epsilon",
        "the search leaves no margin for what issuing a certificate gives away",
        f"{CALIBRATED}::test_the_margin_covers_what_issuing_gives_away",
    ),
    (
        "calibration/search.py",
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
        f"{RELEASED}::test_the_last_candidate_meets_what_the_tested_ones_have_to_meet",
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
        "refused\n            return False",
        "refused\n            return True",
        "a test that the deadline cuts off accepts",
        f"{RELEASED}::test_every_member_has_to_accept_in_time_and_to_pay_for_what_the_test_may_err",
    ),
    (
        "calibration/estimate_verify_release.py",
        " or pair.slack > 0.0:",
        ":",
        "tests at one epsilon stand for a mechanism that moves delta by more at larger ones",
        f"{RELEASED}::test_what_cannot_be_sampled_is_calibrated_without",
    ),
    (
        "certification/attack.py",
        "most += [delta + exp(epsilon) * false, ",
        "most += [exp(epsilon) * false, ",
        "true positive rates forget delta",
        f"{ATTACK}::test_the_rates_of_the_gaussian",
    ),
    (
        "certification/attack.py",
        "1.0 - exp(-epsilon) * max(1.0 - delta - false, 0.0)",
        "1.0 - exp(-epsilon) * max(1.0 - false, 0.0) - delta",
        "true positive rates subtract delta",
        f"{ATTACK}::test_the_rates_of_the_gaussian",
    ),
    (
        "certification/issue.py",
        "min(value * (1.0 + PORTABLE), 1.0) for name, value in numbers",
        "min(value, 1.0) for name, value in numbers",
        "numbers of attackers are issued without room for another machine's rounding",
        "tests/certification/test_fields.py::test_numbers_beside_the_bounds_are_upper_bounds_too",
    ),
]
"""(path, old text, new text, reason, tests)."""
