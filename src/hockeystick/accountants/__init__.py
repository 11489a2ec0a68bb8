"""Accountants: one algorithm a file, from a pair to bounds on its privacy profile. ``registry`` lists them.

``base`` says what an accountant is. ``deletion``, ``fresh_bins`` and ``users`` are no accountants: they carry a pair
over to others that accountants know. ``low_noise_bins`` is what three of them share, ``examples`` are tiny pairs to
compile on.
"""
