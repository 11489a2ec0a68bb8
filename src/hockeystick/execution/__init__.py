"""Executors spread the chunks of a Monte Carlo run over threads or a cluster, with joblib.

A backend is registered by one line in :mod:`hockeystick.execution.registry`.
"""

from hockeystick.execution.registry import BACKENDS, executor

__all__ = ["BACKENDS", "executor"]
