"""One-line faults in runs and records: a promise that nobody checks, noise that is given out twice, a record that lies.

An entry is (path, old text, new text, reason, tests); the old text occurs once in the file.
"""

RUN = "tests/training/test_run.py"
RECORD = "tests/training/test_record.py"
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
        "            if count != counts[0]:",
        "            if count > counts[0]:",
        "a sum over a batch is clipped as if it were one example",
        f"{TRAINER_INPUT}::test_a_layer_that_all_examples_share_is_refused_with_clipping_by_layers",
    ),
]
