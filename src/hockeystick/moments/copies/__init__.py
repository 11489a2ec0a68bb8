"""Moments of a likelihood ratio from several copies of the participations, as tables that can be drawn from.

The moment of order a is a sum over a copies, or tuples of histories, of e to what participations have in common.
Each file follows the copies in another way: ``renewal`` who waits; ``counts``, ``trees`` and ``allocations`` how many
take part together; ``fields`` too, with a field in place of what they have in common. A table proves a moment from
above, and its entries are the chances of the next draw: Monte Carlo draws from them.
"""
