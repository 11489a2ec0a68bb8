"""One small example of every strategy; a new kind needs a line here."""

from pathlib import Path

from hockeystick import strategies as s

STEPS = 8
"""Every example has a matrix for this many steps; ``custom.npy`` is 8 x 8."""

EXAMPLES: dict[str, s.StrategySpec] = {
    strategy.kind: strategy
    for strategy in (
        s.Identity(),
        s.BandedSquareRoot(bands=3),
        s.BandedInverseSquareRoot(bands=3),
        s.BandedInverseFractionalRoot(bands=3, exponent=0.7),
        s.SquareRoot(),
        s.BandedToeplitz(bands=3),
        s.ColumnNormalizedBanded(bands=3),
        s.BandedInverse(bands=2),
        s.BufferedToeplitz(buffers=2),
        s.BinaryTree(),
        s.TreeRestart(height=3),
        s.Dense(epochs=2),
        s.Custom(path=str(Path(__file__).parent / "custom.npy")),
    )
}
