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


RETIRED = {
    method.name: method
    for method in (
        Retired(
            name="block_statistic",
            since="0.1.0",
            summary="the sum of one curved function of every block of rows, for b-min-sep sampling",
            sides=(Side.LOWER,),
            reference="post-processing; proof in docs/theory/separated-windows.md",
        ),
    )
}
