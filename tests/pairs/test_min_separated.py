"""Which pair a sampler with a minimum separation leads to, and what is certified of it."""

import pytest

from hockeystick import (
    BandedSquareRoot,
    BMinSep,
    ColumnNormalizedBanded,
    Kind,
    Mechanism,
    MultiAttribution,
    Question,
    Settings,
    Side,
    certify,
)
from hockeystick.accountants.registry import ACCOUNTANTS
from hockeystick.certification.verification import verify
from hockeystick.errors import VerificationError
from hockeystick.pairs.known_batches import RevealedBatches
from hockeystick.pairs.registry import dominating_pair
from hockeystick.pairs.renewal_mixture import RenewalMixture
from hockeystick.pairs.truncated_renewal import TruncatedRenewal
from hockeystick.pairs.worst_of import WorstOf
from hockeystick.settings import MonteCarlo


def run_with(sampler: BMinSep | MultiAttribution, noise: float = 2.0) -> Mechanism:
    return Mechanism(strategy=BandedSquareRoot(bands=2), sampler=sampler, noise_multiplier=noise)


def attributed(**changes: object) -> MultiAttribution:
    fields = {"min_sep": 3, "sampling_prob": 0.05, "steps": 9, "examples_per_user": 1} | changes
    return MultiAttribution.model_validate(fields)


def test_truncation_has_a_pair_of_its_own() -> None:
    plain = BMinSep(min_sep=3, sampling_prob=0.05, steps=9)
    capped = BMinSep(min_sep=3, sampling_prob=0.05, steps=9, truncated_batch_size=4, num_examples=50)
    assert type(dominating_pair(run_with(plain))) is RenewalMixture
    assert type(dominating_pair(run_with(capped))) is TruncatedRenewal


def test_users_with_several_examples_of_their_own_are_the_worst_over_their_number() -> None:
    pair = dominating_pair(run_with(attributed(examples_per_user=3)))
    assert isinstance(pair, WorstOf)
    assert [part.examples_per_user for part in pair.parts if isinstance(part, RenewalMixture)] == [1, 2, 3]
    assert pair.full_sensitivity >= max(part.full_sensitivity for part in pair.parts)
    assert type(dominating_pair(run_with(attributed(users_per_example=5)))) is RenewalMixture


def test_users_who_share_examples_get_no_amplification() -> None:
    shared = run_with(attributed(examples_per_user=2, users_per_example=2))
    assert type(dominating_pair(shared)) is RevealedBatches
    certificate = certify(shared, delta=1e-3)
    assert (certificate.method.upper, certificate.method.lower) == ("gaussian", None)
    fields = {"examples_per_user": 2, "users_per_example": 2, "exclusion": "participating"}
    assert dominating_pair(run_with(attributed(**fields))) == dominating_pair(shared)


def test_participating_examples_that_exclude() -> None:
    """Without warm-up the pair is attained; after one it needs equal columns, and others get no amplification."""
    for graph in ({"examples_per_user": 1, "users_per_example": 4}, {"examples_per_user": 2, "users_per_example": 1}):
        pair = dominating_pair(run_with(attributed(exclusion="participating", **graph)))
        members = pair.members if isinstance(pair, WorstOf) else (pair,)
        assert len(members) == graph["examples_per_user"]
        assert all(
            isinstance(member, RenewalMixture) and member.attained and not member.warm_start for member in members
        )
    warm = attributed(exclusion="participating", warm_up_steps=5)
    covered = dominating_pair(run_with(warm))
    assert isinstance(covered, RenewalMixture)
    assert not covered.attained
    columns_differ = Mechanism(strategy=ColumnNormalizedBanded(bands=2), sampler=warm, noise_multiplier=2.0)
    assert type(dominating_pair(columns_differ)) is RevealedBatches
    cold = columns_differ.model_copy(update={"sampler": warm.model_copy(update={"warm_up_steps": 0})})
    assert type(dominating_pair(cold)) is RenewalMixture


def test_the_worst_of_several_numbers_of_examples_covers_each() -> None:
    """Bounds of the whole against bounds of each part; all fail with probability 1e-9 at most."""
    mechanism = run_with(attributed(examples_per_user=2, sampling_prob=0.3))
    question = Question(epsilon=0.5)
    whole = dominating_pair(mechanism)
    method = ACCOUNTANTS["monte_carlo"]

    def settings(seed: int) -> Settings:
        return Settings(question=question, monte_carlo=MonteCarlo(seed=seed, ratio=0.1))

    upper = method.bound(whole, Side.UPPER, settings(1)).delta(0.5)
    for part in whole.members:
        alone = RenewalMixture(**{name: getattr(part, name) for name in part.__dataclass_fields__} | {"attained": True})
        assert upper >= method.bound(alone, Side.LOWER, settings(2)).delta(0.5)
    reason = method.why_not(whole, Side.LOWER)
    assert reason is not None
    assert "only from above" in reason


def test_a_certificate_about_several_members_is_verified() -> None:
    mechanism = run_with(attributed(examples_per_user=2, sampling_prob=0.3))
    certificate = certify(mechanism, epsilon=0.5, monte_carlo=MonteCarlo(seed=1, ratio=0.3))
    assert certificate.kind is Kind.MONTE_CARLO
    assert certificate.monte_carlo is not None
    assert len({run_claim.run.subject for run_claim in certificate.monte_carlo.runs}) == 2
    assert verify(certificate).bounds == certificate.bounds
    first = certificate.monte_carlo.runs[0].run.subject
    fewer = tuple(run_claim for run_claim in certificate.monte_carlo.runs if run_claim.run.subject != first)
    claim = certificate.monte_carlo.model_copy(update={"runs": fewer})
    with pytest.raises(VerificationError, match=r"'delta\.upper'"):
        verify(certificate.model_copy(update={"monte_carlo": claim}).sealed())
