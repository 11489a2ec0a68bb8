"""Evidence: the chunks that Monte Carlo bounds rest on, kept in one file, merged, and drawn again to check them."""

from hockeystick.evidence.checking import Redrawn, recheck, redraw
from hockeystick.evidence.rows import RunSummary
from hockeystick.evidence.store import EvidenceStore, Health

__all__ = ["EvidenceStore", "Health", "Redrawn", "RunSummary", "recheck", "redraw"]
