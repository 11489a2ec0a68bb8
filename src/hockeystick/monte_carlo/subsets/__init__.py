"""The family of Poisson and cyclic Poisson: by a recursion, with many bands (``many_bands``), and trees (``trees``)."""
