"""The search for the smallest certified noise multiplier: cheap looks first, few runs of the best method last.

Looks on coarse grids find the method that is best near the solution, and about where that is. Then secants lead from
run to run of that method, with the settings of ``certify``; its last bound is a part of the certificate, and methods
that were far looser are left out of it. Whatever is returned was certified: that the search is short makes nothing
unsound, and a noise multiplier at worst larger than it might be.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import exp, inf, log

from hockeystick.accountants.registry import ACCOUNTANTS, DEFAULT, accountant
from hockeystick.bounds import Question
from hockeystick.bracketing import APPROACHES, nearly_smallest_passing, smallest_passing, steepness_at
from hockeystick.calibration.first_guess import SLOPE, Guess, first_guess, rough_guess, unamplified_guess
from hockeystick.calibration.outcomes import Answer, middle, settled, uppers
from hockeystick.certificate import Certificate
from hockeystick.certification.issue import PORTABLE, certificate_of
from hockeystick.certification.schedule import (
    COARSE_NODES,
    CUT_OFF,
    Outcome,
    best,
    chosen_accountants,
    gap_within,
    run_accountants,
    settings_for,
)
from hockeystick.deadline import Deadline
from hockeystick.errors import BudgetExceededError
from hockeystick.laws.grid import Resolution
from hockeystick.mechanism import Mechanism
from hockeystick.pairs.registry import dominating_pair
from hockeystick.settings import SearchPolicy, Settings
from hockeystick.spec import LARGEST_NOISE, SMALLEST_NOISE
from hockeystick.types import Kind, Side

WIDTH, COARSE_WIDTH = 3e-4, 5e-3
"""Relative width of the final bracket, within which the answer is the smallest certified noise; and on coarse grids."""
CLOSED_WIDTH = 1e-6
"""The first where the bound is the Gaussian's closed form, which costs nothing."""
LOOK_WIDTH, FIRST_WIDTH = 4e-2, 0.5
"""How far a secant may lead where another search follows, and the width for a first answer."""
MOST_LED = 1.0
"""Logarithm of the distance from the target over which a secant of light methods says where to look at heavy ones."""
EVALUATIONS = 20.0
"""About how many times a quick calibration runs the chosen method."""
LOOKS = 7.0
"""A method is looked at where the planned work allows so many runs of it."""
LOOK_EFFORT = 0.4
"""Share of the effort of a run for a look. With a tenth, moment majorants lack the orders that settle them, and coarser
relaxations take as long without being as close."""
QUICK = 0.6
"""Standard seconds; where others take longer, the methods below give a first answer before the search for the best."""
HEAVY = 3.0
"""Standard seconds; a lighter method is tried however little work may be planned."""
METHOD_GOAL = 5e-3
"""Relative gap on coarse grids at which the search for the best method stops."""
QUIETER = 0.2
"""Factor to less noise where there is so much that epsilon is 0."""
MEETING_GOAL = 1e-2
"""The same for a method whose sides should nearly meet, which they do more closely with less noise."""
FAR = 0.3
"""Logarithm of the distance from the target at which methods are looked at once more, closer to it."""
NEARER = 3.0
"""Runs of a method that may be spent to come closer, over the standard seconds of all heavier methods together."""
LIGHT, SLOW = 0.25, 0.1
"""From so many standard seconds a method may be left out at the end, and from this share of the work it is slow."""
LOOSER, NEAR_LOOSER, SLOW_LOOSER = 1.25, 1.03, 1.01
"""Methods, heavy ones near the target that plan no effort, and slow ones, that come to more times the least epsilon on
coarse grids are left out at the end."""
BESIDE = 0.3
"""Standard seconds of light methods that are left out at the end where both sides of the chosen one nearly meet."""
LOWER = 1.1
"""Lower bounds that come to less than the largest one over this on coarse grids are left out at the end."""
NEXT_TO_NOTHING = 1e-2
"""Standard seconds of accountants that bound from below alone and are run all the same when methods are looked at."""


