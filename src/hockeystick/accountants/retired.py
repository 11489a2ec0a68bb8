"""Methods that certificates may name, and that this release does not have any more.

Whatever proves at least the claim stands in for them when a certificate is verified. They stay here for as long as
certificates are read, with what those certificates say of them.
"""

from dataclasses import dataclass

from hockeystick.types import Side


@dataclass(frozen=True, kw_only=True)
class Retired:
    """A method that is gone.

    Attributes:
        name: how certificates call it.
        since: the version that had it no longer.
        summary: what it was.
        sides: the sides that it bounded.
        reference: what certificates say that its proof is.
    """

    name: str
    since: str
    summary: str
    sides: tuple[Side, ...]
    reference: str


RETIRED: dict[str, Retired] = {}
