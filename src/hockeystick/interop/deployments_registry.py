"""Entries for OpenDP's registry of deployments, from certificates.

The fields are those of the registry as of 2026. What a certificate does not know is null: an entry is a draft, which
whoever deploys completes. What should not be published is left out.
"""

import json
from typing import Any

from hockeystick.certificate import Certificate, CertificateBase, Interval
from hockeystick.errors import UnsupportedError

_UNKNOWN_PRODUCT = ("data_curators", "intended_use", "type", "region", "sector", "description")


def registry_entry(certificate: CertificateBase) -> dict[str, Any]:
    """The entry as plain data; epsilon and delta are the certified upper ends.

    Raises: UnsupportedError for a certificate of format 1, which does not say enough.

    >>> import hockeystick as hs
    >>> run = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.01, steps=100), noise_multiplier=1.0)
    >>> registry_entry(hs.certify(run, delta=1e-5))["privacy_loss"]["privacy_unit"]
    'example'
    """
    if not isinstance(certificate, Certificate):
        raise UnsupportedError("A certificate of format 1 has no registry entry; certify its mechanism again.")
    said, numbers = certificate.statements, _parameters(certificate)
    relations = [certificate.adjacency, *certificate.also_holds_for]
    return {
        "product": {
            "name": said.label,
            **dict.fromkeys(_UNKNOWN_PRODUCT),
            "publication_date": said.date,
        },
        "dp_flavor": {
            "name": "approximate differential privacy",
            "input_metric": f"{certificate.neighbours} Relations: {', '.join(relations)}.",
            "bound_on_input_distance": 1,
            "output_measure": "hockey-stick divergence",
            "bound_on_output_distance": numbers,
            "data_domain": None,
            "unprotected_quantities": list(certificate.not_covered),
        },
        "privacy_loss": {
            "privacy_unit": certificate.unit,
            "description": certificate.sentence,
            "parameters": numbers | {"confidence": certificate.confidence},
        },
        "model": {
            "name": "central",
            "actors": [one.model_dump() for one in certificate.actors],
            "release_type": certificate.released,
            "data_source_type": "static",
            "access_type": "non-interactive",
        },
        "accounting": {
            "post_processing": certificate.prefixes,
            "composition": f"Upper bound by {certificate.method.upper} ({'; '.join(certificate.references)}), over "
            f"{certificate.rates.steps} steps.",
        },
        "implementation": {
            "pre_processing": said.tuning,
            "mechanisms": {
                "strategy": certificate.mechanism.strategy.model_dump(mode="json", exclude={"path"}),
                "sampler": certificate.mechanism.sampler.model_dump(mode="json"),
                "noise_multiplier": certificate.mechanism.sigma,
                **({} if certificate.generator is None else {"noise_generator": certificate.generator.model_dump()}),
                "caveats": list(certificate.caveats),
            },
            "justification": [one.model_dump(mode="json") for one in certificate.assumptions],
        },
        "resources": {
            "recompute": certificate.recompute,
            "certificate_sha256": certificate.digest,
            "issued_by": f"hockeystick {certificate.hockeystick_version}",
        },
    }


def registry_yaml(certificate: CertificateBase) -> str:
    """The entry as a YAML document; raises as :func:`registry_entry` does."""
    return "\n".join(_block(registry_entry(certificate))) + "\n"


def _block(value: dict[str, Any] | list[Any]) -> list[str]:
    """Lines of YAML for what is not empty."""
    marked = (
        [(f"{name}:", one) for name, one in value.items()] if isinstance(value, dict) else [("-", one) for one in value]
    )
    lines = []
    for mark, one in marked:
        if isinstance(one, dict | list) and one:
            lines += [mark, *(f"  {line}" for line in _block(one))]
        else:
            lines.append(f"{mark} {_scalar(one)}")
    return lines


def _scalar(value: Any) -> str:
    """A value as JSON writes it, which YAML reads; YAML 1.1 takes 1e-05 for text and 1.0e-05 for a number."""
    text = json.dumps(value, allow_nan=False)
    return text.replace("e", ".0e") if isinstance(value, float) and "." not in text else text


def _parameters(certificate: Certificate) -> dict[str, float]:
    """The certified epsilon and delta."""
    return {
        name: value.upper if isinstance(value, Interval) else value
        for name, value in (("epsilon", certificate.epsilon), ("delta", certificate.delta))
    }