class NoiseSearch:
    """The search for the smallest certified noise multiplier; it remembers the best that is certified so far.

    Args:
        epsilon: the target; the search aims below it by what issuing a certificate gives away.
        method: the accountant to use; None to find the best.
    """

    def __init__(
        self,
        mechanism: Mechanism,
        question: Question,
        epsilon: float,
        method: str | None,
        deadline: Deadline,
        policy: SearchPolicy,
    ) -> None:
        assert question.delta is not None
        self.mechanism, self.question, self.epsilon = mechanism, question, epsilon * (1.0 - 2.0 * PORTABLE)
        self.methods, self.policy = None if method is None else [method], policy
        pair = dominating_pair(mechanism.with_noise(1.0))
        self.full = settings_for(question, pair, deadline, policy=policy)
        if self.methods:
            chosen_accountants(self.methods, dominating_pair(mechanism.with_noise(LARGEST_NOISE)), self.full)
        self.fine = replace(self.full, effort=policy.effort(EVALUATIONS))
        coarse = Resolution(COARSE_NODES, question.delta)
        self.coarse = Settings(coarse, deadline, question, effort=LOOK_EFFORT * self.fine.effort)
        self.best: Answer | None = None
        self.certified: Answer | None = None
        """What the last certificate is of."""
        self.cut: list[Outcome] = []
        """What the deadline cut off, with about the seconds that a whole calibration by that method takes."""
        self.from_below: float | None = None
        """About the noise multiplier at which lower bounds are at the target, where a first look has found some."""
        self.known: dict[tuple[float, float, Resolution], list[Outcome]] = {}
        """What was said with some effort on some grids, by noise multiplier."""
        self.seen: dict[tuple[str, float, Resolution], dict[float, float]] = {}
        """What each method came to, by noise multiplier."""
        self.slope = 1.0 / SLOPE
        self.guess: Guess | None = None
        """Where quick methods come near the target, where closed forms know it roughly."""
        self.looser: frozenset[tuple[str, Side]] = frozenset()

    def certificate(self) -> Certificate:
        """The certificate of :meth:`answer`."""
        self.certified = self.answer()
        return self._issued(self.certified)

    def answer(self) -> Answer:
        """About the smallest noise multiplier that is certified, or the best so far when the deadline passes."""
        try:
            final = self._searched(self._first_answer(self._start()))
        except BudgetExceededError:
            final = None
        if final is None or not self._meets(final.stated):
            return self._so_far()  # certify may skip a heavy method where a cheap one nearly suffices
        return final

    def _start(self) -> float:
        """Where looks begin: about at the solution where closed forms know it, else where the Gaussian passes."""
        delta, pair = self.question.delta, dominating_pair(self.mechanism.with_noise(1.0))
        assert delta is not None
        most = unamplified_guess(pair, self.epsilon, delta)
        unamplified = self.smallest(["gaussian"], self.coarse, most, COARSE_WIDTH)
        self.guess = rough_guess(pair, self.epsilon, delta)
        guess = first_guess(pair, self.epsilon, delta)
        if guess is None or guess.noise >= unamplified:
            return unamplified
        self.slope = guess.slope
        return guess.noise

    def answer_meets(self, question: Question) -> bool:
        """Whether the bound behind the last certificate is at most the target for this question too.

        Not where the deadline passes before that is known: some profiles compute when they are asked.
        """
        assert self.certified is not None
        assert self.certified.upper.bound is not None
        try:
            return self._meets(question.answer(self.certified.upper.bound) * (1.0 + PORTABLE))
        except BudgetExceededError:
            return False

    def rough(self, near: float) -> Certificate:
        """The certificate of the least noise on coarse grids, or of the best so far when the deadline passes."""
        near = min(near, self.smallest(["gaussian"], self.coarse, near, COARSE_WIDTH))
        try:
            affordable = self.methods or self._affordable(near)
            outcomes = self.run(near, affordable, self.coarse, (Side.UPPER, Side.LOWER), METHOD_GOAL)
            least, lowest = best(outcomes, Side.UPPER), best(outcomes, Side.LOWER)
            if lowest is not None and lowest.value:
                self.from_below = near * (lowest.value / self.epsilon) ** SLOPE
            if least is not None and least.value is not None and least.method != "gaussian":
                near *= (least.value / self.epsilon) ** SLOPE
                self.smallest([least.method], self.coarse, near, COARSE_WIDTH)
        except BudgetExceededError:
            pass
        return self._issued(self._so_far(), whole=False)

    def refined(self, method: str, near: float) -> Certificate:
        """The certificate of the least noise on fine grids by one method, or of the best so far."""
        self.smallest(["gaussian"], self.coarse, near, COARSE_WIDTH)
        try:
            self.approach(method, self.fine, near, WIDTH)
            assert self.best is not None
            below = self.run(self.best.noise, [method], self.fine, (Side.LOWER,))
            self.best = replace(self.best, outcomes=[*self.best.outcomes, *below])
        except BudgetExceededError:
            pass
        return self._issued(self._so_far(), whole=False)

    def approach(self, method: str, settings: Settings, start: float, width: float) -> float:
        """About the smallest noise multiplier that passes with a method, in few evaluations; it has passed."""
        seen = self._values(method, settings)
        answer = nearly_smallest_passing(
            lambda noise: self.upper(noise, [method], settings), self.epsilon, start, width, self.slope, seen
        )
        self.slope = steepness_at(seen, answer) or self.slope
        return answer

    def _values(self, method: str, settings: Settings) -> dict[float, float]:
        """The epsilons of a method with these settings that are known, by noise multiplier."""
        return self.seen.setdefault((method, settings.effort, settings.resolution), {})

    def _so_far(self) -> Answer:
        """The least noise that has passed, with what the deadline cut off."""
        assert self.best is not None  # the Gaussian has passed
        return replace(self.best, outcomes=[*self.best.outcomes, *self.cut])

    def smallest(self, methods: Sequence[str] | None, settings: Settings, start: float, width: float) -> float:
        """The smallest noise multiplier that passes with these methods, to a relative ``width``."""
        _, passes = smallest_passing(lambda noise: self.upper(noise, methods, settings), self.epsilon, start, width)
        return passes

    def upper(self, noise: float, methods: Sequence[str] | None, settings: Settings) -> float:
        """The certified epsilon; raises BudgetExceededError when the deadline cuts a method off."""
        both = methods is None  # as certify, which stops when the two sides meet
        sides = (Side.UPPER, Side.LOWER) if both else (Side.UPPER,)
        least = best(self.run(noise, methods, settings, sides), Side.UPPER)
        return inf if least is None or least.value is None else least.value

    def run(
        self, noise: float, methods: Sequence[str] | None, settings: Settings, sides: Sequence[Side], goal: float = 0.0
    ) -> list[Outcome]:
        """The outcomes at a noise multiplier; those that pass with the least noise are remembered."""
        pair = dominating_pair(self.mechanism.with_noise(noise))
        if methods is not None:  # some of them need more noise than others
            methods = [name for name in methods if accountant(name).why_not(pair, Side.UPPER) is None]
        policy = replace(self.policy, gap_goal=goal, heavy=NEXT_TO_NOTHING) if goal else self.policy
        last = settings is self.full and len(sides) > 1
        whole = last and methods == self.methods
        known = self.known.setdefault((noise, settings.effort, settings.resolution), [])
        outcomes = run_accountants(
            pair,
            self.question,
            settings,
            policy=policy,
            methods=methods,
            sides=sides,
            near=None if last else self.epsilon,  # at its defaults, exactly as certify does
            known=known,
            looser=self.looser if whole else (),
        )
        known.extend(outcomes)
        for outcome in outcomes:
            if outcome.side is Side.UPPER and outcome.value is not None:
                self._values(outcome.method, settings)[noise] = outcome.value
        least = best(outcomes, Side.UPPER)
        passes = least is not None and least.value is not None and least.value <= self.epsilon
        if passes and (self.best is None or noise <= self.best.noise):
            self.best = Answer(noise, outcomes, settings)
        self.cut = [
            replace(outcome, needs=EVALUATIONS * outcome.needs)
            for outcome in outcomes
            if outcome.needs is not None and outcome.status.startswith(CUT_OFF)
        ]
        if self.cut and methods != ["gaussian"]:
            raise BudgetExceededError("The deadline passed during the calibration.")
        return outcomes

    def _first_answer(self, start: float) -> float:
        """Remember and report what quick methods certify; other looks begin where they came closest to the target."""
        affordable = self._affordable(start)
        pair = dominating_pair(self.mechanism.with_noise(start))
        quick = [name for name in affordable if accountant(name).seconds(pair) <= QUICK]
        if self.methods is None and {"gaussian"} < set(quick) < set(affordable):
            upper = partial(self.upper, methods=quick, settings=self.coarse)
            guess = self.guess or Guess(start, self.slope)
            first = min(guess.noise, start)
            passes = nearly_smallest_passing(upper, self.epsilon, first, FIRST_WIDTH, guess.slope, {})
            self._report()
            assert self.best is not None  # the Gaussian has passed
            seen = self._values(self.best.upper.method, self.coarse)
            # What one look is enough for is hardly amplified, and falls about as the Gaussian does.
            alike = None if self.guess else steepness_at(self._values("gaussian", self.coarse), passes)
            self.slope = steepness_at(seen, passes) or alike or guess.slope
            start = min(start, self._closest(seen))
        return start

    def _closest(self, seen: Mapping[float, float]) -> float:
        """The noise multiplier whose epsilon is nearest to the target."""
        return min(seen, key=lambda noise: abs(log(seen[noise] / self.epsilon)) if seen[noise] > 0.0 else inf)

    def _report(self) -> None:
        """Report the smallest noise multiplier that is certified so far."""
        assert self.best is not None  # the Gaussian has passed
        self.full.deadline.report(
            f"noise_multiplier = {self.best.noise!r} is certified so far ({self.best.upper.method}); looking for less"
        )

    def _searched(self, start: float) -> Answer:
        """What certify says of the least noise of the best method; up to twice, as it may say that another is best."""
        chosen, near = self._best_method(start)
        for _ in range(2):
            if chosen != "gaussian" or self.methods:
                self._report()
            # Where samples are allowed, what tests may err by needs the room.
            closed = chosen == "gaussian" and self.full.monte_carlo is None
            answer = self.approach(chosen, self.full, near, CLOSED_WIDTH if closed else WIDTH)
            final = self._final(answer, chosen)
            if self._meets(final.stated) and final.stated >= self.epsilon * (1.0 - METHOD_GOAL):
                return final
            near, chosen = answer, final.upper.method  # certify found a better one, or one that is almost as good
        answer = self.smallest(self.methods, self.full, answer, WIDTH)
        return self._final(answer)

    def _meets(self, upper: float) -> bool:
        """Whether what a certificate states is at most the target that was asked for."""
        return upper <= self.epsilon * (1.0 + 2.0 * PORTABLE)

    def _final(self, noise: float, chosen: str | None = None) -> Answer:
        """What certify says at its defaults; the chosen method alone if its sides nearly meet and others take long."""
        beside = [self._seconds(name, noise) for name in self._affordable(noise) if name != chosen]
        if chosen is not None and sum(seconds for seconds in beside if seconds <= self.policy.heavy) > BESIDE:
            outcomes = self.run(noise, [chosen], self.full, (Side.UPPER, Side.LOWER), METHOD_GOAL)
            if gap_within(outcomes, METHOD_GOAL):
                return Answer(noise, outcomes, self.full)
        return Answer(noise, self.run(noise, self.methods, self.full, (Side.UPPER, Side.LOWER)), self.full)

    def _issued(self, answer: Answer, *, whole: bool = True) -> Certificate:
        """The certificate of an answer, with attack numbers from the whole profile where that is wanted."""
        mechanism = self.mechanism.with_noise(answer.noise)
        pair = dominating_pair(mechanism)
        return certificate_of(mechanism, pair, self.question, answer.outcomes, answer.settings, whole=whole)

    def _seconds(self, method: str, noise: float) -> float:
        """Standard seconds of one side by a method, 0 where it does not apply."""
        candidate, pair = accountant(method), dominating_pair(self.mechanism.with_noise(noise))
        return candidate.seconds(pair) if candidate.why_not(pair, Side.UPPER) is None else 0.0

    def _affordable(self, noise: float) -> list[str]:
        """The default accountants that the planned work allows to run again and again."""
        pair = dominating_pair(self.mechanism.with_noise(noise))
        longest = max(HEAVY, self.policy.work / LOOKS)
        return [
            name
            for name in DEFAULT
            if (candidate := ACCOUNTANTS[name]).kind is Kind.DETERMINISTIC
            and candidate.why_not(pair, Side.UPPER) is None
            and candidate.seconds(pair) <= longest
        ]

    def _best_method(self, start: float) -> tuple[str, float]:
        """The accountant with the smallest upper bound near the solution, and about which noise multiplier that is.

        Accountants that are far looser are remembered (:attr:`looser`).
        """
        allowed = self.methods or self._affordable(start)
        if len(allowed) == 1:
            return allowed[0], start
        noise, outcomes, rivals = self._looks(start, allowed)
        chosen = best(outcomes, Side.UPPER)
        if chosen is None or not chosen.value:
            return "gaussian", start
        name, off = chosen.method, log(chosen.value / self.epsilon)
        seen = self._values(name, self.coarse)
        self._remember_looser(uppers(outcomes), chosen.value, noise)
        self._remember_lower(outcomes, noise)
        if name != "gaussian" and abs(off) > FAR and noise in seen:
            rivals |= {rival: self.coarse for rival, value in uppers(outcomes).items() if value is not None}
            noise = self._nearer(name, noise)
        else:
            noise *= exp(off / self.slope)
            # One more look, so that a slope of its own leads on.
            if len(seen) == 1 and abs(off) > LOOK_WIDTH and 0.0 < self.upper(noise, [name], self.coarse) < inf:
                self.slope = steepness_at(seen, noise) or self.slope
                noise *= (seen[noise] / self.epsilon) ** (1.0 / self.slope)
        left = [rival for rival in rivals if rival not in ("gaussian", name) and (rival, Side.UPPER) not in self.looser]
        # The best method is taken to be at the target here, as its secant says: another look at it would tell no more.
        values = {rival: self.upper(noise, [rival], rivals[rival]) for rival in left} | {name: self.epsilon}
        closest = min(values, key=values.__getitem__)
        if closest != name:
            name, noise = closest, noise * (values[closest] / self.epsilon) ** (1.0 / self.slope)
        self._remember_looser(values, min(values.values()), noise)
        return name, noise

    def _looks(self, start: float, allowed: Sequence[str]) -> tuple[float, list[Outcome], dict[str, Settings]]:
        """A noise multiplier, what the methods say there on coarse grids, and the rivals, with the settings for them.

        Heavy methods come after light ones, which lead closer to the solution where that costs less than what is still
        to come. First of all, where light ones lead, come those whose two sides should nearly meet, as no other is
        looked at where they do. Rivals said something farther away, or need more effort to say anything.
        """
        pair = dominating_pair(self.mechanism.with_noise(start))
        seconds = {name: accountant(name).seconds(pair) for name in allowed}
        order = sorted(allowed, key=seconds.__getitem__)
        light = [name for name in order if seconds[name] <= QUICK]
        rounds = [light] * bool(light) + [[name] for name in order[len(light) :]]
        noise, rivals = start, dict[str, Settings]()
        outcomes: list[Outcome] = []
        expected: frozenset[str] = frozenset()
        for place, names in enumerate(rounds):
            if names != light and accountant(names[0]).is_beaten(pair, settled(outcomes)):
                continue
            both, settings = (Side.UPPER, Side.LOWER), self.coarse
            outcomes += self.run(noise, names, settings, both if names == light else (Side.UPPER,), METHOD_GOAL)
            chosen = best(outcomes, Side.UPPER)
            # An epsilon of 0 says nothing of how far to go.
            while chosen is not None and chosen.value == 0.0 and noise > SMALLEST_NOISE:
                noise = max(QUIETER * noise, SMALLEST_NOISE)
                tried = [name for earlier in rounds[: place + 1] for name in earlier]
                outcomes = self.run(noise, tried, settings, both, METHOD_GOAL)
                chosen = best(outcomes, Side.UPPER)
            bounded = settled(outcomes)
            later = [name for others in rounds[place + 1 :] for name in others]
            ahead = sum(seconds[name] for name in later if not accountant(name).is_beaten(pair, bounded))
            off = log(chosen.value / self.epsilon) if chosen is not None and chosen.value else inf
            if chosen is not None and chosen.method in expected:
                off = 0.0  # it was not looked at here, where tighter methods are expected to meet the target
            if accountant(names[0]).plans_effort and uppers(outcomes).get(names[0]) is None:
                settings = self.full
                if ahead and abs(off) <= FAR:
                    outcomes += self.run(noise, names, settings, (Side.UPPER,), METHOD_GOAL)
                    chosen = best(outcomes, Side.UPPER)
                else:
                    rivals[names[0]] = settings
            if not ahead or chosen is None or not chosen.value or chosen.method == "gaussian":
                continue
            cheap = seconds[chosen.method] <= min(ahead / NEARER, self.policy.heavy)
            nearer = names != light and abs(off) > FAR and cheap
            meets = accountant(chosen.method).should_meet(pair, self.epsilon)
            if names != light and chosen.method == names[0] and not nearer:
                outcomes += self.run(noise, names, settings, (Side.LOWER,), METHOD_GOAL)
            if gap_within(outcomes, MEETING_GOAL if meets else METHOD_GOAL):
                break
            if nearer:
                self._remember_looser(uppers(outcomes), chosen.value, noise)
                self._remember_lower(outcomes, noise)
                rivals |= {rival: self.coarse for rival, value in uppers(outcomes).items() if value is not None}
                self._nearer(chosen.method, noise)
                noise = self._closest(self._values(chosen.method, self.coarse))
                outcomes = self.run(noise, [chosen.method], self.coarse, both, METHOD_GOAL)
                if gap_within(outcomes, METHOD_GOAL):
                    break
            elif names == light and abs(way := log(middle(outcomes) / self.epsilon)) <= MOST_LED:
                rounds[1:] = sorted(rounds[1:], key=lambda name: not accountant(*name).should_meet(pair, self.epsilon))
                if abs(way) <= LOOK_WIDTH:
                    continue
                # Heavy methods are looked at where they are expected to meet the target, by the same secant.
                above = [outcome for outcome in outcomes if outcome.side is Side.UPPER and outcome.value is not None]
                outcomes = [replace(outcome, value=exp(-way) * (outcome.value or 0.0)) for outcome in above]
                noise, expected = noise * exp(way / self.slope), frozenset(light)
        here = {rival for rival, value in uppers(outcomes).items() if value is not None} - expected
        rivals |= dict.fromkeys(expected & set(uppers(outcomes)), self.coarse)
        return noise, outcomes, {rival: how for rival, how in rivals.items() if rival not in here}

    def _nearer(self, method: str, noise: float) -> float:
        """About where a method crosses the target on coarse grids, by looks at it from a noise multiplier it has seen.

        Ends where a secant leads no farther than ``LOOK_WIDTH``, and may be on either side.
        """
        seen = self._values(method, self.coarse)
        if self.guess is not None and abs(log(seen[noise] / self.epsilon)) > MOST_LED and self.guess.noise < noise:
            noise, self.slope = self.guess.noise, self.guess.slope  # nearer than a secant leads from so far
            if not 0.0 < self.upper(noise, [method], self.coarse) < inf:
                return self.approach(method, self.coarse, noise, LOOK_WIDTH)
            self.slope = steepness_at(seen, noise) or self.slope
        for _ in range(APPROACHES):
            way = log(seen[noise] / self.epsilon) / self.slope
            if abs(way) <= COARSE_WIDTH:  # another look would say the same
                return noise
            noise *= exp(way)
            if abs(way) <= LOOK_WIDTH:
                return noise
            if not 0.0 < self.upper(noise, [method], self.coarse) < inf:
                break
            self.slope = steepness_at(seen, noise) or self.slope
        return self.approach(method, self.coarse, noise, LOOK_WIDTH)

    def _remember_looser(self, values: Mapping[str, float | None], least: float, noise: float) -> None:
        """Which of these upper bounds are so much above the least one that certify would not state them."""
        near = abs(log(least / self.epsilon)) <= FAR
        for name, value in values.items():
            candidate, seconds = accountant(name), self._seconds(name, noise)
            most = NEAR_LOOSER if near and seconds > self.policy.heavy and not candidate.plans_effort else LOOSER
            most = SLOW_LOOSER if seconds > SLOW * self.policy.work else most
            loose = not candidate.plans_effort if value is None else value > most * least
            if loose and seconds > LIGHT:
                self.looser |= {(name, Side.UPPER)}

    def _remember_lower(self, outcomes: Sequence[Outcome], noise: float) -> None:
        """Which of these lower bounds, all of one noise, are so much below the largest that certify states none."""
        values = {
            outcome.method: outcome.value
            for outcome in outcomes
            if outcome.side is Side.LOWER and outcome.value is not None
        }
        most = max(values.values(), default=0.0)
        for name, value in values.items():
            if LOWER * value < most and self._seconds(name, noise) > LIGHT:
                self.looser |= {(name, Side.LOWER)}
