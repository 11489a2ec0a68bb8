"""Noise that kernels in Triton make on a device of torch: the bits of the processor's (docs/theory/exact-noise.md).

Nothing is imported here; :mod:`hockeystick.noise.devices.choice` says whether kernels can be used before any is.
"""
