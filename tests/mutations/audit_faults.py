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
    (
        "audit/betting.py",
        "payoff = self._above(first) / size - self.growth * self._above(second) / size - self.delta",
        "payoff = self._above(first) / size - self.growth * self._above(second) / size",
        "a bet on the mean of a run is not fair",
        f"{MECHANISM}::test_a_bet_on_the_mean_of_one_pair_is_the_bet_on_it",
    ),
    (
        "audit/outputs.py",
        "if ratio.size is not None:",
        "if False:",
        "examples that compete for places in a batch are bet on as if they were independent",
        f"{MECHANISM}::test_examples_of_batches_that_are_cut_are_never_bet_on_one_by_one",
    ),
    (
        "audit/ratios.py",
        'changes["sampling_prob"] = float(single.crowding.attained.probabilities[1])',
        "pass",
        "the statistic of cut batches forgets those who are cut",
        f"{MECHANISM}::test_the_statistic_of_cut_poisson_batches_is_that_of_examples_that_are_drawn_and_kept",
    ),
    (
        "audit/ratios.py",
        "half = 0.5 * k * (k - 1.0) *",
        "half = 0.5 * k *",
        "k examples in fixed batches have another likelihood ratio than their pair",
        f"{MECHANISM}::test_likelihood_ratios_are_those_of_all_participations",
    ),
    (
        "audit/ratios.py",
        "- 0.5 * pair.replays * (counts / sigma) ** 2 - factorials",
        "- 0.5 * pair.replays * (counts / sigma) ** 2",
        "examples that share a bin count as often as those that do not",
        f"{MECHANISM}::test_likelihood_ratios_are_those_of_all_participations",
    ),
    (
        "audit/outputs.py",
        "found[self.who] = np.arange(len(self.who))[:, None]",
        "found[self.who[:, 0]] = np.arange(len(self.who))",
        "only the first example of a user takes part",
        f"{MECHANISM}::test_all_examples_of_a_user_take_part",
    ),
    (
        "cli/audit.py",
        "        if value:",
        "        if False:",
        "a replay ignores options that it has no use for",
        "tests/cli/test_audit_command.py::test_a_replay_uses_the_seed_and_refuses_what_it_has_no_use_for",
    ),
]
