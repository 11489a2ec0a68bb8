"""Certificate: the claim, machine readable and as text, that anyone can recompute."""

from hockeystick.certificate.base import CertificateBase
from hockeystick.certificate.certificate import (
    FORMAT,
    FORMAT_2,
    MAX_CERTIFICATE_BYTES,
    NOT_RECOMPUTED,
    AnyCertificate,
    Certificate,
    json_schema,
)
from hockeystick.certificate.format_1 import FORMAT_1, CertificateOfFormat1
from hockeystick.certificate.parts import (
    Accuracy,
    Actor,
    Assumption,
    AttackNumbers,
    Bits,
    CutOff,
    ForeignNoise,
    Interval,
    Methods,
    Noise,
    Origin,
    Private,
    Rates,
    Statements,
    Status,
)
from hockeystick.certificate.text import exact, generator_text, interval_text, number

__all__ = [
    "FORMAT",
    "FORMAT_1",
    "FORMAT_2",
    "MAX_CERTIFICATE_BYTES",
    "NOT_RECOMPUTED",
    "Accuracy",
    "Actor",
    "AnyCertificate",
    "Assumption",
    "AttackNumbers",
    "Bits",
    "Certificate",
    "CertificateBase",
    "CertificateOfFormat1",
    "CutOff",
    "ForeignNoise",
    "Interval",
    "Methods",
    "Noise",
    "Origin",
    "Private",
    "Rates",
    "Statements",
    "Status",
    "exact",
    "generator_text",
    "interval_text",
    "json_schema",
    "number",
]
