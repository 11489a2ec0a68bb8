"""One-line faults in audits: bets that are not fair, statistics that look at nothing, findings that are kept quiet.

An entry is (path, old text, new text, reason, tests); the old text occurs once in the file.
"""

SAMPLER = "tests/audit/test_sampler_audit.py"
NOISE = "tests/audit/test_noise_audit.py"
MECHANISM = "tests/audit/test_mechanism_audit.py"
REPLAY = "tests/audit/test_replay.py"
GUESSES = "tests/audit/test_guesses.py"
CANARIES = "tests/audit/test_canaries.py"
ADDENDUM = "tests/audit/test_addendum.py"
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
        "audit/guessing.py",
        "return tails, self.canaries * expit(-epsilons) * slots",
        "return tails, self.guessed * expit(-epsilons) * slots",
        "only the guessed canaries pay for delta, though the run may choose which those are",
        f"{GUESSES}::test_all_canaries_count_and_not_those_that_are_guessed",
    ),
    (
        "audit/guessing.py",
        "mode = np.minimum(np.floor((k + 1.0) * prob), k)",
        "mode = np.floor(0.5 * k)",
        "what delta adds is too small, so too large epsilons are rejected",
        f"{GUESSES}::test_no_mechanism_of_few_canaries_has_more_right_guesses",
    ),
    (
        "audit/guessing.py",
        "tails = np.asarray(binom.sf(self.right - 1, self.guessed, probs))",
        "tails = np.asarray(binom.sf(self.right, self.guessed, probs))",
        "the chance of more right guesses than there were",
        f"{GUESSES}::test_no_mechanism_of_few_canaries_has_more_right_guesses",
    ),
    (
        "audit/guessing.py",
        "tails = binom.sf(self.right - seen - 1, self.guessed - seen, expit(epsilon))",
        "tails = binom.sf(self.right - 1, self.guessed, expit(epsilon))",
        "independent canaries pay nothing for delta",
        f"{GUESSES}::test_independent_canaries_by_enumeration",
    ),
    (
        "audit/guessing.py",
        "probs = _right_above(mu, self._exceeded)",
        "probs = _right_above(mu, np.ones_like(self._exceeded))",
        "the clearest guesses are taken for average ones",
        f"{GUESSES}::test_independent_gaussian_canaries_by_simulation",
    ),
    (
        "audit/guessing.py",
        "if gaussian_delta(1.0, mu, middle, Side.LOWER) > delta:",
        "if gaussian_delta(1.0, mu, middle, Side.LOWER) > 0.1 * delta:",
        "mu is read as a larger epsilon than it means",
        f"{GUESSES}::test_epsilons_of_gaussians_err_downward_and_their_mus_upward",
    ),
    (
        "audit/one_run.py",
        "rules = _rules(values.size) if guessed is None else [_given(guessed, values.size)]",
        "rules = [_rules(values.size)[1]]",
        "the fixed number of guesses is ignored",
        f"{GUESSES}::test_bad_input_is_named",
    ),
    (
        "audit/one_run.py",
        'gaussian = certificate is not None and certificate.mechanism.sampler.kind == "deterministic"',
        "gaussian = certificate is not None",
        "sampled batches are audited as if their privacy were a Gaussian's",
        f"{CANARIES}::test_correct_runs_stay_below_their_certificates_and_show_something",
    ),
    (
        "audit/one_run.py",
        "if type(sampler) not in CHANCES or isinstance(sampler, Shuffle)",
        "if type(sampler) not in CHANCES",
        "canaries of a shuffle count as independent",
        f"{GUESSES}::test_canaries_are_not_independent_where_examples_are_not",
    ),
    (
        "audit/canary_scores.py",
        "if stated is not None and stated != self.total:",
        "if stated is not None and stated > self.total:",
        "a certificate that does not count all canaries is accepted",
        f"{CANARIES}::test_the_certificate_has_to_count_all_canaries",
    ),
    (
        "audit/canary_scores.py",
        "independent=self.observed and _are_independent(certificate.mechanism.sampler),",
        "independent=_are_independent(certificate.mechanism.sampler),",
        "losses of a model are taken for independent observations",
        f"{CANARIES}::test_losses_are_another_attack_without_more_assumptions",
    ),
    (
        "audit/canary_set.py",
        "who = who[self.included[who]]",
        "who = who[self.included[who] | True]",
        "canaries are planted whatever their coins say",
        f"{CANARIES}::test_directions_are_orthogonal_and_coins_are_those_of_the_seed",
    ),
    (
        "audit/canary_set.py",
        "return rng.choice(self.size, size=(self.count, width), replace=False).astype(np.int64)",
        "return rng.choice(self.size, size=(self.count, width), replace=True).astype(np.int64)",
        "the directions of canaries are not orthogonal",
        f"{CANARIES}::test_directions_are_orthogonal_and_coins_are_those_of_the_seed",
    ),
    (
        "audit/annex.py",
        'if not _same(one.verdict.model_dump(mode="json"), found.model_dump(mode="json")):',
        "if one.verdict.refuted != found.refuted:",
        "evidence that does not follow from its seed verifies",
        f"{ADDENDUM}::test_forgeries_that_are_sealed_again_do_not_verify",
    ),
    (
        "audit/annex.py",
        'for name in ("level", "checks"):',
        'for name in ("level",):',
        "an assumption that nobody tested may be said to have passed",
        f"{ADDENDUM}::test_forgeries_that_are_sealed_again_do_not_verify",
    ),
    (
        "audit/annex.py",
        "if not finding.says.isprintable() or len(finding.says) > LONGEST:",
        "if len(finding.says) > LONGEST:",
        "evidence can pretend to be lines of the addendum",
        f"{ADDENDUM}::test_sentences_cannot_pretend_to_be_lines_of_the_addendum",
    ),
    (
        "audit/annex.py",
        "if any(one.verdict.refuted for one in tests):",
        "if tests and all(one.verdict.refuted for one in tests):",
        "an assumption that one of two audits refutes has passed",
        ADDENDUM,
    ),
]
