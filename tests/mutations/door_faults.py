"""Faults of plans, sweeps, reports and the command line."""

FAULTS = [
    (
        "plan.py",
        "noise_multiplier=given if noise_multiplier is None else noise_multiplier",
        "noise_multiplier=noise_multiplier if given is None else given",
        "the plan's noise multiplier wins over the one on the command line",
    ),
    (
        "plan.py",
        "sampler=self.sampler.sampler(self.data)",
        'sampler=self.sampler.sampler(self.data.model_copy(update={"epochs": 1}))',
        "every plan is certified for one epoch",
        ["tests/test_plan.py", "tests/cli"],
    ),
    (
        "sweep.py",
        'asked = {"delta": delta, "epsilon": epsilon}',
        "asked: dict[str, float] = {}",
        "results for another delta are taken for those of this sweep",
    ),
    (
        "sweep.py",
        'plan.model_copy(update={"strategy": plan.strategy.pinned()})',
        "plan",
        "results for another matrix in the same file are taken for those of this sweep",
    ),
    (
        "sweep.py",
        "record.certificate.digest != record.certificate.content_digest()",
        "False",
        "an altered certificate in a file of results is believed",
    ),
    (
        "sweep.py",
        'key=lambda name: name.count(".")',
        'key=lambda name: -name.count(".")',
        "a table of the grid overwrites the single fields of it",
    ),
    (
        "report/table.py",
        "number(outcome.value, up=outcome.side is Side.UPPER)",
        "number(outcome.value, up=True)",
        "lower bounds are printed rounded up, above what is proved",
        "tests/report",
    ),
    (
        "report/table.py",
        "value if upper else -value",
        "value",
        "the loosest lower bound is listed first",
        "tests/report",
    ),
    (
        "report/listing.py",
        "any(one.covers(kind) for kind in kinds)",
        "all(one.covers(kind) for kind in kinds)",
        "the table of what is supported leaves out accountants",
        ["tests/test_docs.py"],
    ),
    (
        "cli/main.py",
        "return str(error), error.exit_code",
        "return str(error), 0",
        "a command that failed exits with 0",
    ),
    (
        "cli/common.py",
        'value = plan.target.delta if option is None else number("--delta", option)',
        'value = plan.target.delta or number("--delta", option or "1e-5")',
        "--delta does not override the plan",
    ),
]
