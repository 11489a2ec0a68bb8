"""Engines of lower bounds: sums over rows or bins, each judged by a summary of those before."""
