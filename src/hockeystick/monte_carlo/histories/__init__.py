"""Columns that overlap far: one-sided bounds on the ratio, and outputs of several histories, for several families."""
