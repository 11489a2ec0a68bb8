"""Workers of clusters must be able to import the proposals of these tests."""

import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

HERE = str(Path(__file__).parent)


@pytest.fixture(scope="session")
def proposals() -> Iterator[ModuleType]:
    """The module ``sampled_proposals``, which is on the path of the workers too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(HERE)
        patch.setenv("PYTHONPATH", os.pathsep.join([HERE, *filter(None, [os.environ.get("PYTHONPATH")])]))
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):  # for the workers, who read it when they start
            patch.setenv(name, "1")
        yield importlib.import_module("sampled_proposals")
