"""One-line faults in what the first batch is tried for, and in what a record says of its certificate.

An entry is (path, old text, new text, reason, tests); the old text occurs once in the file.
"""

RECORD = "tests/training/test_record.py"

ACCOUNTANT = "tests/training/test_opacus_accountant.py"

FAULTS = [
    (
        "training/torch/rows.py",
        "    if mixed:\n",
        "    if mixed is None:\n",
        "a backward pass that centres gradients over the batch is let go, and clipping bounds nobody's influence",
        "tests/training/test_mixing.py::test_backward_passes_that_mix_the_examples_are_refused",
    ),
    (
        "training/torch/mixing.py",
        "for part, source, (_, own) in zip(alone, whole, ends, strict=True):",
        "for part, source, (_, own) in zip(whole, whole, ends, strict=True):",
        "the example in the middle has no gradient in the second pass, so that all models are refused",
        "tests/training/test_mixing.py::test_backward_passes_that_change_each_example_alone_train",
    ),
    (
        "training/torch/rows.py",
        "    model.disable_hooks()\n",
        "",
        "Opacus sees the trial's passes and refuses them, so that nothing is tried",
        "tests/training/test_mixing.py::test_backward_passes_that_mix_the_examples_are_refused",
    ),
    (
        "training/torch/rows.py",
        "untried += [] if missed else _untold(model, TAKES_NONE",
        "[] if missed else _untold(model, TAKES_NONE",
        "a model that mixes examples and returns its loss alone has norms as checked",
        "tests/training/test_mixing.py::test_a_model_that_returns_nothing_for_each_example_has_norms_as_asserted",
    ),
    (
        "training/torch/rows.py",
        "if not any(same and own is not None for same, own in zip(alike, axes, strict=False)):",
        "if not alike:",
        "outputs of other shapes are not compared, and norms are checked all the same",
        "tests/training/test_mixing.py::test_a_model_whose_shapes_follow_what_is_in_a_batch_has_norms_as_asserted",
    ),
    (
        "training/torch/mixing.py",
        "if is_dataclass(given) and not isinstance(given, Mapping):",
        "if is_dataclass(given) and isinstance(given, Mapping):",
        "outputs in a dataclass are not compared",
        "tests/training/test_mixing.py::test_outputs_in_a_dataclass_are_compared",
    ),
    (
        "training/torch/accountant.py",
        "if steps > sampler.drawn - before:",
        "if steps < sampler.drawn - before - 9:",
        "shuffled batches of the loader that make_private was given are certified as Poisson batches",
        f"{ACCOUNTANT}::test_steps_on_batches_of_another_loader_are_refused",
    ),
    (
        "training/torch/accountant.py",
        "self.drawn += 1",
        "self.drawn += 2",
        "two steps on one batch are certified as steps on two",
        f"{ACCOUNTANT}::test_two_steps_on_one_batch_are_refused",
    ),
    (
        "training/torch/optimizer.py",
        "if isinstance(module, AbstractGradSampleModule) and not self.sharded:",
        "if isinstance(module, AbstractGradSampleModule) and self.sharded:",
        "as many positions as examples are clipped in their place",
        "tests/training/test_rows.py::test_as_many_positions_as_examples_are_not_taken_for_them",
    ),
    (
        "training/torch/rows.py",
        "if others_again and again and Replaced(others_again, examples).differ(again, axes):",
        "if others_again is None:",
        "a model looks across the examples of a batch, and clipping bounds nobody's influence",
        "tests/training/test_mixing.py::test_models_that_mix_the_examples_are_refused",
    ),
    (
        "training/torch/mixing.py",
        "if value is None or other is None or not same(value, other):",
        "if value is None or other is None:",
        "the mean of every batch is in a buffer that is saved with the model, without noise",
        "tests/training/test_mixing.py::test_models_that_write_what_the_examples_are_are_refused",
    ),
    (
        "training/torch/mixing.py",
        "if _sums(getattr(part, name)) != sums:",
        "if not sums:",
        "the mean of every batch is in frozen weights, without noise",
        "tests/training/test_mixing.py::test_models_that_write_what_the_examples_are_are_refused",
    ),
    (
        "training/torch/accountant.py",
        'watch_rows(caller["module"])',
        "pass",
        "models that mix examples have a certificate from Opacus' own engine",
        "tests/training/test_opacus_accountant.py::test_models_that_mix_examples_are_refused",
    ),
    (
        "training/torch/accountant.py",
        "self.finite &= all(",
        "self.finite |= all(",
        "one example makes the model of Opacus' own engine NaN, and epsilon is that of clipped gradients",
        "tests/training/test_opacus_accountant.py::test_an_example_that_makes_the_model_nan_is_caught",
    ),
    (
        "training/jax/execution_plan.py",
        "check_shared(args, apart, size)",
        "pass",
        "one label turns the gradients of a whole batch round, as every example sees all of them",
        "tests/training/test_jax_arguments.py::test_labels_that_are_not_named_are_refused",
    ),
    (
        "training/jax/exact.py",
        "check_shared(args, positions_of(self.positions, self.argnums), size)",
        "pass",
        "one label turns the integers of a whole batch round, as every example sees all of them",
        "tests/training/test_jax_arguments.py::test_labels_that_are_not_named_are_refused",
    ),
    (
        "training/record.py",
        "if self.steps > sampler.steps:",
        "if False:",
        "a record of more steps than planned has the certificate of the plan",
        f"{RECORD}::test_a_record_of_more_steps_than_planned_or_other_examples_is_refused",
    ),
    (
        "training/record.py",
        "alike = alike and certified.sampler == self.mechanism.sampler.prefix(self.steps)",
        "pass",
        "a record takes a certificate of rarer batches for that of its own steps",
        f"{RECORD}::test_a_record_that_was_sealed_again_with_another_certificate_is_refused",
    ),
    (
        "training/torch/accountant.py",
        "if float(optimizer.max_grad_norm) < joint * (1.0 - 1e-6):",
        "if float(optimizer.max_grad_norm) > joint * (1.0 + 1e-6):",
        "a schedule halves the noise of a step and not its gradients",
        "tests/training/test_opacus_accountant.py::test_a_schedule_that_moves_the_noise_alone_is_refused",
    ),
    (
        "training/torch/accountant.py",
        "if len(rows) > 1:",
        "if not rows:",
        "clipping by layers clips positions and not examples",
        "tests/training/test_opacus_accountant.py::test_layers_that_are_clipped_along_another_dimension_are_refused",
    ),
    (
        "calibration/opacus.py",
        "steps = max(1, ceil(Fraction(passes / rate).limit_denominator(10**4)))",
        "steps = max(1, int(passes / rate))",
        "noise is calibrated for a step fewer than a loader makes",
        "tests/calibration/test_opacus.py",
    ),
]
