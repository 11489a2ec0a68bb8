"""Methods that certificates may name, and that this library does not have any more: some are gone, some in the papers.

Whatever proves at least the claim stands in for those that are not installed when a certificate is verified. They stay
here for as long as certificates are read, with what those certificates say of them.
"""

from dataclasses import dataclass

from hockeystick.types import Side


@dataclass(frozen=True, kw_only=True)
class Retired:
    """A method that certifies no more.

    Attributes:
        name: how certificates call it.
        since: the first version whose library does not have it.
        summary: what it was.
        sides: the sides that it bounded.
        reference: what certificates say that its proof is.
        assumes: what the run has to satisfy beyond what its mechanism says, as certificates by it do.
        in_papers: whether the package ``hockeystick_papers`` has it.
    """

    name: str
    since: str
    summary: str
    sides: tuple[Side, ...]
    reference: str
    assumes: str | None = None
    in_papers: bool = False


RETIRED = {
    method.name: method
    for method in (
        Retired(
            name="block_statistic",
            since="0.1.0",
            summary="the sum of one curved function of every block of rows, for b-min-sep sampling",
            sides=(Side.LOWER,),
            reference="post-processing; proof in docs/theory/separated-windows.md",
        ),
        Retired(
            name="hidden_chain",
            since="0.1.0",
            summary="the bins' Gaussians replaced by a Markov chain beside white noise, for low noise",
            sides=(Side.UPPER, Side.LOWER),
            reference="docs/theory/hidden-chains.md",
        ),
        Retired(
            name="renyi",
            since="0.1.0",
            summary="Renyi divergences with exact moments, the classical moments accountant",
            sides=(Side.UPPER,),
            reference="Canonne, Kamath, Steinke 2020, Proposition 12; Mironov, Talwar, Zhang 2019; "
            "feldman-shenfeld-2025, Theorem 4.6 and Lemma 3.11",
            in_papers=True,
        ),
        Retired(
            name="analytic",
            since="0.1.0",
            summary="random allocation as Poisson sampling at a slightly larger rate, plus a small delta",
            sides=(Side.UPPER,),
            reference="feldman-shenfeld-2025, Theorem 3.2 and Corollary 3.12; docs/theory/allocation.md",
            in_papers=True,
        ),
        Retired(
            name="decomposition",
            since="0.1.0",
            summary="random allocation as Poisson sampling given at least one visit",
            sides=(Side.UPPER,),
            reference="feldman-shenfeld-2025, Theorem 4.1 and Lemma 4.2; docs/theory/allocation.md",
            in_papers=True,
        ),
        Retired(
            name="bin_renyi",
            since="0.1.0",
            summary="moments of the bins' mixture, exact for banded matrices; covariance comparison for add",
            sides=(Side.UPPER,),
            reference="docs/theory/bins-moments.md; schuchardt-kalinin-2026, section 3",
            in_papers=True,
        ),
        Retired(
            name="mmcc",
            since="0.1.0",
            summary="bounds the chance of every participation given the earlier rows, then composes the rows",
            sides=(Side.UPPER,),
            reference="docs/theory/subsets/mmcc.md; choquette-choo-2024, Theorem 4.3",
            in_papers=True,
        ),
        Retired(
            name="generalized_mmcc",
            since="0.1.0",
            summary="mmcc by blocks of rows for cyclic Poisson sampling; exact where the bands fit into one round",
            sides=(Side.UPPER,),
            reference="docs/theory/subsets/mmcc.md; choquette-choo-2024, Theorem D.1 with a corrected budget",
            in_papers=True,
        ),
        Retired(
            name="shuffled_tree",
            since="0.1.0",
            summary="one shuffled binary tree with gradients that are fixed beforehand (not for training)",
            sides=(Side.UPPER,),
            reference="docs/theory/subsets/shuffled-tree.md; after choquette-choo-2024, section 5",
            assumes="Fix what every example contributes to every step beforehand: it must not depend on anything that "
            "the run releases, as the gradients of a training run do.",
            in_papers=True,
        ),
    )
}
