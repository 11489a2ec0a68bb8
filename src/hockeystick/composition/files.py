"""Files of claims: certificates, compositions and tuning claims, told apart by their format."""

from pathlib import Path

from hockeystick.certificate import AnyCertificate, Certificate
from hockeystick.composition.claims import MAX_CLAIM_BYTES
from hockeystick.composition.composition import Composition
from hockeystick.composition.tuning import Tuning
from hockeystick.errors import shortened
from hockeystick.files import json_object, read_small_file

DERIVED: dict[str, type[Composition] | type[Tuning]] = {
    "hockeystick-composition/1": Composition,
    "hockeystick-tuning/1": Tuning,
}


def load_claim(path: str | Path) -> AnyCertificate | Composition | Tuning:
    """Read any claim and check its digest; what names no other format is read as a certificate.

    Raises: InvalidInputError for a file that does not say a claim, VerificationError for one that was altered.
    """
    form = json_object(read_small_file(path, f"certificate {shortened(str(path))}", MAX_CLAIM_BYTES)).get("format")
    kind = DERIVED.get(form) if isinstance(form, str) else None
    return Certificate.load(path) if kind is None else kind.load(path)
