"""Several runs, one claim: composition, phases, and the choice of the best of several trials.

Proofs: docs/theory/composition.md.
"""
