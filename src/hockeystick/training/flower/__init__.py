"""Federated rounds with Flower whose cohorts, clipping and noise are those of a plan. Needs the extra ``flower``.

:class:`Strategy` takes the place of ``flwr.serverapp.strategy.FedAvg``; client apps stay as they are.
"""

from hockeystick.errors import install

try:
    import flwr.serverapp.strategy as _strategy  # noqa: F401
except ImportError as error:
    raise ImportError(f"hockeystick.flower needs flwr ({error}); {install('flower')}.") from error

from hockeystick.training.flower.strategy import Strategy

__all__ = ["Strategy"]
