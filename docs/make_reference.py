"""Write the pages of docs/reference that follow from the code: ``python docs/make_reference.py``."""

import json
from pathlib import Path

from hockeystick.accountants.registry import ACCOUNTANTS
from hockeystick.certificate import Certificate
from hockeystick.plan import Plan
from hockeystick.report.listing import listing

REFERENCE = Path(__file__).parent / "reference"


def pages() -> dict[str, str]:
    """File name to content."""
    return {
        "plan.schema.json": json.dumps(Plan.model_json_schema(), indent=2) + "\n",
        "certificate.schema.json": json.dumps(Certificate.model_json_schema(), indent=2) + "\n",
        "accountants.md": _accountants(),
    }


def _accountants() -> str:
    lines = ["# Accountants", "", "Written by `docs/make_reference.py` from the registry.", ""]
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
    lines += ["## Which accountant covers what", "", "| combination | accountants |", "|---|---|"]
    lines += [f"| {row['name']} | {row['summary']} |" for row in listing("support")]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for name, content in pages().items():
        (REFERENCE / name).write_text(content)
