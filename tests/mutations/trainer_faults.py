"""One-line faults in what the Trainer of transformers adds: 16 bits, layers that run again, examples that mix."""

KEPT = "tests/training/test_kept_inputs.py"
PRECISION = "tests/training/test_huggingface_precision.py"
INDEPENDENCE = "tests/training/test_huggingface_independence.py"
DERIVATIVES = "tests/training/test_huggingface_derivatives.py"
PROCESSES = "tests/training/test_huggingface_processes.py"

FAULTS = [
    (
        "training/torch/kept_inputs.py",
        'vars(parameter).pop("_current_grad_sample", None)',
        "vars(parameter)",
        "gradients of a pass that was broken off are added to those of the next",
        f"{KEPT}::test_a_pass_that_was_broken_off_leaves_nothing_to_the_next",
    ),
    (
        "training/torch/kept_inputs.py",
        "if not self.grad_accumulation_allowed and isinstance(parameter.grad_sample, list):",
        "if False:",
        "the gradients of two batches are summed as one",
        f"{KEPT}::test_two_passes_without_a_step_are_refused",
    ),
    (
        "training/torch/kept_inputs.py",
        "dtype = next(trainable_parameters(layer))[1].dtype",
        "dtype = torch.bfloat16",
        "per-sample gradients are made in bfloat16",
        f"{PRECISION}::test_in_16_bits_the_sum_is_that_of_a_loop_over_single_examples",
    ),
    (
        "training/torch/ghost.py",
        "if parameter.is_floating_point() and parameter.dtype not in WIDE:",
        "if parameter.requires_grad and parameter.dtype not in WIDE:",
        "a second pass through frozen layers in 16 bits makes clipped gradients longer than their norm",
        f"{PRECISION}::test_ghost_clipping_in_16_bits_is_refused",
    ),
    (
        "training/torch/ghost.py",
        'if getattr(parameter, "_norm_sample", None) is not None:',
        "if False:",
        "the norm of a tied weight is that of one of its uses",
        "tests/training/test_huggingface_input.py::"
        "test_other_gradient_modes_and_shared_weights_with_ghost_clipping_are_refused",
    ),
    (
        "training/torch/ghost.py",
        "if layer.training and torch.is_grad_enabled() and torch.is_autocast_enabled(device):",
        "if False:",
        "ghost clipping under autocast rounds clipped gradients",
        "tests/training/test_loops_that_go_wrong.py::test_ghost_clipping_in_narrow_types_is_refused",
    ),
    (
        "training/huggingface/independence.py",
        "if not worst <= self.tolerance:",
        "if not worst <= 1e9:",
        "gradients that reach other examples pass",
        f"{INDEPENDENCE}::test_a_gradient_that_counts_the_tokens_of_the_batch_behind_a_loss_that_does_not_is_refused",
    ),
    (
        "training/huggingface/independence.py",
        "if not change <= self.tolerance:",
        "if not change <= 1e9:",
        "losses that change beside another example pass where gradients are small",
        f"{INDEPENDENCE}::test_losses_that_count_the_tokens_of_the_batch_are_refused",
    ),
    (
        "training/huggingface/independence.py",
        "if self.dependence is not None:",
        "if False:",
        "in-batch negatives on saturated logits, and smoothing over the batch of nearly uniform ones, pass",
        f"{DERIVATIVES}::test_losses_that_look_at_the_batch_are_refused_at_any_scale",
    ),
    (
        "training/huggingface/derivatives.py",
        "if reach != 0:",
        "if reach > 1e-6:",
        "a trace of the batch in a layer passes",
        f"{DERIVATIVES}::test_a_trace_of_the_batch_in_a_layer_is_seen_and_the_layer_is_named",
    ),
    (
        "training/huggingface/derivatives.py",
        "for at, loss in enumerate(together.losses)]",
        "for at, loss in enumerate(together.losses[:1])]",
        "of two examples, only the first must not depend on the other",
        f"{DERIVATIVES}::test_losses_that_look_at_the_batch_are_refused_at_any_scale",
    ),
    (
        "training/huggingface/derivatives.py",
        "for small in (False, True):",
        "for small in (False,):",
        "a dependence whose derivative underflows in a saturated softmax passes",
        f"{DERIVATIVES}::test_a_softmax_that_is_saturated_to_zero_is_seen_with_small_outputs",
    ),
    (
        "training/huggingface/derivatives.py",
        "grown = [axis for axis in range(min(len(shape), len(other))) if shape[axis] != other[axis]]\n"
        "            if len(grown) == 1 and (shape[grown[0]], other[grown[0]]) == (examples, examples + 1):",
        "grown = [0]\n            if shape[0] == examples:",
        "what is as large as the batch by chance is taken for its examples",
        f"{DERIVATIVES}::test_position_biases_of_as_many_tokens_as_examples_are_not_taken_for_examples",
    ),
    (
        "training/huggingface/derivatives.py",
        "            if len(grown) == 1 and",
        "            if grown == [0] and",
        "a dependence in a model with tokens in the first dimension passes",
        f"{DERIVATIVES}::test_a_trace_of_the_batch_in_a_layer_is_seen_and_the_layer_is_named",
    ),
    (
        "training/huggingface/derivatives.py",
        "if _is_floating(entry) else entry for name",
        "if False else entry for name",
        "a dependence between inputs that are numbers passes",
        f"{DERIVATIVES}::test_inputs_that_are_numbers_are_differentiated_by",
    ),
    (
        "training/huggingface/arguments.py",
        'any(trained is one or trained is getattr(one, "dataset", None) for one in sets)',
        "any(trained is one for one in sets)",
        "a part of the training data is evaluated on",
        f"{INDEPENDENCE}::test_evaluation_on_the_training_data_is_refused",
    ),
    (
        "training/huggingface/processes.py",
        "        set_seed(seed + rank)",
        "        set_seed(seed)",
        "which examples share a dropout mask depends on the others",
        f"{PROCESSES}::test_no_two_processes_have_the_same_dropout_masks",
    ),
    (
        "training/huggingface/processes.py",
        "        for part in parts:\n            found.update(_bytes(part))",
        "        del example",
        "a place in the data is one example in one process and another one in another",
        f"{PROCESSES}::test_data_that_differ_between_processes_are_refused",
    ),
    (
        "training/huggingface/processes.py",
        "if saved != accelerator.num_processes:",
        "if saved < accelerator.num_processes:",
        "one process takes the steps of two again, with the same noise on other sums",
        f"{PROCESSES}::test_two_processes_that_were_killed_end_as_if_they_had_not_been",
    ),
    (
        "training/huggingface/private_names.py",
        "partial(accelerator.prepare_model, evaluation_mode=True)",
        "accelerator.prepare_model",
        "torch's wrapper adds up gradients before the step does",
        f"{PROCESSES}::test_two_processes_are_one_run",
    ),
    (
        "training/huggingface/trainer.py",
        "            module=module,",
        "            module=self.model,",
        "each process runs a mechanism of its own, on the whole batch",
        f"{PROCESSES}::test_two_processes_are_one_run",
    ),
    (
        "training/torch/optimizer.py",
        "if len({int(state[0]) for state in states}) < len(states):",
        "if not states:",
        "processes of a loop of one's own share dropout masks",
        "tests/training/test_distributed.py::test_what_would_not_be_one_run_is_refused",
    ),
    (
        "training/torch/optimizer.py",
        "if self.batches.world_size > 1 or not (distributed.is_available() and distributed.is_initialized()):",
        "if True:",
        "each of several processes trains a model of its own, and says that it is one run",
        "tests/training/test_distributed.py::test_what_would_not_be_one_run_is_refused",
    ),
]
