"""Posteriors of an example's bin."""
