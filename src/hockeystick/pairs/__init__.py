"""Dominating pairs: the two distributions that an adversary has to tell apart. ``registry`` names one for each
strategy and sampler.
"""
