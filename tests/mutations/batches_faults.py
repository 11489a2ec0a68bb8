"""One-line faults in what watches and records the batches of a run: a promise that passes, a record that says too much.

An entry is (path, old text, new text, reason, tests); the old text occurs once in the file.
"""

RUN = "tests/training/test_run.py"
STATES = "tests/training/test_run_states.py"
RECORD = "tests/training/test_record.py"
SAMPLER = "tests/audit/test_sampler_audit.py"
MECHANISM = "tests/audit/test_mechanism_audit.py"
NOISE = "tests/audit/test_noise_audit.py"
ENGINE = "tests/training/test_engine.py"

FAULTS = [
    (
        "samplers/b_min_sep.py",
        'expect(bool(np.all(step - self.last[batch] >= self.sampler.min_sep)), "min_separation")',
        'expect(bool(np.all(step - self.last[batch] >= self.sampler.min_sep - 1)), "min_separation")',
        "an example may take part one step too early",
        (RUN, SAMPLER),
    ),
    (
        "samplers/multi_attribution.py",
        'expect(bool(np.all(step - self.last[users] >= self.sampler.min_sep)), "min_separation")',
        'expect(bool(np.all(step - self.last[users] >= 1)), "min_separation")',
        "a user may take part at every step",
        RUN,
    ),
    (
        "samplers/cyclic_poisson.py",
        "        self.group[batch] = turn\n",
        "",
        "an example may have another group every time",
        (RUN, SAMPLER),
    ),
    (
        "samplers/balls_in_bins.py",
        "        self.bin[batch] = turn\n",
        "",
        "an example may have another bin in every epoch",
        (RUN, SAMPLER),
    ),
    (
        "samplers/truncation.py",
        'expect(cap is None or batch.size <= cap, "truncated_batch_size")',
        'expect(cap is None or batch.size <= cap + 1, "truncated_batch_size")',
        "a batch may be larger than its cap",
        RUN,
    ),
    (
        "samplers/epochs.py",
        'expect(bool(np.all(self.count[batch] <= self.participations)), "participations_an_epoch")',
        'expect(bool(np.all(self.count[batch] <= self.participations + 1)), "participations_an_epoch")',
        "an example may take part once more in an epoch, in place of another",
        (RUN, SAMPLER),
    ),
    (
        "samplers/promises.py",
        'expect(inside and bool(np.all(np.diff(batch) > 0)), "distinct_examples")',
        'expect(inside and bool(np.all(np.diff(batch) >= 0)), "distinct_examples")',
        "an example may be in a batch twice",
        (RUN, SAMPLER),
    ),
    (
        "training/commitments.py",
        '        link.update(np.ascontiguousarray(batch, dtype="<i8").tobytes())\n',
        "",
        "a commitment is to the number of steps, not to the batches",
        RECORD,
    ),
    (
        "training/run.py",
        "self._by_examples &= by_examples",
        "self._by_examples |= by_examples",
        "a record says that examples were compared, of which only the number was told",
        (RUN, RECORD),
    ),
    (
        "training/run.py",
        'again._by_examples = bool(int(state["by_examples"]))',
        "again._by_examples = True",
        "after a resume a record says that all examples were compared",
        f"{RUN}::test_a_record_says_what_was_not_checked_before_a_resume",
    ),
    (
        "training/run.py",
        'if str(state["violation"]):',
        'if str(state["violation"]) == "-":',
        "a run that broke a promise goes on after a resume",
        (STATES, RECORD, RUN),
    ),
    (
        "training/run.py",
        'again._resumed = int(state["resumed"]) + 1',
        'again._resumed = int(state["resumed"])',
        "a record does not say that the run was resumed",
        (STATES, RECORD, RUN),
    ),
    (
        "training/run.py",
        'again._refused = int(state["refused"])',
        "again._refused = 0",
        "a record forgets the steps that were refused before a resume",
        f"{RUN}::test_a_record_says_what_was_not_checked_before_a_resume",
    ),
    (
        "training/run.py",
        "            self._promises.check(self._step, batch)\n",
        "            self._promises.check(0, batch)\n",
        "every batch is checked as if it were the first",
        (RUN, STATES),
    ),
    (
        "training/coverage.py",
        "noise_multiplier=planned.sigma, unit=planned.unit",
        "noise_multiplier=planned.sigma",
        "the executed steps of a plan for users are certified for single examples",
        (RUN, RECORD),
    ),
    (
        "training/torch/optimizer.py",
        "scale = self.norm_of_noise / (",
        "scale = 1.0 / (",
        "noise is for a clipping norm of 1, whatever it is",
        (ENGINE, "tests/training/test_white_noise.py"),
    ),
    (
        "training/jax/noise.py",
        'scale = positive("clip_norm", clip_norm) / positive("divisor", divisor)',
        'scale = 1.0 / positive("divisor", divisor)',
        "noise in JAX is for a clipping norm of 1, whatever it is",
        "tests/training/test_jax_noise.py",
    ),
    (
        "training/engine.py",
        'raise ViolationError(f"The run broke the promise',
        'print(f"The run broke the promise',
        "a certificate is given out for a run that broke a promise",
        (ENGINE, "tests/training/test_loops_that_go_wrong.py"),
    ),
    (
        "audit/betting.py",
        "return (with_example, without), (-without, -with_example)",
        "return (with_example, without), (with_example, without)",
        "an audit looks at the direction of removal alone",
        f"{MECHANISM}::test_each_direction_finds_what_the_other_one_cannot",
    ),
    (
        "audit/betting.py",
        "bool(reached and self._rejected[: self.at_upper + 1].all())",
        "bool(reached and self._rejected[: self.at_upper].all())",
        "a certificate is refuted by evidence against smaller epsilons alone",
        f"{MECHANISM}::test_a_certificate_of_epsilon_0_is_refuted_by_evidence_alone",
    ),
    (
        "audit/outputs.py",
        "released[step] += np.bincount(taken",
        "released[step] += 0.5 * np.bincount(taken",
        "an audit adds half of a gradient",
        MECHANISM,
    ),
    (
        "audit/chances.py",
        "self.left[present] -= 1",
        "self.left[present] -= 0",
        "an example that was taken is expected again in the epoch",
        f"{SAMPLER}::test_the_chances_are_those_of_the_definition_and_every_bet_is_fair",
    ),
    (
        "audit/whiteness.py",
        'return _verdict(mechanism, level, numbers, [Finding(name="not_finite", broken=True',
        'return _verdict(mechanism, level, numbers, [Finding(name="not_finite", broken=False',
        "noise that is not a number passes an audit",
        NOISE,
    ),
]
