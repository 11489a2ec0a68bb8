"""How addenda are told from other files, without loading what reads them."""

from pathlib import Path

from hockeystick.errors import shortened
from hockeystick.files import MAX_CLAIM_BYTES, json_object, read_small_file

FORMAT = "hockeystick-addendum/1"


def is_addendum(path: str | Path) -> bool:
    """Whether a file says that it is an addendum."""
    return json_object(read_small_file(path, f"file {shortened(str(path))}", MAX_CLAIM_BYTES)).get("format") == FORMAT
