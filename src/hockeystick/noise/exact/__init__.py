"""Noise in whole numbers of grid steps: exactly the law of rounded real Gaussians (docs/theory/exact-noise.md)."""
