"""Plausible one-line faults of samplers, noise, strategies, files and the command line that tests must notice."""

S = "src/hockeystick/"

FAULTS = [
    (S + "samplers/bernoulli.py", "rate = -log1p(-prob)", "rate = prob", "the probability to first order only"),
    (
        S + "samplers/b_min_sep.py",
        "(step + self.min_sep, taken)",
        "(step + self.min_sep - 1, taken)",
        "b - 1 steps apart",
    ),
    (S + "samplers/b_min_sep.py", "draw_bins(min_sep - 1, late", "draw_bins(min_sep, late", "warm start one step late"),
    (
        S + "samplers/b_min_sep.py",
        "1 - rate * (self.min_sep - 1)",
        "1 - rate * self.min_sep",
        "waits counted once more",
    ),
    (
        S + "samplers/random_allocation.py",
        "(who.size) / to_come)",
        "(who.size) / (to_come + 1))",
        "gaps of another law",
    ),
    (S + "samplers/truncation.py", "batch.size <= cap:", "batch.size <= cap + 1:", "batches one above the cap"),
    (
        S + "samplers/truncation.py",
        "rng.choice(batch, size=cap, replace=False, shuffle=False)",
        "batch[:cap]",
        "the first examples are kept, not random ones",
    ),
    (S + "samplers/multi_attribution.py", "latest <= step - self", "latest < step - self", "one step longer apart"),
    (
        S + "samplers/cyclic_poisson.py",
        "size = (num_examples - 1 - group) // self.groups + 1",
        "size = num_examples // self.groups",
        "examples beyond equal groups never take part",
    ),
    (
        S + "samplers/base.py",
        "return self.batch_size / self.num_examples",
        "return 1.0 / (self.num_examples // self.batch_size)",
        "the rate from the whole number of batches",
    ),
    (
        S + "samplers/cyclic_poisson.py",
        "sampling_prob=self.groups * data.batch_size / data.num_examples",
        "sampling_prob=self.groups / (data.num_examples // data.batch_size)",
        "the rate from the whole number of batches",
    ),
    (
        S + "noise/noise_stream.py",
        "row = rows[self._step - self._solver.step]",
        "row = rows[-1]",
        "every step of a block gets the same noise",
    ),
    (
        S + "noise/noise_stream.py",
        'resumed._step = int(state["step"])',
        'resumed._step = int(state["step"]) // 2 * 2',
        "a resumed run repeats a row of noise",
    ),
    (
        S + "noise/solver.py",
        "(-(-kept // block) + 1) * block",
        "-(-kept // block) * block",
        "rows overwritten too early",
    ),
    (
        S + "noise/recent_rows.py",
        "scales = (1.0 / coefficients[:, 0])",
        "scales = (1.0 / np.broadcast_to(coefficients[0, 0], count))",
        "the diagonal of the first row for a whole block",
    ),
    (
        S + "noise/buffers.py",
        "buffer[i] = decay * buffer[i] + row[i]",
        "buffer[i] = decay * (buffer[i] + row[i])",
        "the newest row decays at once",
    ),
    (S + "noise/tree.py", "for lower in nodes[:level]:", "for lower in nodes[1:level]:", "a leaf stays in the sum"),
    (
        S + "noise/normals.py",
        "return cls(key.tobytes(), position)",
        "return cls(key.tobytes())",
        "a resumed stream starts its key stream again",
    ),
    (S + "noise/residual.py", "if not residual <= MOST:", "if residual > MOST:", "noise that is not a number passes"),
    (S + "strategies/matrix/base.py", 'dtype="<f8")', 'dtype="<f4")', "digests of single precision"),
    (S + "strategies/custom.py", "if self.sha256 not in (None, digest):", "if False:", "any file will do"),
    (
        S + "strategies/sensitivity.py",
        "best[i] = max(best[i + 1], rewards[i] + best[i + min_sep])",
        "best[i] = max(best[i + 1], rewards[i] + best[i + min_sep + 1])",
        "patterns one step further apart, so a smaller sensitivity",
    ),
    (
        S + "bounds.py",
        "value += change if self.side is Side.UPPER else -change",
        "value += change",
        "lower bounds gain",
    ),
    (S + "bounds.py", "change = (1.0 + exp(epsilon)) * self.slack", "change = self.slack", "slack charged once"),
    (S + "files.py", "os.fsync(stream.fileno())", "stream.flush()", "renamed before it is on the disk"),
    (S + "files.py", "os.replace(temporary, place)", "place.write_bytes(data)", "written in place"),
    (S + "sweep.py", "if torn:", "if False:", "the next line is appended to a torn one"),
    (S + "sweep.py", "fcntl.LOCK_EX | fcntl.LOCK_NB", "fcntl.LOCK_SH | fcntl.LOCK_NB", "two sweeps write to one file"),
    (
        S + "cli/main.py",
        "return str(error), error.exit_code",
        "return str(error), 2",
        "failed verification is bad input",
    ),
    (
        S + "cli/interruption.py",
        "signal.SIGINT, signal.SIG_IGN",
        "signal.SIGINT, signal.SIG_DFL",
        "dies of a late Ctrl-C",
    ),
    (
        S + "cli/common.py",
        "    finally:\n        if path is not None:\n",
        "    finally:\n        if False:\n",
        "not saved",
    ),
    (S + "interop/dp_events.py", "{leaf: count * times for", "{leaf: count for", "repetitions of repetitions are lost"),
]
"""(path, old text, new text, what the fault does); the old text stands in the file once."""
