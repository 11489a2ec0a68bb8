"""Polynomials above or below the hockey stick, each with a certificate of its own."""
