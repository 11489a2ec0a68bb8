"""One-line faults in runs and records: a promise that nobody checks, noise that is given out twice, a record that lies.

An entry is (path, old text, new text, reason, tests); the old text occurs once in the file.
"""

RUN = "tests/training/test_run.py"
RECORD = "tests/training/test_record.py"
JAX_NOISE = "tests/training/test_jax_noise.py"
JAX_PLAN = "tests/training/test_jax_plan.py"
LOOPS = "tests/training/test_loops_that_go_wrong.py"
INPUT = "tests/training/test_engine_input.py"
ADAPTIVE = "tests/training/test_adaptive.py"
TORCH = "tests/training/test_torch_adaptive.py"
TRAINER = "tests/training/test_huggingface.py"
TRAINER_INPUT = "tests/training/test_huggingface_input.py"

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
    (
        "training/torch/optimizer.py",
        "if self.batches.drawn is None:",
        "if self.batches.drawn == -1:",
        "batches of another loader pass for those of the plan",
        f"{LOOPS}::test_batches_of_another_loader_are_caught",
    ),
    (
        "training/torch/optimizer.py",
        "if last is None and not self.batches.reads_ahead:",
        "if last is None and self.batches.reads_ahead:",
        "BatchMemoryManager may leave out batches",
        f"{LOOPS}::test_a_batch_that_is_left_out_is_caught",
    ),
    (
        "training/torch/optimizer.py",
        "watch_other_steps(self)",
        "pass",
        "the optimizer of before make_private steps on gradients without noise",
        f"{LOOPS}::test_another_optimizer_on_gradients_without_noise_is_caught",
    ),
    (
        "training/torch/optimizer.py",
        'of_layers = tuple(getattr(self, "max_grad_norms", ()))',
        "of_layers = ()",
        "a layer is clipped to more than its noise is for",
        f"{LOOPS}::test_schedules_of_noise_and_norms_are_caught",
    ),
    (
        "training/torch/optimizer.py",
        "if self.saved_weights and self.saved_weights != fingerprint(self.params):",
        "if self.saved_weights and not fingerprint(self.params):",
        "noise comes again on other weights",
        f"{LOOPS}::test_noise_goes_with_the_weights_it_was_saved_with",
    ),
    (
        "training/torch/guards.py",
        "return not float(get_total_norm(list(sums))) <= number * clip_norm * (1.0 + SLACK)",
        "return float(get_total_norm(list(sums))) > number * clip_norm * (1.0 + SLACK)",
        "a gradient that is not a number passes for a clipped one",
        f"{LOOPS}::test_an_example_that_is_not_finite_is_caught",
    ),
    (
        "training/torch/guards.py",
        "samples = [part.to(torch.promote_types(part.dtype, torch.float32)) for part in samples]",
        "samples = [part for part in samples]",
        "sums are rounded to bfloat16 before there is noise",
        f"{LOOPS}::test_clipping_is_in_float32_whatever_the_types",
    ),
    (
        "training/torch/guards.py",
        "if isinstance(part, _NormBase):",
        "if isinstance(part, _NormBase) and list(part.parameters()):",
        "a normalisation over the batch without parameters mixes its examples",
        f"{INPUT}::test_frozen_layers_that_look_at_whole_batches_are_refused",
    ),
    (
        "training/adaptive.py",
        "excess = np.where(known & (lengths > norm),",
        "excess = np.where(known & (lengths > 2.0 * norm),",
        "contributions of up to twice the norm are not clipped",
        f"{ADAPTIVE}::test_nobody_contributes_more_than_the_norm",
    ),
    (
        "training/adaptive.py",
        "gradient_norm = clip_norm / (1.0 + share * share) ** 0.5",
        "gradient_norm = clip_norm",
        "squares are released beside gradients of the whole norm",
        f"{ADAPTIVE}::test_the_joint_norm_is_attained_and_no_more",
    ),
    (
        "training/adaptive.py",
        "return mechanism.sigma**2 * matrix.query_errors(own)",
        "return mechanism.sigma**2 * np.ones(matrix.steps)",
        "the variance of correlated noise is that of white noise",
        f"{ADAPTIVE}::test_the_variance_of_the_noise_is_that_of_the_rows_of_the_inverse",
    ),
    (
        "training/torch/adaptive.py",
        "parameter.grad = (parameter.grad * unscales[parameter]).to(parameter.dtype)",
        "parameter.grad = parameter.grad.to(parameter.dtype)",
        "noisy sums are not scaled back",
        f"{TORCH}::test_training_is_that_of_the_numpy_optimiser",
    ),
    (
        "training/torch/adaptive.py",
        "_check_processed_flag(parameter.grad_sample)  # a new tensor would not have the flag\n            scaled =",
        "scaled =",
        "gradients that were summed before are summed again",
        f"{TORCH}::test_gradients_that_were_used_are_refused",
    ),
    (
        "training/huggingface/losses.py",
        "counted = (labels != IGNORED).sum(dim=1)",
        "counted = (labels != IGNORED).sum() / len(labels)",
        "an example's gradient depends on the lengths of the others",
        f"{TRAINER}::test_the_sum_is_of_gradients_that_each_depend_on_one_example",
    ),
    (
        "training/huggingface/trainer.py",
        "                self.optimizer.signal_skip_step()\n",
        "",
        "every part of a batch is a step of the plan",
        f"{TRAINER}::test_the_noise_in_the_gradients_is_white_under_the_matrix",
    ),
    (
        "training/huggingface/arguments.py",
        "arguments.ignore_data_skip = True",
        "arguments.ignore_data_skip = False",
        "a resumed training skips batches of the plan",
        f"{TRAINER}::test_a_training_that_was_stopped_within_an_epoch_continues_as_if_it_had_not_been",
    ),
    (
        "training/huggingface/trainer.py",
        "self.engine.run.step != self.state.global_step:",
        "self.engine.run.step > self.state.global_step:",
        "weights without their run get the steps of the plan once more",
        f"{TRAINER_INPUT}::test_checkpoints_without_their_run_are_refused",
    ),
    (
        "training/torch/optimizer.py",
        "            if number != numbers[0]:",
        "            if number > numbers[0]:",
        "a sum over a batch is clipped as if it were one example",
        f"{TRAINER_INPUT}::test_a_layer_that_all_examples_share_is_refused_with_clipping_by_layers",
    ),
]
