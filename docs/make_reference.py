"""Write what follows from the code: pages of docs/reference, schemas, diagrams. ``python docs/make_reference.py``"""

import json
from pathlib import Path
from typing import Any

from make_diagrams import diagrams

from hockeystick.accountants.registry import ACCOUNTANTS
from hockeystick.audit.annex import json_schema as addendum_schema
from hockeystick.certificate import json_schema
from hockeystick.plan import json_schema as plan_schema
from hockeystick.report.listing import listing

ROOT = Path(__file__).parents[1]


def files() -> dict[Path, str]:
    """Path, from the root, to content; all that is in docs/diagrams is among them."""
    reference, package = Path("docs/reference"), Path("src/hockeystick")
    return {
        reference / "plan.schema.json": _printed(plan_schema()),
        reference / "accountants.md": _accountants(),
        package / "audit/addendum.schema.json": _printed(addendum_schema()),
        package / "certificate/certificate.schema.json": _printed(json_schema()),
        **{Path("docs/diagrams") / name: drawn for name, drawn in diagrams().items()},
    }


def _printed(schema: dict[str, Any]) -> str:
    return json.dumps(schema, indent=2) + "\n"


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
    for method in ACCOUNTANTS.values():
        lines += [
            f"## `{method.name}`",
            "",
            f"{method.summary[0].upper()}{method.summary[1:]}.",
            "",
            f"* Sides: {', '.join(side.value for side in method.sides)}.",
            f"* Errs {method.errs.removeprefix('errs ')}.",
            f"* Source: {method.reference}.",
            "",
        ]
    lines += ["## Which accountant covers what", ""]
    lines += ["*Every other strategy* is every one without a row of its own for that sampler: for `b_min_sep` and"]
    lines += ["`multi_attribution` that includes `identity`.", "", "| combination | accountants |", "|---|---|"]
    lines += [f"| {row['name']} | {row['summary']} |" for row in listing("support")]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for place, content in files().items():
        (ROOT / place).write_text(content)
