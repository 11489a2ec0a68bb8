"""Engines that cut a run into windows of steps, whose laws are independent or linked, and compose."""
