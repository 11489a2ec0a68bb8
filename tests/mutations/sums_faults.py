"""One-line faults in exact sums: integers that are too long, sums that depend on order, audits that look away.

An entry is (path, old text, new text, reason, tests); the old text occurs once in the file.
"""

ARRAYS = "tests/training/test_exact_sums.py"
TENSORS = "tests/training/test_torch_exact_sums.py"
TRAINING = "tests/training/test_exact_training.py"
RECORDS = "tests/training/test_exact_records.py"
AUDIT = "tests/audit/test_invariance.py"
SHARDS = "tests/training/test_exact_shards.py"
TRAINER = "tests/training/test_huggingface_exact.py"

FAULTS = [
    (
        "training/exact_sums.py",
        "    return 1.0 - (numbers + 8) * UNIT",
        "    return 1.0",
        "factors leave no room for the rounding of norms and products",
        f"{ARRAYS}::test_factors_leave_room_for_rounding",
    ),
    (
        "training/exact_sums.py",
        "        over = squares > steps * steps",
        "        over = squares > 2 * steps * steps",
        "integers that are too long by less than a third are kept",
        f"{ARRAYS}::test_integers_that_are_too_long_are_made_anew_with_less",
    ),
    (
        "training/exact_sums.py",
        "        _added(again, totals, taken[over], steps, -1)",
        "        _added(again, totals, taken[over], steps, 0)",
        "integers that are made anew are added to the former ones",
        f"{ARRAYS}::test_integers_that_are_too_long_are_made_anew_with_less",
    ),
    (
        "training/exact_sums.py",
        "whole = np.int64(np.int32(product))  # towards zero",
        "whole = np.int64(np.floor(product))",
        "negative numbers grow as they are rounded",
        f"{ARRAYS}::test_truncation_is_towards_zero",
    ),
    (
        "training/exact_sums.py",
        "np.int64(np.int32(product))  # towards zero",
        "np.int64(np.int32(np.rint(product)))",
        "numbers are rounded to the nearest, and may grow",
        f"{ARRAYS}::test_truncation_is_towards_zero",
    ),
    (
        "training/exact_sums.py",
        "product = min(max(product, -steps), steps)",
        "product = max(product, -np.inf)",
        "what is beyond the limits wraps in 32 bits",
        f"{ARRAYS}::test_a_sum_of_squares_beyond_64_bits_is_no_small_one",
    ),
    (
        "training/exact_sums.py",
        "return min(BLOCK, 1 << (62 - 2 * (steps - 1).bit_length()))",
        "return BLOCK",
        "a block of squares goes beyond 64 bits",
        f"{ARRAYS}::test_a_sum_of_squares_beyond_64_bits_is_no_small_one",
    ),
    (
        "training/exact_sums.py",
        "squares[example] = min(squares[example] + square, CAP)",
        "squares[example] = squares[example] + square",
        "the squares of many blocks come back to small numbers",
        f"{ARRAYS}::test_a_sum_of_squares_beyond_64_bits_is_no_small_one",
    ),
    (
        "training/exact_sums.py",
        "np.where(np.isfinite(squares), np.minimum(scale, longest), 0.0)",
        "np.where(np.isfinite(squares), np.minimum(scale, longest), scale)",
        "a gradient that is not finite is counted as it is",
        f"{ARRAYS}::test_what_is_not_finite_counts_as_zero_and_takes_nobody_along",
    ),
    (
        "training/exact_sums.py",
        "np.minimum(scale, longest)",
        "longest",
        "short gradients are stretched to the norm",
        f"{ARRAYS}::test_short_gradients_on_the_grid_stay_as_they_are",
    ),
    (
        "training/exact_sums.py",
        "    squares = sum(squared_norms(array) for array in rows)",
        "    squares = squared_norms(rows[0])",
        "the first parameter alone makes the norm",
        f"{ARRAYS}::test_the_parameters_of_an_example_are_clipped_together",
    ),
    (
        "training/exact_sums.py",
        "    return [isqrt(int(steps * steps * square / total)) for square in squares]",
        "    return [isqrt(int(steps * steps * square / total)) + 1 for square in squares]",
        "layers together are longer than the norm",
        f"{ARRAYS}::test_layers_together_have_the_norm",
    ),
    (
        "training/exact_sums.py",
        "            number = np.float64(piece[at])\n            lanes[at] += number * number",
        "            number = piece[at]\n            lanes[at] += number * number",
        "squares of float32 are rounded to float32",
        f"{TENSORS}::test_norms_and_integers_are_those_of_arrays",
    ),
    (
        "training/torch/exact_sums.py",
        "piece = runs[:, :, start : start + width].double()",
        "piece = runs[:, :, start : start + width]",
        "tensors of float32 are squared in float32",
        f"{TENSORS}::test_norms_and_integers_are_those_of_arrays",
    ),
    (
        "training/torch/exact_sums.py",
        "    return torch.where(rounded > 2.0 * steps * steps, int(CAP), exact)",
        "    return exact",
        "a sum of squares modulo 2^64 passes for a small one",
        f"{TENSORS}::test_a_sum_of_squares_beyond_64_bits_is_no_small_one",
    ),
    (
        "training/torch/exact_sums.py",
        ".nan_to_num(0.0)",
        "",
        "what is no number is added to tensors as the least whole number",
        f"{SHARDS}::test_a_second_pass_that_gives_no_numbers_adds_nothing",
    ),
    (
        "training/torch/exact.py",
        "self._add([part[:left] for part in parts])",
        "self._add(parts)",
        "rows that fill a physical batch count as examples",
        f"{TRAINING}::test_rows_that_fill_up_do_not_count",
    ),
    (
        "training/torch/exact.py",
        "left -= min(left, len(parts[0]))",
        "left -= 0",
        "of several backward passes each has as many examples as all of them",
        f"{TRAINING}::test_rows_that_fill_up_do_not_count",
    ),
    (
        "training/torch/exact.py",
        "        return self.piece is not None and not self.piece.last",
        "        return False",
        "every physical batch is a step",
        f"{TRAINING}::test_every_step_is_that_of_whole_numbers_for_any_physical_batches",
    ),
    (
        "training/torch/exact.py",
        "        return self.norm_of_noise / (self.steps * divisor)",
        "        return 1.0 / (self.steps * divisor)",
        "the clipping norm is left out of what leaves the grid",
        f"{TRAINING}::test_every_step_is_that_of_whole_numbers_for_any_physical_batches",
    ),
    (
        "training/torch/exact.py",
        "        if shape != self.shape:",
        "        if len(shape) != len(self.shape):",
        "sequences may get longer",
        f"{TRAINING}::test_sequences_of_another_length_are_refused",
    ),
    (
        "training/torch/exact.py",
        "                torch.distributed.all_reduce(total)",
        "                assert total is not None",
        "processes keep their sums to themselves",
        "tests/training/test_distributed.py::test_whole_numbers_are_the_same_for_any_number_of_processes",
    ),
    (
        "training/torch/exact.py",
        "        if state_dict.get(ROWS) != self.rows:",
        "        if ROWS not in state_dict:",
        "steps are repeated with other bits and the same noise",
        f"{RECORDS}::test_a_run_may_not_be_resumed_with_other_physical_batches",
    ),
    (
        "training/torch/loader.py",
        "        number = max(1, ceil(ceil(len(batch) / self.world_size) / self.physical))",
        "        number = ceil(ceil(len(batch) / self.world_size) / self.physical)",
        "an empty batch has no physical batch, and no step",
        f"{TRAINING}::test_a_step_without_examples_is_a_physical_batch_and_noise",
    ),
    (
        "training/exact_sums.py",
        "    over = squares > left",
        "    over = squares > steps * steps",
        "the integers of every array may be as long as those of all together",
        f"{SHARDS}::test_integers_that_do_not_fit_are_left_out",
    ),
    (
        "training/torch/exact_sums.py",
        "    over = squares > left",
        "    over = squares > steps * steps",
        "the integers of every tensor may be as long as those of all together",
        f"{SHARDS}::test_integers_that_do_not_fit_are_left_out",
    ),
    (
        "training/torch/exact_sums.py",
        "        _added([rows[over]], [total], scales[over], steps, -1)",
        "        _added([rows[over]], [total], scales[over], steps, 0)",
        "integers that do not fit stay in the sum",
        f"{SHARDS}::test_integers_that_do_not_fit_are_left_out",
    ),
    (
        "training/torch/exact_shards.py",
        ".reshape(len(sample), -1)[:examples]",
        ".reshape(len(sample), -1)",
        "rows that fill up a physical batch count",
        f"{SHARDS}::test_layer_by_layer_gives_the_same_whole_numbers",
    ),
    (
        "training/torch/guards.py",
        '    if grad_sample_mode == "ghost_fsdp":',
        '    if grad_sample_mode == "ghost_fsdp" and not module:',
        "the norm of a parameter of two layers is that of its parts",
        f"{SHARDS}::test_a_parameter_of_two_layers_is_refused",
    ),
    (
        "training/torch/exact_shards.py",
        "        for squares in self.squares[1:]:",
        "        for squares in self.squares[2:]:",
        "the norm leaves out a parameter",
        f"{SHARDS}::test_layer_by_layer_gives_the_same_whole_numbers",
    ),
    (
        "training/torch/exact_shards.py",
        """        for parameter in self.params:
            parameter.grad = None
""",
        """        for parameter in self.params[1:]:
            parameter.grad = None
""",
        "a gradient that was not clipped stays where other optimizers find it",
        f"{SHARDS}::test_gradients_without_noise_are_nowhere_after_a_backward_pass",
    ),
    (
        "training/exact_sums.py",
        "    return floor(steps / (1 + Fraction(float(rho))))",
        "    return floor(steps / (1 + Fraction(float(rho)))) + 1",
        "what is clipped and what others change are together up to a step too long",
        f"{ARRAYS}::test_what_is_clipped_and_what_others_change_are_within_the_norm",
    ),
    (
        "training/torch/exact.py",
        "    return steps_within(steps[0], rho)",
        "    return steps_within(steps[0], 0.0)",
        "a stated change of the others is written down and not covered",
        f"{RECORDS}::test_noise_covers_a_stated_change_of_the_others",
    ),
    (
        "training/run.py",
        '"batch_invariance" if rho is None else "change_of_others"',
        '"batch_invariance"',
        "a record promises what the caller said does not hold",
        f"{RECORDS}::test_noise_covers_a_stated_change_of_the_others",
    ),
    (
        "training/torch/invariance.py",
        "differing = [one for one in others if not torch.equal(one, first)]",
        "differing = [one for one in others if not torch.allclose(one, first)]",
        "changes below the usual tolerance are not seen",
        f"{AUDIT}::test_a_change_at_one_place_is_found_and_places_can_be_chosen",
    ),
    (
        "training/torch/invariance.py",
        "    return [*made, *([list(neighbours)] if neighbours else [])]",
        "    return made",
        "the given neighbours are left out",
        f"{AUDIT}::test_given_neighbours_stand_beside_the_example",
    ),
    (
        "training/torch/invariance.py",
        "                rows = gradients(beside(others, place, batch))",
        "                rows = gradients(beside(others, 0, batch))",
        "the example never moves from the first place",
        f"{AUDIT}::test_a_change_at_one_place_is_found_and_places_can_be_chosen",
    ),
    (
        "training/torch/invariance.py",
        "return bool(part.training and chance > 0.0)",
        "return bool(part.training and chance > 1.0)",
        "dropout is not named",
        f"{AUDIT}::test_dropout_is_named",
    ),
    # The Trainer of transformers.
    (
        "training/huggingface/exact.py",
        "if not all(torch.equal(now, then) for now, then in zip(_generators(device), before, strict=True)):",
        "if False:",
        "dropout by the place in the batch, in functions of a model, is not seen",
        f"{TRAINER}::test_dropout_in_functions_of_a_model_is_refused_before_any_noise",
    ),
    (
        "training/huggingface/exact.py",
        "if self.loader.batch_sampler.pieces[len(physical) - 1].last:",
        "if True:",
        "a physical batch is a step of its own",
        f"{TRAINER}::test_every_step_is_that_of_whole_numbers_for_any_physical_batches",
    ),
    (
        "training/huggingface/trainer.py",
        "rho=self.engine.rho,",
        "rho=None,",
        "a record says that no bit changes where a change was stated",
        f"{TRAINER}::test_a_stated_change_of_the_others_is_covered_and_said",
    ),
]
