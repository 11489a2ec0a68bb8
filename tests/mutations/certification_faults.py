"""One-line faults in what issues, verifies and calibrates: a claim that is too strong, or one that is not checked.

An entry is (path, old text, new text, reason, tests); the old text occurs once in the file.
"""

ISSUED = "tests/certification/test_certification.py"
RELEASED = "tests/calibration/test_estimate_verify_release.py"
CALIBRATED = "tests/calibration/test_calibration.py"
SAMPLED = "tests/monte_carlo/test_verification.py"

FAULTS = [
    # Verification.
    (
        "certification/verification.py",
        "if prepared(certificate.mechanism, deadline) != certificate.mechanism:",
        "if prepared(certificate.mechanism, deadline) is None:",
        "verify does not compare the digest of a matrix with the file that is there",
        ISSUED,
    ),
    (
        "certification/verification.py",
        "mechanism.matrix.digest != digest",
        "mechanism.matrix is None",
        "a certificate about one optimum verifies for another",
        ISSUED,
    ),
    (
        "certification/verification.py",
        "if certificate.digest != certificate.content_digest():",
        "if certificate.digest is None:",
        "an altered certificate counts as intact",
        ISSUED,
    ),
    (
        "certification/verification.py",
        "if certificate.method.lower is not None and claimed.lower is not None:",
        "if False:",
        "verify skips the lower bound",
        ISSUED,
    ),
    (
        "certification/verification.py",
        "return found <= claimed if upper else found >= claimed",
        "return found <= claimed * (1.0 + 2e-6) if upper else found >= claimed",
        "a claimed delta may be too small by a millionth",
        ISSUED,
    ),
    (
        "certification/verification.py",
        "bound.delta(min(claimed, MAX_EPSILON)) <= question.delta",
        "bound.delta(min(claimed * (1.0 + 2e-6), MAX_EPSILON)) <= question.delta",
        "a claimed epsilon may be too small by a millionth",
        ISSUED,
    ),
    (
        "certification/verification.py",
        '"format", "method", *NOT_RECOMPUTED}',
        '"format", "method", "requirements", *NOT_RECOMPUTED}',
        "requirements may be struck out of a certificate",
        ISSUED,
    ),
    (
        "certification/verification.py",
        '"format", "method", *NOT_RECOMPUTED}',
        '"format", "method", "confidence", *NOT_RECOMPUTED}',
        "a certificate may say any confidence",
        ISSUED,
    ),
    (
        "accountants/monte_carlo.py",
        "if any(one.run.subject not in subjects for one in claim.runs):",
        "if not claim.runs:",
        "runs about another mechanism are not refused",
        SAMPLED,
    ),
    # What is issued.
    (
        "certification/issue.py",
        "min(upper.value * (1.0 + PORTABLE), loosest)",
        "min(upper.value * (1.0 - PORTABLE), loosest)",
        "an upper bound is moved to its wrong side when it is issued",
        ISSUED,
    ),
    (
        "certification/issue.py",
        "lower.value * (1.0 - PORTABLE)",
        "lower.value * (1.0 + PORTABLE)",
        "a lower bound is moved to its wrong side when it is issued",
        ISSUED,
    ),
    (
        "certification/issue.py",
        "confidence=1.0 if sampled is None else sampled.confidence",
        "confidence=1.0",
        "a sampled bound is stated as certain",
        ["tests/test_certificate.py", SAMPLED],
    ),
    (
        "certification/schedule.py",
        "(min if side is Side.UPPER else max)",
        "(max if side is Side.UPPER else min)",
        "the loosest bound is stated instead of the tightest",
        ISSUED,
    ),
    (
        "certification/schedule.py",
        "elif one.kind is Kind.DETERMINISTIC and cost > max(work, CHEAP):",
        "elif cost > float('inf'):",
        "the planned work limits nothing",
        ISSUED,
    ),
    (
        "certification/building_blocks.py",
        "_step(counts, weights, error, 1.0 + displaced_norm, steps)",
        "_step(counts, weights, error, 1.0, steps)",
        "the examples whose places a group takes are not charged",
    ),
    # Calibration.
    (
        "calibration/search.py",
        "epsilon * (1.0 - 2.0 * PORTABLE)",
        "epsilon",
        "the search leaves no margin for what issuing a certificate gives away",
        CALIBRATED,
    ),
    (
        "calibration/search.py",
        "found.value is not None and found.value <= self.epsilon",
        "found.value is not None",
        "at a deadline the least noise that was looked at is the answer, whether or not it meets the target",
        CALIBRATED,
    ),
    (
        "calibration/search.py",
        "Question(delta=verification_target(delta, monte_carlo.failure_probability))",
        "Question(delta=delta)",
        "the last candidate of a verified release leaves out what the tests may err",
        RELEASED,
    ),
    (
        "calibration/estimate_verify_release.py",
        "goal = verification_target(delta, options.failure_probability)",
        "goal = delta",
        "the tests of a verified release leave out what they may err",
        RELEASED,
    ),
    (
        "calibration/estimate_verify_release.py",
        "return all(test.accepts() for",
        "return any(test.accepts() for",
        "a candidate is accepted for the sake of one member of its pair",
        RELEASED,
    ),
    (
        "calibration/estimate_verify_release.py",
        "refused\n            return False",
        "refused\n            return True",
        "a test that the deadline cuts off accepts",
        RELEASED,
    ),
    (
        "calibration/estimate_verify_release.py",
        " or pair.slack > 0.0:",
        ":",
        "tests at one epsilon stand for a mechanism that moves delta by more at larger ones",
        RELEASED,
    ),
]
"""(path, old text, new text, reason, tests)."""
