"""Engines that reveal the past and bound what is left by the worst posterior of a participation."""
