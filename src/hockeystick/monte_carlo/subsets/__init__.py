"""The family of Poisson and cyclic Poisson: by a recursion, and for binary trees (``trees``)."""
