"""Engines that compare the bins' Gaussians with moving averages, the law of whose sum can be computed."""
