"""Certificates that version 0.1.0 issued: they are read, shown and verified, and no more of them are issued."""

from typing import Annotated, Any, Literal

from pydantic import Field

from hockeystick.certificate.base import CertificateBase
from hockeystick.certificate.parts import Accuracy, CutOff

FORMAT_1 = "hockeystick-certificate/1"


class CertificateOfFormat1(CertificateBase):
    """A certified (epsilon, delta) for one mechanism, as version 0.1.0 wrote it.

    Attributes:
        requirements: what the run must do for the claim to be about it.
        accuracy: settings with which the numbers are found again.
        hockeystick_version, cut_off: how the certificate was made; the claim does not rest on it.
        others: as in :class:`~hockeystick.certificate.Certificate`.
    """

    format: Literal["hockeystick-certificate/1"] = "hockeystick-certificate/1"
    hockeystick_version: Annotated[str, Field(pattern=r"^[0-9A-Za-z.+_-]{1,40}$")]
    requirements: tuple[str, ...]
    accuracy: Accuracy
    cut_off: tuple[CutOff, ...] = ()

    @property
    def bits(self) -> None:
        """Exact noise belongs to later formats."""

    @property
    def generator(self) -> None:
        """No certificate of this format names one."""

    def content(self) -> dict[str, Any]:
        """Everything but the digest."""
        return self.model_dump(mode="json", exclude={"digest"}, context={"format": 1})

    def hashed(self) -> dict[str, Any]:
        """The content without fields that say nothing, as older certificates do not have them."""
        content = self.content()
        if self.monte_carlo is None:
            del content["monte_carlo"]
        if self.accuracy.effort is None:
            del content["accuracy"]["effort"]
        if self.strategy_digest is None:
            del content["strategy_digest"]
        if not self.cut_off:
            del content["cut_off"]
        return content
