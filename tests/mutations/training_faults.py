"""One-line faults in runs and records: a promise that nobody checks, noise that is given out twice, a record that lies.

An entry is (path, old text, new text, reason, tests); the old text occurs once in the file.
"""

RUN = "tests/training/test_run.py"
RECORD = "tests/training/test_record.py"
JAX_NOISE = "tests/training/test_jax_noise.py"
JAX_PLAN = "tests/training/test_jax_plan.py"

FAULTS = [
    (
        "training/run.py",
        "if not np.array_equal(np.sort(given), batch):",
        "if given.size != batch.size:",
        "any examples of the right number will do",
        f"{RUN}::test_sums_over_other_examples_are_caught",
    ),
    (
        "training/run.py",
        "if int(examples) != batch.size:",
        "if int(examples) > batch.size:",
        "a sum over fewer examples passes",
        f"{RUN}::test_the_number_of_examples_is_compared_both_ways",
    ),
    (
        "training/run.py",
        "if self._noise is not None and self._noise.step != self._step:",
        "if self._noise is None:",
        "a lost row of noise shifts all later ones",
        f"{RUN}::test_a_row_of_noise_that_was_lost_is_noticed",
    ),
    (
        "training/run.py",
        "if self._chain.head != head or len(head) != KEY_BYTES:",
        "if len(head) != KEY_BYTES:",
        "a resumed run may have other batches",
        f"{RUN}::test_a_state_that_was_changed_is_refused",
    ),
    (
        "training/run.py",
        '"entropy": self._entropy.copy(),',
        '"entropy": self._entropy + np.uint64(1),',
        "a state has another seed",
        f"{RUN}::test_reading_ahead_and_resuming_change_nothing",
    ),
    (
        "training/run.py",
        "if self._told == self._step:",
        "if self._told == self._step + 1:",
        "the promises of the sampler are never told of a batch",
        f"{RUN}::test_a_batch_that_the_sampler_would_not_make_ends_the_run",
    ),
    (
        "training/run.py",
        "return shorter if same else None",
        "return shorter",
        "the executed steps are given the matrix of another optimum",
        f"{RUN}::test_an_executed_mechanism_has_the_leading_block_of_the_matrix",
    ),
    (
        "training/run.py",
        "if not stopped_without_looking:",
        "if stopped_without_looking is None:",
        "a stop that looked at the training gets the smaller epsilon",
        f"{RECORD}::test_the_certificate_of_the_executed_steps_needs_the_caller_s_word",
    ),
    (
        "training/run.py",
        "certificate=None if self._violations else certificate,",
        "certificate=certificate,",
        "a run that broke a promise keeps its certificate",
        f"{RECORD}::test_no_record_has_both_a_certificate_and_a_violation",
    ),
    (
        "training/run.py",
        "if executed is None or certificate.mechanism != executed.pinned():",
        "if executed is None:",
        "the certificate of another mechanism passes",
        f"{RECORD}::test_a_certificate_of_another_mechanism_is_refused",
    ),
    (
        "training/run.py",
        "with self._lock:\n            while at",
        "if at >= 0:\n            while at",
        "a loop that reads ahead gets the batch of another step while a step is taken",
        "tests/training/test_run_threads.py",
    ),
    (
        "training/promises.py",
        'expect(int(self.count.sum()) == self.participations * self.included, "participations_an_epoch")',
        "pass",
        "an example may take part less often in an epoch",
        f"{RUN}::test_a_batch_that_the_sampler_would_not_make_ends_the_run",
    ),
    (
        "training/commitments.py",
        'link.update(step.to_bytes(8, "little"))',
        "pass",
        "a commitment is not the one that is documented",
        f"{RECORD}::test_an_auditor_with_the_key_recomputes_the_commitment",
    ),
    (
        "training/record.py",
        "if record.digest != record.content_digest() or (",
        "if (",
        "an altered record counts as intact",
        f"{RECORD}::test_an_altered_record_is_noticed",
    ),
    (
        "training/jax/noise.py",
        "if at != run.step:",
        "if at > run.step:",
        "an older state of optax gets another row of noise, for a step that was taken",
        f"{JAX_NOISE}::test_a_step_is_not_taken_twice_and_not_left_out",
    ),
    (
        "training/jax/noise.py",
        "ready = sum(jnp.sum(leaf) for leaf in leaves)",
        "ready = jnp.zeros(())",
        "several sums that jax.vmap maps over share a row of noise",
        f"{JAX_NOISE}::test_mapped_updates_are_refused",
    ),
    (
        "training/jax/noise.py",
        "in (jnp.zeros(()), state.step, *told, *leaves)",
        "in (state.step, *told, *leaves)",
        "noise becomes a constant of a compiled function of constants",
        f"{JAX_NOISE}::test_noise_does_not_become_a_constant_of_a_compiled_function",
    ),
    (
        "training/jax/noise.py",
        "if counted is not None and counted != (",
        "if counted is not None and counted > (",
        "a sum over fewer examples than are named passes",
        f"{JAX_PLAN}::test_what_is_told_has_to_agree_with_what_was_counted",
    ),
    (
        "training/jax/execution_plan.py",
        "divisor=run.expected_batch_size)",
        "divisor=run.expected_batch_size**2)",
        "noise is divided by the batch size twice",
        f"{JAX_PLAN}::test_a_step_is_the_noisy_clipped_sum_over_the_public_batch_size",
    ),
    (
        "training/jax/execution_plan.py",
        "self._batches.check_in_step()",
        "pass",
        "after a resume the batches begin anew, while the noise goes on",
        f"{JAX_PLAN}::test_batches_from_the_start_after_a_resume_are_refused",
    ),
    (
        "training/jax/accountant.py",
        "if count > 1 or self._mechanism is not None:",
        "if count > 1:",
        "two runs are accounted for as one",
        f"{JAX_PLAN}::test_the_accountant_refuses_what_it_cannot_account",
    ),
]
