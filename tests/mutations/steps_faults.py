"""One-line faults in batches that are cut and in randomisers that are not Gaussian; some test must notice each of them.

An entry is (path, old text, new text, reason, tests); the old text occurs once in the file.
"""

FAULTS = [
    # Batches that are cut.
    (
        "src/hockeystick/pairs/truncated_steps.py",
        "tight = others > cap - k",
        "tight = others > cap",
        "a step with as many others as the batch holds counts as roomy",
        "tests/pairs/test_truncated_steps.py",
    ),
    (
        "src/hockeystick/accountants/cut_batches.py",
        "opposed_law(weights, 2.0 * counts, counts,",
        "opposed_law(weights, counts, 0.0 * counts,",
        "what several examples push out of a batch is forgotten",
        "tests/pairs/test_truncated_steps.py",
    ),
    (
        "src/hockeystick/pairs/truncated_steps.py",
        "attained = _normalised((roomy * (1.0 - q) + cut, roomy * q + kept), error)",
        "attained = _normalised((1.0 - q, q), error)",
        "a lower bound on batches that are cut takes every example that is drawn to survive",
        "tests/pairs/test_truncated_steps.py",
    ),
    (
        "src/hockeystick/pairs/truncated_steps.py",
        "empty=one_left * (1.0 - q),",
        "empty=one_left,",
        "the last place is empty whenever one is left",
        "tests/pairs/test_truncated_steps.py",
    ),
    (
        "src/hockeystick/pairs/truncated_steps.py",
        "placed=one_left * q + pushed,",
        "placed=pushed,",
        "an example that takes an empty last place is forgotten",
        "tests/pairs/test_truncated_steps.py",
    ),
    (
        "src/hockeystick/laws/displacement.py",
        "others * empty + own, others * taken)",
        "others + own, 0.0 * own)",
        "the example that is pushed out is no farther than its place",
        "tests/laws/test_displacement.py",
    ),
    (
        "src/hockeystick/laws/displacement.py",
        "others * empty, others * taken + own)",
        "others, own)",
        "the example that is pushed out is at no distance from its place",
        "tests/laws/test_displacement.py",
    ),
    (
        "src/hockeystick/laws/displacement.py",
        "(0.0, back - shift, -shift)",
        "(0.0, back - shift, 0.0)",
        "a ghost pushes nobody out of a batch on the ray",
        "tests/pairs/test_truncated_steps.py",
    ),
    (
        "src/hockeystick/laws/opposed.py",
        "right[j] += part * min(excess / rise * of_q[j + 1], density)",
        "right[j] += part * min(excess / rise * of_q[j], density)",
        "the share of a cell's right end is relative to the wrong density",
        "tests/laws/test_opposed.py",
    ),
    (
        "src/hockeystick/laws/opposed.py",
        "p_inf = float(weights @ ndtr(right_shifts - y[-1])) * (1.0 + TAIL_ERROR + error) + UNDERFLOW",
        "p_inf = 0.0",
        "the tail of the crowded steps is dropped",
        "tests/laws/test_opposed.py",
    ),
    # Randomisers that are not Gaussian.
    (
        "src/hockeystick/laws/randomisers.py",
        "values = np.minimum(-np.expm1(0.5 * (logs - epsilon)) + ROUNDING, 1.0)",
        "values = np.minimum(-np.expm1(0.499 * (logs - epsilon)) + ROUNDING, 1.0)",
        "the profile of Laplace noise falls too fast",
        "tests/laws/test_randomisers.py",
    ),
    (
        "src/hockeystick/laws/randomisers.py",
        "infinite = float(only_with) * (1.0 + 4.0 * UNIT_ROUNDOFF) if side is Side.UPPER else 0.0",
        "infinite = 0.0",
        "an answer that only the example gives is forgotten",
        "tests/laws/test_randomisers.py",
    ),
    (
        "src/hockeystick/laws/grid.py",
        "return ends[0] * ends[1] > tail",
        "return False",
        "laws of bounded ratios send their largest ones to infinity",
        "tests/laws/test_randomisers.py",
    ),
    (
        "src/hockeystick/laws/scores.py",
        "with_example = _at(of_sum, places)",
        "with_example = _at(_joined(_power(of_q, steps), of_p), places + of_p.first)",
        "an allocation of several visits has one of them, in a step more",
        "tests/laws/test_randomisers.py",
    ),
    (
        "src/hockeystick/laws/scores.py",
        "if step.side is Side.LOWER:\n        return law",
        "if step.side is Side.LOWER or two_valued(step):\n        return law",
        "an upper law of several visits forgets what is far out",
        "tests/laws/test_randomisers.py",
    ),
    (
        "src/hockeystick/laws/scores.py",
        "with_example[~known].sum() + vanished.sum()",
        "with_example[~known].sum()",
        "sums that are all but impossible without the example are forgotten",
        "tests/laws/test_randomisers.py",
    ),
    (
        "src/hockeystick/laws/randomisers.py",
        "if step.side is Side.LOWER or two_valued(step):",
        "if step.side is Side.LOWER or step.size <= 3:",
        "a sum of scores is taken to tell all that three answers tell",
        "tests/laws/test_randomisers.py",
    ),
]
