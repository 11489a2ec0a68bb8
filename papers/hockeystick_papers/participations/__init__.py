"""Posteriors of an example's participations under Poisson sampling."""
