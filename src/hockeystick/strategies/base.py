"""What every strategy matrix says of itself."""

from abc import abstractmethod

from hockeystick.spec import Spec


class StrategySpec(Spec):
    """The matrix C of the mechanism ``C x + z``: lower triangular, entrywise non-negative, public.

    Gradients receive the rows of ``C^{-1} z``. A family is one final class in one file.
    """

    @property
    @abstractmethod
    def max_column_norm(self) -> float:
        """Largest l2 norm of a column of C: the sensitivity of one participation, in clipping norms."""
