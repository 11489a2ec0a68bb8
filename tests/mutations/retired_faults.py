"""One-line faults in how verification treats the methods that certificates name and that are gone.

An entry is (path, old text, new text, reason, tests); the old text occurs once in the file.
"""

STAND_INS = "tests/certification/test_stand_ins.py"

FAULTS = [
    (
        "certification/confirmation.py",
        "if one.kind is Kind.DETERMINISTIC and one.assumes is None and one.why_not(pair, side) is None",
        "if one.kind is Kind.DETERMINISTIC and one.why_not(pair, side) is None",
        "a method that assumes something of the run stands in for one that did not",
        f"{STAND_INS}::test_a_method_that_assumes_something_of_the_run_stands_in_for_none",
    ),
    (
        "certification/confirmation.py",
        "            if _holds(bound, settings, claimed):\n                confirmed = True",
        "            if bound.side is side:\n                confirmed = True",
        "whatever a retired method is said to have proved verifies",
        f"{STAND_INS}::test_a_false_claim_of_a_retired_method_does_not_verify",
    ),
    (
        "certification/confirmation.py",
        "    if side not in retired.sides:",
        "    if not retired.sides:",
        "a retired method may be named on a side that it never bounded",
        f"{STAND_INS}::test_names_that_are_unknown_or_were_never_of_that_side_are_refused",
    ),
    (
        "certification/verification.py",
        "    named = replace(upper, method=method.upper), lower and",
        "    named = upper, lower and",
        "a certificate of a retired method is held against the words of another",
        f"{STAND_INS}::test_a_true_claim_of_a_retired_method_verifies_on_both_sides",
    ),
    (
        "certification/verification.py",
        "else chain([end], others):",
        "else (end,):",
        "the numbers of a retired method are held against the loosest profile that proves its epsilon",
        f"{STAND_INS}::test_numbers_that_the_cheapest_stand_in_does_not_reach_may_follow_from_another",
    ),
]
