"""Bridges to other libraries.

dp_accounting is an optional extra; Opacus, JAX Privacy and opake are read by the names of their fields and not needed.
"""

from hockeystick.lazily import loaded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hockeystick.interop.dp_accounting import from_pld, to_pld
    from hockeystick.interop.dp_events import from_dp_event, phases_from_dp_event, phases_to_dp_event, to_dp_event
    from hockeystick.interop.jax_privacy import (
        from_jax_privacy,
        generator_from_jax_privacy,
        sampler_from_jax_privacy,
        sampler_to_jax_privacy,
        to_jax_privacy,
    )
    from hockeystick.interop.opacus import from_opacus, to_opacus
    from hockeystick.interop.opake import from_opake, to_opake

_HOMES = {
    "from_dp_event": "dp_events",
    "from_jax_privacy": "jax_privacy",
    "from_opacus": "opacus",
    "from_opake": "opake",
    "from_pld": "dp_accounting",
    "generator_from_jax_privacy": "jax_privacy",
    "phases_from_dp_event": "dp_events",
    "phases_to_dp_event": "dp_events",
    "sampler_from_jax_privacy": "jax_privacy",
    "sampler_to_jax_privacy": "jax_privacy",
    "to_dp_event": "dp_events",
    "to_jax_privacy": "jax_privacy",
    "to_opacus": "opacus",
    "to_opake": "opake",
    "to_pld": "dp_accounting",
}

__all__ = [
    "from_dp_event",
    "from_jax_privacy",
    "from_opacus",
    "from_opake",
    "from_pld",
    "generator_from_jax_privacy",
    "phases_from_dp_event",
    "phases_to_dp_event",
    "sampler_from_jax_privacy",
    "sampler_to_jax_privacy",
    "to_dp_event",
    "to_jax_privacy",
    "to_opacus",
    "to_opake",
    "to_pld",
]


def __getattr__(name: str) -> object:
    globals()[name] = value = loaded(__name__, _HOMES, name)
    return value
