"""Files of claims: certificates, compositions and tuning claims, told apart by their format."""

from pathlib import Path
from typing import TYPE_CHECKING

from hockeystick.certificate import AnyCertificate, Certificate
from hockeystick.errors import shortened
from hockeystick.files import MAX_CLAIM_BYTES, json_object, read_small_file

if TYPE_CHECKING:
    from hockeystick.composition.composition import Composition
    from hockeystick.composition.tuning import Tuning


def load_claim(path: str | Path) -> "AnyCertificate | Composition | Tuning":
    """Read any claim and check its digest; what names no other format is read as a certificate.

    Raises: InvalidInputError for a file that does not say a claim, VerificationError for one that was altered.
    """
    form = json_object(read_small_file(path, f"certificate {shortened(str(path))}", MAX_CLAIM_BYTES)).get("format")
    if str(form).startswith("hockeystick-composition/"):
        from hockeystick.composition.composition import Composition

        return Composition.load(path)
    if str(form).startswith("hockeystick-tuning/"):
        from hockeystick.composition.tuning import Tuning

        return Tuning.load(path)
    return Certificate.load(path)
