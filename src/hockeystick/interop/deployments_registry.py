"""Entries for OpenDP's registry of deployments, from certificates.

The layout is that of the registry in July 2026. An entry is a draft: what a certificate does not know, but the registry
requires, says so, and whoever deploys completes it. What should not be published is left out.
"""

import json
import re
from typing import TYPE_CHECKING, Any

from hockeystick.certificate import Certificate, CertificateBase, Interval
from hockeystick.errors import UnsupportedError
from hockeystick.report.certificate import document

if TYPE_CHECKING:
    from hockeystick.training import RunRecord

UNKNOWN = "To be completed."
UNKNOWN_DATE = "9999-12-31"
"""The registry requires a date. This one is valid and cannot be mistaken for a publication date."""
_FILLED = 2
"""The tier of the registry whose fields a certificate fills: the numbers, the unit and the kind of release."""


def registry_entry(certificate: CertificateBase, record: "RunRecord | None" = None) -> dict[str, Any]:
    """The entry as plain data; epsilon and delta are the certified upper ends.

    With the record of its run, the justification says which assumptions the run checked.

    Raises: UnsupportedError for a certificate of format 1, which does not say enough.

    >>> import hockeystick as hs
    >>> run = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.01, steps=100), noise_multiplier=1.0)
    >>> registry_entry(hs.certify(run, delta=1e-5))["deployment"]["privacy_loss"]["privacy_unit"]
    'example'
    """
    if not isinstance(certificate, Certificate):
        raise UnsupportedError("A certificate of format 1 has no registry entry; certify its mechanism again.")
    said, steps = certificate.statements, certificate.rates.steps
    rows = {section.heading: section.rows for section in document(certificate, public=True, record=record).sections}
    relations = [certificate.adjacency, *certificate.also_holds_for]
    tuning = {} if said.tuning is None else {"preprocessing_and_hyperparameter_tuning": said.tuning}
    deployment = {
        "basic": {
            "name": said.label or UNKNOWN,
            "data_curators": [UNKNOWN],
            "intended_use": UNKNOWN,
            "data_product_type": "Machine learning model",
            "data_product_region": UNKNOWN,
            "description": UNKNOWN,
            "publication_date": said.date or UNKNOWN_DATE,
        },
        "dp_variant": {
            "variant_name": "Approximate DP",
            "unprotected_quantities": " ".join(
                (*certificate.not_covered, *(() if certificate.bits is None else certificate.bits.not_covered))
            ),
        },
        "privacy_loss": {
            "privacy_unit": certificate.unit,
            "privacy_unit_details": f"{certificate.neighbours} Relations: {', '.join(relations)}.",
            "privacy_parameters": _parameters(certificate),
            "privacy_parameters_details": f"{certificate.sentence} Confidence {certificate.confidence!r}.",
        },
        "deployment_model": {
            "model_name": "Central",
            "actors": " ".join(
                f"{actor.who.capitalize()} ({'trusted' if actor.trusted else 'not trusted'}) sees {actor.sees}."
                for actor in certificate.actors
            ),
            "release_type": "Many releases" if steps > 1 else "One release",
            "release_type_details": certificate.released,
            "data_source_type": "Static",
            "access_type": "Non-interactive",
        },
        "accounting": {
            "post_processing": certificate.prefixes,
            "composition": f"Upper bound by {certificate.method.upper} ({'; '.join(certificate.references)}), over "
            f"{steps} {'steps' if steps > 1 else 'step'}.",
        },
        "implementation": {
            **tuning,
            "mechanisms": " ".join(f"{row.name.capitalize()}: {row.text}." for row in rows["what was run"]),
            "justification": " ".join(f"[{row.name}] {row.text}" for row in rows["the claim holds if"]),
        },
        "administrative": {
            "sources": f"Certificate with SHA-256 {certificate.digest}; recompute it with '{certificate.recompute}'.",
            "notes": f"A draft by hockeystick {certificate.hockeystick_version}. Complete what says {UNKNOWN!r}"
            f"{'' if said.date else f', and the publication date instead of {UNKNOWN_DATE}'}.",
            "registry_authors": [UNKNOWN],
        },
    }
    return {
        "url_slug": _slug(said.label) or f"run-{certificate.digest[:12]}",
        "status": "Draft",
        "tier": _FILLED,
        "deployment": deployment,
    }


def registry_yaml(certificate: CertificateBase, record: "RunRecord | None" = None) -> str:
    """The entry as a YAML document; raises as :func:`registry_entry` does."""
    return "\n".join(_block(registry_entry(certificate, record))) + "\n"


def _slug(label: str | None) -> str:
    """The letters and digits of a label, with hyphens between its words.

    >>> _slug("MNIST, run 7")
    'mnist-run-7'
    """
    return re.sub("[^a-z0-9]+", "-", (label or "").lower()).strip("-")


def _block(value: dict[str, Any] | list[Any]) -> list[str]:
    """Lines of YAML for what is not empty."""
    marked = (
        [(f"{name}:", inside) for name, inside in value.items()]
        if isinstance(value, dict)
        else [("-", inside) for inside in value]
    )
    lines = []
    for mark, inside in marked:
        if isinstance(inside, dict | list) and inside:
            lines += [mark, *(f"  {line}" for line in _block(inside))]
        else:
            lines.append(f"{mark} {_scalar(inside)}")
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
