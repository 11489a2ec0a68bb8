"""Makes ``strategy_examples`` importable from every test of this folder."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
