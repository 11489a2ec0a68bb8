#!/bin/bash
# Expected: a package that asks for Python 3.11 or newer can be imported under Python 3.11.
# Happens: opake's accounting raises a TypeError, "__weakref__ slot disallowed", when it is imported: a data class asks
# for a slot for weak references that a base class without slots has already, which only Python 3.13 forgives.
# Who is hurt: everybody who installs it for Python 3.11 or 3.12, as its metadata allow; calibration scripts do not start.
# Version: opake-accounting 0.16.1 under Python 3.11.7 (3.12.1 alike; 3.13.0 imports it). Source: opake.accounting.
set -euo pipefail
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
"$(command -v python3.11 || echo python3)" -m venv "$room/venv"
"$room/venv/bin/pip" install --quiet --disable-pip-version-check opake-accounting==0.16.1
"$room/venv/bin/python" - <<'PYTHON'
import sys
from importlib.metadata import metadata

about = metadata("opake-accounting")
asked, here = about["Requires-Python"], sys.version.split()[0]
print(f"opake-accounting {about['Version']}, which asks for Python {asked}, under Python {here}")
try:
    import opake.accounting  # noqa: F401
except TypeError as error:
    said = str(error)
    print(f"import opake.accounting: TypeError: {said}")
else:
    said = ""
    print("import opake.accounting: done")
assert ("__weakref__ slot disallowed" in said) == (sys.version_info < (3, 13))
PYTHON
