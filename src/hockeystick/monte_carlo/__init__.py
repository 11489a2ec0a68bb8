"""Monte Carlo accounting: importance samples with a proved largest weight, and confidence bounds on their mean.

The way of a question:

* ``families`` finds the :class:`~.proposals.Family` of a pair, which lists ways to draw weighted samples
  (``proposals``).
* ``pilots`` draws small samples that are thrown away, to choose among them.
* ``estimation`` decides what to sample: which directions and sides, at which epsilons, for how long.
* ``runs`` draws the samples in numbered chunks, ``statistics`` and ``confidence`` make bounds of them,
  :mod:`hockeystick.claim` is what a certificate says of that, and ``verification`` derives it again.
* ``whole_curve`` is for many epsilons at once, ``acceptance`` for a mechanism that a random test has accepted,
  ``forgery`` for evidence that somebody else has stored.

A family is a room: ``family`` says which proposals there are, ``proposals`` what their largest weights are and why,
``kernels`` draws. Rooms of families: ``bins``, ``allocations``, ``subsets``, ``renewal``, ``shuffles``, and ``far``,
which is the engine of several more (columns that overlap far, for any automaton of participations). ``tree_kernels`` is
an engine alone (binary trees). Tables that they draw from are in ``moments/copies``.

Proofs: docs/theory/monte-carlo.
"""
