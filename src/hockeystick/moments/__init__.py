"""Exact moments of likelihood ratios, and profiles from them."""
