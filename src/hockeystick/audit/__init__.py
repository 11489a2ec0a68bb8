"""Audits test whether the code that ran does what its certificate says.

:func:`sampler` looks at batches, :func:`noise` at rows of noise, :func:`mechanism` at the outputs of both against a
certificate, :func:`replay` at a training loop, and :func:`canaries` and :func:`guesses` at one run of a model. All
return a :class:`Verdict`; :func:`addendum` says what they mean for the assumptions of a certificate.
:func:`invariance` looks at the bits of a model's per-example gradients, and returns what changed. The names load on
first use.
"""

from hockeystick.lazily import loaded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hockeystick.audit.annex import Addendum, addendum
    from hockeystick.audit.canary_scores import CanaryScores
    from hockeystick.audit.canary_set import Canaries, canaries
    from hockeystick.audit.loaders import batches_of
    from hockeystick.audit.one_run import guesses
    from hockeystick.audit.outputs import mechanism
    from hockeystick.audit.replaying import replay
    from hockeystick.audit.sampling import sampler
    from hockeystick.audit.tape import Tape
    from hockeystick.audit.verdict import EpsilonInterval, Finding, Verdict
    from hockeystick.audit.whiteness import noise
    from hockeystick.training.torch.invariance import invariance

_HOMES = {
    "Addendum": "annex",
    "Canaries": "canary_set",
    "CanaryScores": "canary_scores",
    "EpsilonInterval": "verdict",
    "Finding": "verdict",
    "Tape": "tape",
    "Verdict": "verdict",
    "addendum": "annex",
    "batches_of": "loaders",
    "canaries": "canary_set",
    "guesses": "one_run",
    "invariance": ".training.torch.invariance",
    "mechanism": "outputs",
    "noise": "whiteness",
    "replay": "replaying",
    "sampler": "sampling",
}

__all__ = [
    "Addendum",
    "Canaries",
    "CanaryScores",
    "EpsilonInterval",
    "Finding",
    "Tape",
    "Verdict",
    "addendum",
    "batches_of",
    "canaries",
    "guesses",
    "invariance",
    "mechanism",
    "noise",
    "replay",
    "sampler",
]


def __getattr__(name: str) -> object:
    globals()[name] = value = loaded(__name__, _HOMES, name)
    return value
