"""Attack numbers of a release whose profile was looser: true when issued, true now, and none below them passes."""

import json
from functools import cache
from typing import Any

import pytest

from hockeystick import Bound, Certificate, Mechanism, Poisson, bound, certify, verify
from hockeystick.attacks.numbers import REGRET_ROUNDING, regret_of
from hockeystick.certificate import AttackNumbers
from hockeystick.certification.issue import PORTABLE, attack_numbers, implied_bound, portable, tighter
from hockeystick.certification.schedule import Outcome
from hockeystick.errors import VerificationError
from hockeystick.pairs.registry import dominating_pair
from hockeystick.settings import Settings
from hockeystick.types import Kind, Side

DELTA = 1e-3
RUN = Mechanism(sampler=Poisson(sampling_prob=0.2, steps=5), noise_multiplier=1.0)
LOOSER = 0.93
"""With so much less noise the profile is larger everywhere: an upper bound of ``RUN`` that a release may have had."""


@cache
def present() -> tuple[Certificate, Bound, Bound]:
    """Today's certificate, what its claim implies, and the smaller of that and today's profile."""
    certificate = certify(RUN, delta=DELTA, method="direct")
    upper = certificate.bounds.upper
    end = Outcome("direct", Side.UPPER, Kind.DETERMINISTIC, 1.0, upper, 0.0, "ok")
    implied = implied_bound(dominating_pair(RUN), certificate.question, end, upper, Settings())
    return certificate, implied, tighter(implied, bound(RUN, "direct"))


@cache
def former() -> AttackNumbers:
    """What a release with the looser profile stated for the same pair of numbers."""
    _, implied, _ = present()
    looser = tighter(implied, bound(RUN.with_noise(LOOSER * RUN.sigma), "direct"))
    return portable(attack_numbers(looser, DELTA)).model_copy(update={"basis": "profile"})


def stating(numbers: AttackNumbers, **changes: Any) -> Certificate:
    content = present()[0].content()
    content["numbers"] = numbers.model_dump(mode="json") | changes
    return Certificate.parse_json(json.dumps(content)).sealed()


def test_an_older_regret_is_below_that_of_the_present_profile_and_verifies() -> None:
    certificate, _, today = present()
    numbers = former()
    assert numbers.gdp_mu is not None
    assert numbers.gdp_regret is not None
    now = regret_of(today, DELTA, numbers.gdp_mu / (1.0 + PORTABLE))
    assert now is not None
    assert numbers.gdp_regret < now - 100.0 * REGRET_ROUNDING  # so it is no upper bound of today's regret
    assert all(value >= getattr(certificate.numbers, name) for name, value in numbers if name in FORGED)
    verify(stating(numbers))


FORGED = ("advantage", "bayes_success", "tpr_at_fpr_0_1", "tpr_at_fpr_0_01", "tpr_at_fpr_0_001", "gdp_mu")


@pytest.mark.parametrize("name", FORGED)
def test_a_number_below_what_is_proved_today_is_refused_however_loose_the_others_are(name: str) -> None:
    least = getattr(present()[0].numbers, name)
    verify(
        stating(former(), **{name: least * (1.0 + 1e-9)}) if name not in ("advantage", "gdp_mu") else stating(former())
    )
    with pytest.raises(VerificationError, match="numbers"):
        verify(stating(former(), **{name: least * (1.0 - 1.01 * PORTABLE)}))


def test_a_mu_that_describes_no_profile_with_the_stated_numbers_needs_its_regret() -> None:
    """At epsilon 0 the profile was the advantage, whichever it was: mu loses half of what its own is beyond that."""
    numbers = former()
    assert numbers.gdp_mu is not None
    with pytest.raises(VerificationError, match="numbers"):
        verify(stating(numbers, gdp_mu=2.0 * numbers.gdp_mu))
    with pytest.raises(VerificationError, match="numbers"):
        verify(stating(numbers, gdp_regret=0.0))


def test_a_regret_below_that_of_the_stated_mu_and_advantage_is_refused() -> None:
    for numbers in (present()[0].numbers, former()):
        assert numbers.gdp_regret is not None
        verify(stating(numbers, gdp_regret=numbers.gdp_regret - 0.9 * 0.1 * REGRET_ROUNDING))
        with pytest.raises(VerificationError, match="numbers"):
            verify(stating(numbers, gdp_regret=numbers.gdp_regret - 1.2 * 0.1 * REGRET_ROUNDING))
