"""One-line faults in clipping: norms that are too short, and what Opacus' own clipping is charged.

An entry is (path, old text, new text, reason, tests); the old text occurs once in the file.
"""

NORMS = "tests/training/test_norms.py"
ACCOUNTANT = "tests/training/test_opacus_accountant.py"

FAULTS = [
    (
        "training/torch/accountant.py",
        "ceil(epochs / rate",
        "int(epochs / rate",
        "a calibration is for one step fewer than the run takes",
        f"{ACCOUNTANT}::test_calibrations_are_for_every_step_that_is_taken",
    ),
    (
        "training/torch/accountant.py",
        "sample_rate=sampler.sample_rate)",
        "sample_rate=loader.sample_rate)",
        "the rate is read once, before the first step",
        f"{ACCOUNTANT}::test_the_rate_of_the_sampler_is_read_at_every_step",
    ),
    (
        "training/torch/accountant.py",
        "if optimizer.accumulated_iterations != 1:",
        "if optimizer.accumulated_iterations < 1:",
        "two batches in one step are accounted for as one",
        f"{ACCOUNTANT}::test_steps_of_several_batches_are_refused",
    ),
    (
        "training/torch/accountant.py",
        'drawn[0] not in COINS or drawn[1] != "cpu"',
        'drawn[1] != "cpu"',
        "coins of eight bits pass for coins of 24",
        f"{ACCOUNTANT}::test_coins_of_a_narrow_type_are_refused",
    ),
    (
        "training/torch/accountant.py",
        "if loader.collate_fn.rand_on_empty:",
        "if loader.collate_fn is None:",
        "an example may be exchanged for a made-up one, two clipping norms away",
        f"{ACCOUNTANT}::test_made_up_examples_for_empty_batches_are_refused",
    ),
    (
        "training/torch/accountant.py",
        'if type(caller.get("optimizer")) not in OPTIMIZERS:',
        'if caller.get("optimizer") is None:',
        "a clipping norm that follows from the size of the batch is covered by the certificate",
        f"{ACCOUNTANT}::test_opacus_adaptive_clipping_is_refused",
    ),
    (
        "training/torch/accountant.py",
        'and (first or what == "noise")',
        'and first and what == "batches"',
        "a resumed run may have the noise of its first steps again",
        f"{ACCOUNTANT}::test_a_resumed_run_that_would_draw_again_what_it_drew_is_refused",
    ),
    (
        "training/torch/accountant.py",
        'and (first or what == "noise")',
        'and what == "noise"',
        "a resumed run may have the batches of its first steps again",
        f"{ACCOUNTANT}::test_a_resumed_run_that_would_draw_again_what_it_drew_is_refused",
    ),
    (
        "training/torch/accountant.py",
        "first = self._goes_on or not self.history",
        "first = not self.history",
        "where the generators were is known of the first part of a run alone",
        f"{ACCOUNTANT}::test_a_resumed_run_may_go_on_where_its_generator_was",
    ),
    (
        "training/torch/accountant.py",
        'and (first or what == "noise")',
        "and first",
        "a loop may seed the noise of every epoch alike",
        f"{ACCOUNTANT}::test_a_seed_in_the_loop_is_refused",
    ),
    (
        "training/torch/norms.py",
        'return piece.to("cpu" if piece.device.type == "mps" else piece.device, torch.float64)',
        "return piece.to(torch.float32)",
        "squares are added in float32",
        f"{NORMS}::test_a_thousand_clipped_rows_are_no_longer_than_the_norm",
    ),
    (
        "training/torch/norms.py",
        "exact = (clip_norm * (1.0 - room(numbers)) / norms).clamp(max=1.0)",
        "exact = (clip_norm / norms).clamp(max=1.0)",
        "factors leave no room for rounding",
        f"{NORMS}::test_a_thousand_clipped_rows_are_no_longer_than_the_norm",
    ),
    (
        "training/torch/norms.py",
        "for _, piece in _pieces(flat)]",
        "for _, piece in list(_pieces(flat))[:1]]",
        "only the first piece of a gradient counts",
        f"{NORMS}::test_pieces_and_types_change_nothing",
    ),
    (
        "training/torch/norms.py",
        "roundings = (longest + tensors) / 2.0 + 8.0",
        "roundings = 8.0",
        "the length of a tensor is not charged to Opacus' norms",
        f"{NORMS}::test_what_opacus_clips_is_charged_for_the_longest_tensor",
    ),
    (
        "training/torch/ghost.py",
        "    return (squares.clamp(min=0.0) + error).sqrt() + _rounding(tokens) * length",
        "    return (squares.clamp(min=0.0) + error).sqrt()",
        "what float32 adds where tokens cancel is not charged",
        f"{NORMS}::test_norms_for_ghost_clipping_are_upper_bounds",
    ),
    (
        "training/torch/ghost.py",
        "return torch.linalg.vector_norm(outs.sum(dim=1), dim=1) + _rounding(outs.shape[1]) * lengths",
        "return torch.linalg.vector_norm(outs.sum(dim=1), dim=1)",
        "a bias is longer in float32 than its norm says",
        f"{NORMS}::test_norms_for_ghost_clipping_are_upper_bounds",
    ),
    (
        "training/torch/ghost.py",
        "_of_products(i.double(), o.double())",
        "_of_products(i, o).double()",
        "inner products of tokens are rounded to float32",
        f"{NORMS}::test_norms_for_ghost_clipping_are_upper_bounds",
    ),
    (
        "training/torch/accountant.py",
        "self.excess = max(self.excess, clipped_length(optimizer))",
        "pass",
        "Opacus' short norms are not charged",
        "tests/training/test_torch_parts.py::test_the_accountant_of_opacus_own_engine_is_certified",
    ),
]
