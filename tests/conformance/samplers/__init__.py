"""What the tests know of each kind of sampler: one file a kind, which all tests of all samplers find here."""

from importlib import import_module
from importlib.util import find_spec

from sampler_laws import Declaration

from hockeystick.samplers import SAMPLERS

DECLARED: dict[str, Declaration] = {
    kind: import_module(f"samplers.{kind}").DECLARATION for kind in SAMPLERS if find_spec(f"samplers.{kind}")
}
"""By kind, in the order of the registry; a kind without a file fails ``tests/conformance/test_samplers.py``."""
