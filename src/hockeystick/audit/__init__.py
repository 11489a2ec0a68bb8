"""Audits: does the code that ran do what its certificate says?

:func:`sampler` looks at batches, :func:`noise` at rows of noise, :func:`mechanism` at the outputs of both against a
certificate, and :func:`replay` at a training loop. All return a :class:`Verdict`.
"""

from hockeystick.audit.loaders import batches_of
from hockeystick.audit.outputs import mechanism
from hockeystick.audit.replaying import replay
from hockeystick.audit.sampling import sampler
from hockeystick.audit.tape import Tape
from hockeystick.audit.verdict import EpsilonInterval, Finding, Verdict
from hockeystick.audit.whiteness import noise

__all__ = [
    "EpsilonInterval",
    "Finding",
    "Tape",
    "Verdict",
    "batches_of",
    "mechanism",
    "noise",
    "replay",
    "sampler",
]
