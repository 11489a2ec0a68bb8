"""What an experiment trains and tests on."""

from dataclasses import dataclass

import numpy as np

import hockeystick as hs

ORDER = 0
"""Seeds the one order of the examples."""


@dataclass(frozen=True)
class Task:
    """Points and labels to train and to test on.

    Attributes:
        x, y, test_x, test_y: the first axis counts examples; labels are whole numbers from 0.
        classes: how many labels there are.
        attribution: of the training examples to users, for samplers that need it.
    """

    x: np.ndarray
    y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray
    classes: int
    attribution: hs.Attribution | None = None
