"""Columns that overlap far: one-sided bounds on the ratio, for any automaton of an example's participations."""
