"""Bridges to other libraries.

dp_accounting is an optional extra; Opacus, JAX Privacy and opake are read by the names of their fields and not needed.
"""
