"""A mechanism that is being executed: its batches, its noise, and whether its promises are kept."""

import hashlib
import math
from collections import deque
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from threading import Lock
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import ArrayLike

from hockeystick._version import __version__
from hockeystick.calls import called
from hockeystick.certificate import Certificate
from hockeystick.errors import InvalidInputError, ViolationError, shortened
from hockeystick.mechanism import Mechanism, expect_mechanism
from hockeystick.noise import NoiseStream, stream
from hockeystick.noise.noise_stream import Part, check_options, without_prefix
from hockeystick.noise.rows import MAX_BYTES, Rows
from hockeystick.noise.solver import Reals
from hockeystick.samplers import Attribution
from hockeystick.samplers.promises import Batch, BrokenPromiseError
from hockeystick.training.commitments import KEY_BYTES, CommitmentChain, context
from hockeystick.training.coverage import check_early_stop, of_first_steps
from hockeystick.training.record import EXACTLY, Check, RunRecord, Status
from hockeystick.training.seeds import Words, fresh_generator, words
from hockeystick.training.state_file import load_arrays, save_arrays

FORMAT = 2
"""Version of the layout of states."""


class Run:
    """One execution of a mechanism: give it the batch of every step, and take the noise of that step for it.

    >>> import numpy as np
    >>> import hockeystick as hs
    >>> mechanism = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.1, steps=3), noise_multiplier=1.0)
    >>> run = Run(mechanism, num_examples=100, shape=4, rng=np.random.default_rng(0))
    >>> data, weights, clip_norm = np.ones((100, 4)), np.zeros(4), 2.0
    >>> for batch in run.batches():
    ...     total = data[batch].sum(axis=0)  # of gradients that were clipped to norm 2
    ...     weights -= (total + clip_norm * run.noise(batch)) / run.expected_batch_size
    >>> run.record(hs.certify(mechanism, delta=1e-5)).violations
    ()

    The run draws the batches, keeps the noise stream and counts the steps. What it checks, and what remains for the
    caller to do, is in its :meth:`record`. A broken promise raises ViolationError *before* the noise of that step is
    given out, is written in the record, and ends the run.

    Everything is secret: the batches, the noise, :meth:`state_dict`. The record may be published.

    Guarantee: a run that was saved and loaded again continues with the same batches and noise, bit for bit, from the
    last step that was saved; batches that were read ahead and not used are drawn again. Steps after the last save that
    were already made are made again, with the same noise: continue a saved run once, with the same code and data, as
    the same noise on two different sums gives away their difference.

    Args:
        mechanism: has a noise multiplier.
        num_examples: size of the dataset.
        shape: of the parameters, for the noise; None where another rank adds it, and :meth:`noise` gives None.
        rng: seeds the batches, the noise and the key of the commitments; None for a fresh seed of the operating system.
        secure: take the noise from AES-256 under a key of the operating system, and the seed of the batches from there;
            needs the ``cryptography`` package and excludes ``rng``.
        dtype: of the noise, float32 or float64.
        attribution: of the examples to users, where the sampler has users.
        max_bytes, rows, part: as for :func:`hockeystick.noise.stream`, which says where the noise keeps its rows.

    Raises: InvalidInputError for a mechanism without noise multiplier, and for arguments that the sampler or the noise
    stream refuse; UnsupportedError where the strategy has no streaming noise.
    """

    @called("hs.training.Run(run, num_examples=50_000, shape=(10,))")
    def __init__(
        self,
        mechanism: Mechanism,
        *,
        num_examples: int,
        shape: int | tuple[int, ...] | None,
        rng: np.random.Generator | None = None,
        secure: bool = False,
        dtype: Any = np.float32,
        attribution: Attribution | None = None,
        max_bytes: int = MAX_BYTES,
        rows: Rows | None = None,
        part: Part = None,
    ) -> None:
        expect_mechanism(mechanism)
        check_options(mechanism.exact, rng=rng, secure=secure, dtype=dtype, max_bytes=max_bytes, rows=rows)
        _ = mechanism.sigma  # a plan without noise is refused before anything is drawn
        source = fresh_generator() if rng is None else rng
        # An auditor who is shown the key learns a digest, not numbers of the generator that seeds the noise.
        entropy, key = words(source), hashlib.sha256(b"hockeystick-commitments/1" + words(source).tobytes()).digest()
        noise: NoiseStream | None = None
        if shape is not None:
            noise = stream(
                mechanism,
                shape,
                rng=None if secure else source,
                secure=secure,
                dtype=dtype,
                max_bytes=max_bytes,
                rows=rows,
                part=part,
            )
        self._rows = rows
        self._start(mechanism, num_examples, attribution, entropy, key)
        self._noise: NoiseStream | None = noise

    def _start(
        self, mechanism: Mechanism, num_examples: int, attribution: Attribution | None, entropy: Words, key: bytes
    ) -> None:
        """Set what a run has before its first step, but for its noise: a loaded one repeats its steps from here."""
        self._mechanism, self._attribution, self._entropy = mechanism, attribution, entropy
        self._lock = Lock()  # batches may be read ahead while another thread takes the steps
        if attribution is not None and mechanism.sampler.kind != "multi_attribution":
            raise InvalidInputError(
                f"The 'attribution' argument does not apply to a sampler of kind {mechanism.sampler.kind!r}."
            )
        self._drawing = self._draw(num_examples)
        self._num_examples = int(num_examples)
        self._drawn: deque[Batch] = deque()
        self._promises = mechanism.sampler.promises(self._num_examples, attribution)
        self._chain = CommitmentChain(key, context(mechanism, self._num_examples))
        self._noise = None
        self._step = 0
        self._told = 0  # steps whose batches the promises have checked
        self._by_examples = True  # every step was told the examples in its sum, and not only their number
        self._refused = 0  # steps that were asked for beyond the last
        self._resumed = 0
        self._violations: list[Check] = []

    @property
    def mechanism(self) -> Mechanism:
        """What is being executed."""
        return self._mechanism

    @property
    def num_examples(self) -> int:
        """The size of the dataset."""
        return self._num_examples

    @property
    def step(self) -> int:
        """The steps that were taken, which is the number of the next one, from 0."""
        return self._step

    @property
    def steps(self) -> int:
        """The planned steps."""
        return self._mechanism.sampler.steps

    @property
    def remaining(self) -> int:
        """Planned steps that were not taken yet."""
        return self.steps - self._step

    @property
    def resumed(self) -> int:
        """How often the run continued from a saved state."""
        return self._resumed

    @property
    def violations(self) -> tuple[str, ...]:
        """The promises that were broken, as :attr:`RunRecord.violations` has them, without the cost of a record."""
        return tuple(violation.name for violation in self._violations)

    @property
    def expected_batch_size(self) -> float:
        """The public number to divide noisy sums by: the batch size that the sampler has on average.

        Of a sampler that cuts batches, or excludes examples, what it has on average before it does.
        """
        return self._promises.expected_batch_size

    @property
    def steps_per_epoch(self) -> int:
        """The steps in which about as many examples are used as there are."""
        return self._promises.steps_per_epoch

    @property
    def epoch_length(self) -> Fraction:
        """The same as a fraction, where a rate makes an epoch end within a step."""
        return self._promises.epoch_length

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """The type of the noise; None without noise."""
        return None if self._noise is None else self._noise.dtype

    @property
    def size(self) -> int | None:
        """The numbers in a step's noise, those of this process's part; None without noise."""
        return None if self._noise is None else math.prod(self._noise.shape)

    @property
    def norm_steps(self) -> int | None:
        """K, the grid steps in a clipping norm: of an exact mechanism, whose noise is in steps; None without noise."""
        grid = None if self._noise is None else self._noise.grid
        return None if grid is None else round(1.0 / grid)

    def _draw(self, num_examples: int) -> Iterator[Batch]:
        """The batches from the first step on, drawn anew."""
        generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([int(word) for word in self._entropy])))
        more: dict[str, Any] = {} if self._attribution is None else {"attribution": self._attribution}
        return self._mechanism.sampler.batches(num_examples, generator, **more)

    def all_batches(self) -> Iterator[Batch]:
        """The batches of all steps, those that were taken included, for loops that skip what was done themselves."""
        return self._draw(self._num_examples)

    def batches(self) -> Iterator[Batch]:
        """The batches from the next step to the last, ascending indices, some of them empty.

        They may be read ahead of the steps, as workers that prefetch do; another call starts at the next step again.

        Raises: InvalidInputError when an iterator is behind the steps, which were taken with the batches of another.
        """
        drawing = self._drawing
        for at in range(self._step, self.steps):
            if at < self._step or drawing is not self._drawing:
                raise InvalidInputError("These batches were used already, or belong to a state that was replaced.")
            yield self._batch(at).copy()

    def _batch(self, at: int) -> Batch:
        """The batch of a step from the next one on, drawn when it is first asked, and kept until the step is taken."""
        with self._lock:
            while at - self._step >= len(self._drawn):
                self._drawn.append(next(self._drawing))
            return self._drawn[at - self._step]

    def noise(self, examples: ArrayLike | int, *, out: Reals | None = None, copy: bool = True) -> Reals | None:
        """Take the next step: the noise for the sum over these examples, in clipping norms; None for ``shape`` None.

        Args:
            examples: the indices of the examples whose clipped gradients are in the sum, in any order; or only how
                many they are, and the record says that only the number was checked.
            out, copy: as for :meth:`hockeystick.noise.NoiseStream.next`.

        Raises: ViolationError when the examples are not those of the batch of this step, or the run was ended by an
        earlier violation; InvalidInputError after the last planned step, and for an ``out`` that does not fit.
        """
        if self._violations:
            broken = self._violations[0]
            raise ViolationError(f"The run ended at step {broken.step}, which broke the promise {broken.name!r}.")
        if not self.remaining:
            self._refused += 1
            raise InvalidInputError(
                f"All {self.steps} planned steps were taken; a run of more steps needs a plan with more steps and a "
                "certificate of its own."
            )
        batch = self._batch(self._step)
        by_examples = self._matches(examples, batch)
        try:
            self._check(batch)
        except BrokenPromiseError as error:
            self.violated(error.promise)
        if self._noise is not None and self._noise.step != self._step:  # an interrupt came between the two
            self.violated("one_noise_row_a_step")
        row = None if self._noise is None else self._noise.next(out, copy=copy)
        self._by_examples &= by_examples
        self._commit(batch)
        return row

    def _matches(self, examples: ArrayLike | int, batch: Batch) -> bool:
        """Whether indices were given and not only their number; ends the run unless they are those of the batch."""
        if isinstance(examples, int | np.integer) and not isinstance(examples, bool):
            if int(examples) != batch.size:
                self.violated("number_of_examples")
            return False
        given = np.asarray(examples)
        if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
            raise InvalidInputError(
                "The 'examples' argument must be a row of whole numbers, or one whole number. "
                f"Got {shortened(examples)} instead."
            )
        if not np.array_equal(np.sort(given), batch):
            self.violated("examples_of_the_batch")
        return True

    def _check(self, batch: Batch) -> None:
        """Tell the promises of the batch of this step, once, also where the step is tried again."""
        if self._told == self._step:
            self._told += 1
            self._promises.check(self._step, batch)

    def _commit(self, batch: Batch) -> None:
        with self._lock:
            self._chain.add(self._step, batch)
            self._drawn.popleft()
            self._step += 1

    def violated(self, promise: str) -> NoReturn:
        """End the run at this step: the caller saw a promise broken. Raises ViolationError, always."""
        self._violations.append(Check(name=promise, status=Status.VIOLATED, step=self._step))
        raise ViolationError(
            f"Step {self._step} of the run broke the promise {promise!r}: {RunRecord.meaning(promise)} The run ends "
            "here, and no certificate covers it."
        )

    def executed(self) -> Mechanism | None:
        """The mechanism of exactly the steps that were taken, where there is one, which may have a smaller epsilon.

        None before the first step, within an epoch of a sampler that plans whole ones, and for an optimised strategy,
        whose first steps are not those of its shorter self. The whole plan's certificate covers every early stop that
        looks only at what was released; this mechanism's, one that looked at neither data nor what was trained on them.
        """
        return self.first(self._step)

    def first(self, steps: int) -> Mechanism | None:
        """The mechanism of the first ``steps`` steps of the plan, where they are one by themselves."""
        sampler = self._mechanism.sampler.prefix(steps) if steps else None
        return None if sampler is None else of_first_steps(self._mechanism, sampler)

    def record(
        self,
        certificate: Certificate | None = None,
        *,
        stopped_without_looking: bool = False,
        also_checked: tuple[str, ...] = (),
        also_asserted: tuple[str, ...] = (),
        rho: float | None = None,
    ) -> RunRecord:
        """What was executed, checked, taken on trust or violated, together with the certificate that covers it.

        Args:
            certificate: of :attr:`mechanism`, or of :meth:`executed` for a stop that nothing private decided; None for
                a record without one. A run with a violation has none, whatever is given.
            stopped_without_looking: the caller's word that the number of steps depends on nothing private.
            also_checked, also_asserted: promises that the caller's framework checked, of those that are otherwise taken
                on trust, and that it needs beside those of every run.
            rho: of exact sums whose integers change with other examples, by at most this part of the clipping norm, all
                together; gradients were clipped to :func:`hockeystick.training.steps_within` of ``norm_steps``.

        Raises: InvalidInputError for a certificate of another mechanism, one of :meth:`executed` without that word, and
        a rho of a run in floating point.
        """
        if certificate is not None and certificate.mechanism != self._mechanism.pinned():
            check_early_stop(certificate, self.executed(), stopped_without_looking)
        checked = ["steps_in_order", "one_noise_row_a_step", "number_of_examples"]
        checked += [*self._promises.made, *also_checked]
        asserted = ["clipping", "norms", "noise_is_added", "public_normaliser", "same_data", "secrecy"]
        asserted += ["random_numbers", *also_asserted]
        if self._mechanism.exact:
            asserted += [*EXACTLY, "batch_invariance" if rho is None else "change_of_others"]
        (checked if self._by_examples else asserted).append("examples_of_the_batch")
        if not self._by_examples:
            asserted.append("batches_in_step")
        if self._noise is None:
            asserted.append(checked.pop(checked.index("one_noise_row_a_step")))
        if self._resumed:
            asserted.append("repeated_steps_repeat")
        if stopped_without_looking:
            asserted.append("stop_is_public")
        checks = [Check(name=name, status=Status.CHECKED) for name in dict.fromkeys(checked)]
        checks += [Check(name=name, status=Status.ASSERTED) for name in asserted if name not in checked]
        return RunRecord(
            hockeystick_version=__version__,
            mechanism=self._mechanism.pinned(),
            num_examples=self._num_examples,
            steps=self._step,
            refused_steps=self._refused,
            resumed=self._resumed,
            expected_batch_size=self.expected_batch_size,
            noise=None if self._noise is None else self._noise.source,
            noise_dtype=None if self._noise is None else self._noise.dtype.name,
            rho=rho,
            checks=(*(check for check in checks if check.name not in self.violations), *self._violations),
            commitment=self._chain.head.hex(),
            certificate=None if self._violations else certificate,
        ).sealed()

    def state_dict(self) -> dict[str, Any]:
        """All that is needed to continue: arrays, integers and text, as of the last step that was taken.

        Secret, as it has the seed of the batches, the noise and the key of the commitments.
        """
        state = {
            "format": FORMAT,
            "about": hashlib.sha256(context(self._mechanism, self._num_examples)).hexdigest(),
            "num_examples": self._num_examples,
            "step": self._step,
            "entropy": self._entropy.copy(),
            "key": np.frombuffer(self._chain.key, dtype=np.uint8).copy(),
            "head": np.frombuffer(self._chain.head, dtype=np.uint8).copy(),
            "by_examples": int(self._by_examples),
            "refused": self._refused,
            "resumed": self._resumed,
            "violation": self._violations[0].name if self._violations else "",
        }
        noise = self._mechanism.held_state() if self._noise is None else self._noise.state()
        return state | {f"noise_{name}": value for name, value in noise.items()}

    def load_state_dict(self, state: Mapping[str, Any], *, max_bytes: int = MAX_BYTES) -> None:
        """Continue in this object from :meth:`state_dict` of a run of the same mechanism, on data of the same size.

        The batches so far are drawn again, and have to lead to the same commitment. Costs their time.

        Raises: InvalidInputError for a state of another mechanism or dataset size, one that is incomplete, one without
        noise, or with that of another part, where this run has some, and for a generator, as of another release of
        numpy, that gives other batches.
        """
        try:
            self._load(state, max_bytes)
        except KeyError as error:
            raise InvalidInputError(f"The {error.args[0]!r} entry of a run's state is missing.") from None
        except (TypeError, ValueError) as error:
            if isinstance(error, InvalidInputError):
                raise
            raise InvalidInputError(f"The run's state has an entry that no run gives: {error}.") from None

    def _load(self, state: Mapping[str, Any], max_bytes: int) -> None:
        if int(state["format"]) != FORMAT:
            raise InvalidInputError(f"The 'format' entry of a run's state must be {FORMAT}. Got {state['format']}.")
        if int(state["num_examples"]) != self._num_examples:
            raise InvalidInputError(
                f"The state belongs to a run on {int(state['num_examples'])} examples; this one has "
                f"{self._num_examples}."
            )
        entries = without_prefix("noise", state)
        mechanism = self._mechanism.with_held_state(entries)
        if str(state["about"]) != hashlib.sha256(context(mechanism, self._num_examples)).hexdigest():
            raise InvalidInputError("The state belongs to a run of another mechanism; resume with the same plan.")
        if self._noise is not None and "format" not in entries:
            raise InvalidInputError("The state has no noise, like one of another rank; this run needs the noise.")
        noise = None
        if self._noise is not None:
            noise = NoiseStream.from_state(mechanism, entries, max_bytes=max_bytes, rows=self._rows)
            if (noise.shape, noise.dtype, noise.step) != (self._noise.shape, self._noise.dtype, int(state["step"])):
                raise InvalidInputError(
                    f"The state must have noise of shape {self._noise.shape} and type {self._noise.dtype} for its "
                    f"step. Got {noise!r} instead."
                )
            if noise.part != self._noise.part:  # two processes with one part would have the same noise
                raise InvalidInputError(
                    f"The state has the noise of the parameters' numbers in {noise.part}, and this run needs that of "
                    f"{self._noise.part}; load the state that the same process saved."
                )
        again = object.__new__(type(self))
        again._rows = self._rows
        entropy, key = np.asarray(state["entropy"], dtype=np.uint64), np.asarray(state["key"], dtype=np.uint8).tobytes()
        again._start(mechanism, self._num_examples, self._attribution, entropy, key)
        again._repeat(int(state["step"]), np.asarray(state["head"], dtype=np.uint8).tobytes())
        again._noise = noise
        again._by_examples = bool(int(state["by_examples"]))
        again._refused = int(state["refused"])
        again._resumed = int(state["resumed"]) + 1
        if str(state["violation"]):
            again._violations.append(Check(name=str(state["violation"]), status=Status.VIOLATED, step=again._step))
        self.__dict__.update(again.__dict__)

    def _repeat(self, steps: int, head: bytes) -> None:
        """Draw the batches of the steps so far again, and check that they are the same."""
        if not 0 <= steps <= self.steps:
            raise InvalidInputError(f"The 'step' entry of a run's state must be from 0 to {self.steps}. Got {steps}.")
        for at in range(steps):
            self._check(self._batch(at))
            self._commit(self._batch(at))
        if self._chain.head != head or len(head) != KEY_BYTES:
            raise InvalidInputError(
                "The batches that are drawn here are not those of the saved run; resume with the same release of numpy "
                "and the same attribution, from a state that nobody changed."
            )

    def save(self, path: str | Path) -> None:
        """Write :meth:`state_dict` to a file that only its owner can read, whole or not at all.

        Save what was trained up to this step together with it: a state of one step and weights of another are no run.
        """
        save_arrays(path, self.state_dict())

    def load(self, path: str | Path) -> None:
        """Continue in this object from a file of :meth:`save`; raises as :meth:`load_state_dict`."""
        self.load_state_dict(load_arrays(path, f"state {shortened(str(path))}"))

    @classmethod
    def resume(cls, path: str | Path, mechanism: Mechanism, **options: Any) -> Self:
        """A new run with these options that continues from a file of :meth:`save`."""
        run = cls(mechanism, **options)
        run.load(path)
        return run

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        """Refuses copies and pickles, as :class:`hockeystick.noise.NoiseStream` does."""
        raise InvalidInputError(
            "A run cannot be copied or pickled, as both would have the same noise; save its state_dict()."
        )

    def __repr__(self) -> str:
        return f"Run(step={self.step}, steps={self.steps}, num_examples={self.num_examples})"
