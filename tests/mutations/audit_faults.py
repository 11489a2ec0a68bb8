"""One-line faults in audits: bets that are not fair, statistics that look at nothing, findings that are kept quiet.

An entry is (path, old text, new text, reason, tests); the old text occurs once in the file.
"""

SAMPLER = "tests/audit/test_sampler_audit.py"
NOISE = "tests/audit/test_noise_audit.py"
MECHANISM = "tests/audit/test_mechanism_audit.py"
REPLAY = "tests/audit/test_replay.py"
FAIR = f"{SAMPLER}::test_the_chances_are_those_of_the_definition_and_every_bet_is_fair"

FAULTS = [
    (
        "audit/chances.py",
        "later = float(self.first[step + 1 :].sum())",
        "later = float(self.first[step:].sum())",
        "an example that was never seen counts as waiting for a step too long",
        FAIR,
    ),
    (
        "audit/chances.py",
        "candidates = int(self.unused.sum()) - before(self.unused)",
        "candidates = int(self.unused.sum())",
        "the places of a shuffled batch are shared among examples that were passed over",
        FAIR,
    ),
    (
        "audit/chances.py",
        "self.weights[turn] *= 1.0 - prob",
        "self.weights[turn] *= 1.0",
        "a group's turn that an example missed tells nothing about its secret group",
        FAIR,
    ),
    (
        "audit/habits.py",
        "return _levels(before(present - chances), np.full(chances.size, habits.spread))",
        "return _levels(np.cumsum(present - chances), np.full(chances.size, habits.spread))",
        "the bet on the size of a batch looks at the coin that it is placed on",
        FAIR,
    ),
    (
        "audit/sampling.py",
        "if broken is None and not refuted and step < claimed.steps:",
        "if broken is None and not refuted and step > claimed.steps:",
        "a run with too few batches passes",
        f"{SAMPLER}::test_planted_faults_are_found_within_100_000_coins",
    ),
    (
        "audit/whiteness.py",
        "paid: Array = SHIFTS[None, :] * products - 0.5 * SHIFTS[None, :] ** 2 * squares",
        "paid: Array = SHIFTS[None, :] * products",
        "bets on correlated rows are not fair",
        f"{NOISE}::test_every_bet_is_fair_by_enumeration",
    ),
    (
        "audit/whiteness.py",
        "[pivots[t] ** 2 * float(x[t] @ x[t])],",
        "[np.inf],",
        "a step without noise passes",
        f"{NOISE}::test_planted_faults_are_found_within_100_000_numbers",
    ),
    (
        "audit/betting.py",
        "growth = np.exp(self.epsilons)[:, None]",
        "growth = np.ones_like(self.epsilons)[:, None]",
        "every epsilon is tested as if it were 0",
        f"{MECHANISM}::test_every_bet_loses_on_average_where_the_claim_is_tight",
    ),
    (
        "audit/betting.py",
        "bets = logs[0, 0].size * 2",
        "bets = 1",
        "the best of all bets counts as if it had been the only one",
        f"{MECHANISM}::test_the_bound_exceeds_the_truth_no_more_often_than_its_level",
    ),
    (
        "audit/ratios.py",
        "visits = y.reshape(pair.epochs, pair.replays, pair.bins, -1).sum(axis=1) / pair.replays**0.5",
        "visits = y.reshape(pair.epochs, pair.replays, pair.bins, -1).sum(axis=1)",
        "bins that are replayed have another likelihood ratio than their pair",
        f"{MECHANISM}::test_likelihood_ratios_are_those_of_all_participations",
    ),
    (
        "audit/tape.py",
        "state = _restored(state, self.states[place])",
        "pass",
        "the later steps of a replay start from other weights",
        f"{REPLAY}::test_every_step_starts_from_the_state_of_the_first_run",
    ),
    (
        "audit/replaying.py",
        "any(one.normaliser != two.normaliser for one, two in pairs),",
        "False,",
        "a divisor that depends on the batch passes",
        f"{REPLAY}::test_planted_faults_are_found",
    ),
    (
        "audit/replaying.py",
        "return one.released * one.normaliser - two.released * two.normaliser",
        "return one.released - two.released",
        "what one example adds to a sum is divided by the batch size",
        f"{REPLAY}::test_a_clipping_norm_that_is_two_percent_too_large_is_found",
    ),
]
