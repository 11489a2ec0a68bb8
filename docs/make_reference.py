"""Write the pages of docs/reference that follow from the code: ``python docs/make_reference.py``."""

import json
from pathlib import Path

from hockeystick.accountants.registry import ACCOUNTANTS
from hockeystick.audit.annex import json_schema as addendum_schema
from hockeystick.certificate import json_schema
from hockeystick.plan import json_schema as plan_schema
from hockeystick.report.listing import listing

REFERENCE = Path(__file__).parent / "reference"
PACKAGE = REFERENCE.parents[1] / "src/hockeystick"
IN_THE_PACKAGE = {
    "addendum.schema.json": PACKAGE / "audit/addendum.schema.json",
    "certificate.schema.json": PACKAGE / "certificate/certificate.schema.json",
}


def pages() -> dict[str, str]:
    """File name to content."""
    return {
        "plan.schema.json": json.dumps(plan_schema(), indent=2) + "\n",
        "addendum.schema.json": json.dumps(addendum_schema(), indent=2) + "\n",
        "certificate.schema.json": json.dumps(json_schema(), indent=2) + "\n",
        "accountants.md": _accountants(),
    }


def _accountants() -> str:
    lines = ["# Accountants", "", "Written by `docs/make_reference.py` from the registry.", ""]
    lines += [
        "`certify` and `calibrate` run the default accountants, `monte_carlo` only where it is allowed. The others run",
        "when they are named, and in `compare` unless they assume something about the run. [Standing of the",
        "accountants](standing.md) has the reasons.",
        "",
        "| accountant | sides | runs |",
        "|---|---|---|",
    ]
    lines += [f"| `{row['name']}` | {row['sides']} | {row['runs']} |" for row in listing("accountants")]
    lines += [""]
    for one in ACCOUNTANTS.values():
        lines += [
            f"## `{one.name}`",
            "",
            f"{one.summary[0].upper()}{one.summary[1:]}.",
            "",
            f"* Sides: {', '.join(side.value for side in one.sides)}.",
            f"* Errs {one.errs.removeprefix('errs ')}.",
            f"* Source: {one.reference}.",
            "",
        ]
    lines += ["## Which accountant covers what", ""]
    lines += ["*Every other strategy* is every one without a row of its own for that sampler: for `b_min_sep` and"]
    lines += ["`multi_attribution` that includes `identity`.", "", "| combination | accountants |", "|---|---|"]
    lines += [f"| {row['name']} | {row['summary']} |" for row in listing("support")]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for name, content in pages().items():
        (REFERENCE / name).write_text(content)
    for name, place in IN_THE_PACKAGE.items():
        place.write_text(pages()[name])
