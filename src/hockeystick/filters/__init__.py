"""Engines of lower bounds: sums over rows, blocks or bins, each judged by a summary of those before."""
