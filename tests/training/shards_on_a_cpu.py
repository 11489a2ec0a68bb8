"""Whether torch runs models of ``fully_shard`` on a CPU, as these tests do: 2.6 does not, 2.13 does."""

import pytest
import torch

RUN = hasattr(torch.cpu.Stream, "record_event")
needed = pytest.mark.skipif(not RUN, reason="needs a torch that runs models of fully_shard on a CPU")
