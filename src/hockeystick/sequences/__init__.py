"""Engines that compare the bins' Gaussians with sequences whose law can be computed: chains and moving averages."""
