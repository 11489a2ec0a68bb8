"""A strategy of Flower: the plan's cohorts, every update clipped to one norm and of weight one, the plan's noise."""

import json
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result
from flwr.serverapp.strategy import Strategy as FlowerStrategy
from numpy.typing import NDArray

from hockeystick.calls import called
from hockeystick.errors import InvalidInputError, shortened
from hockeystick.mechanism import Mechanism
from hockeystick.noise.noise_stream import check_options
from hockeystick.noise.rows import MAX_BYTES, Rows
from hockeystick.plan import Plan
from hockeystick.training.adaptive import SMALLEST, clipped, expect_positive
from hockeystick.training.engine import Engine
from hockeystick.training.exact_sums import exact_sum
from hockeystick.training.flower.layout import Layout, Reals
from hockeystick.training.run import Run
from hockeystick.training.state_file import load_arrays, save_arrays

Step = Callable[[Reals, Reals], Reals]
"""From the flat model and the noisy mean of the updates to the next model; it sees nothing else, so it is free."""
CHECKED = ("clipping", "norms", "clipping_norm", "noise_is_added", "public_normaliser", "batches_in_step")
"""What the strategy does itself."""
ASSERTED = ("absent_clients",)
"""What a client did whose update was left out."""
POLL = 0.5
"""Seconds between two looks at who has joined."""
WHAT = {"layout": "names, types or shapes of the model's arrays", "clients": "clients, or of the same in another order"}
"""What entries of a checkpoint are about."""
LOG = logging.getLogger("flwr")


def add(model: Reals, mean: Reals) -> Reals:
    """Federated averaging: the mean of the updates is the step."""
    return model + mean


class Strategy(Engine, FlowerStrategy):
    """Rounds of a plan: an example of the plan is a client, and a step a round.

    In every round the clients of the plan's batch train, an empty batch included. What a client changed in the model is
    clipped as a whole, in the sum with weight one whatever number of examples it reports, and the sum gets the noise
    of the plan, correlated or not, and is divided by the plan's expected batch size. So the certificate is about all
    data of one client, and about an honest server: clients send what they trained in the clear.

    >>> from flwr.app import ArrayRecord
    >>> import hockeystick as hs
    >>> plan = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.5, steps=20), noise_multiplier=4.0)
    >>> strategy = Strategy(plan, clip_norm=1.0, clients=range(1, 11))
    >>> # in a server app: result = strategy.start(grid, ArrayRecord(model.state_dict()))
    >>> hs.certify(strategy.mechanism, delta=1e-5).epsilon.upper < 5.0
    True

    *Clients that do not answer*, in time or at all, with an error, or with what is no model of the same names and
    shapes, count as an update of zeros, and the batch and its noise stay as they are. That is covered as long as it
    depends on the client's own data or on chance, not on other clients' data; the record has it as a promise. Second
    answers, and those of clients that were not asked, are left out.

    *What leaves the server.* The model of every round is covered. Metrics that clients send are not, so they are not
    looked at, and clients do not evaluate: give ``start`` an ``evaluate_fn`` with data of the server. Flower's own log
    says how many clients answered, which is secret with most samplers.

    *After a crash.* With a ``checkpoint``, the run and its model are written there before the model of a round leaves
    :meth:`aggregate_train`, and :meth:`start` goes on from such a file. Nothing else can continue a run: a round that
    is made again gets the same noise for other answers, and the difference of both models would have none.

    *Secure aggregation* gives the server sums alone, and it cannot clip: there is no such strategy here.

    Args:
        plan: a Plan or a Mechanism; one with a target and no noise is calibrated here.
        clip_norm: l2 norm of an update, all arrays of the model together.
        clients: node ids in the order of the plan's examples, as many as it has; by default those that have joined when
            the first round begins, ascending, for which the plan has to say its number of examples.
        step: of the server, from the flat model and the noisy mean of updates to the next model; by default their sum.
        checkpoint: a file, secret as ``Run.save`` says.
        rng: seeds cohorts and noise; None for a fresh seed of the operating system.
        secure: take the noise from AES-256 under a key of the operating system; excludes ``rng``.
        max_bytes, rows: as for :func:`hockeystick.noise.stream`, which says where the noise keeps its rows.
        join_seconds: how long the first round waits for all clients of the plan.
        arrayrecord_key, configrecord_key: as for FedAvg.

    Raises: InvalidInputError for arguments out of range, and for a plan that says neither noise nor a target.
    """

    BEGINS = "start"

    @called("hs.flower.Strategy(run, clip_norm=1.0)")
    def __init__(
        self,
        plan: Plan | Mechanism,
        *,
        clip_norm: float,
        clients: Iterable[int] | None = None,
        step: Step = add,
        checkpoint: str | Path | None = None,
        rng: np.random.Generator | None = None,
        secure: bool = False,
        max_bytes: int = MAX_BYTES,
        rows: Rows | None = None,
        join_seconds: float = 60.0,
        arrayrecord_key: str = "arrays",
        configrecord_key: str = "config",
    ) -> None:
        if plan is None:
            raise InvalidInputError("The 'plan' argument must be a Plan or a Mechanism. Got None instead.")
        expect_positive("clip_norm", clip_norm)
        if clip_norm < SMALLEST["float32"]:
            raise InvalidInputError(
                f"The 'clip_norm' argument must be at least {SMALLEST['float32']:g}. Got {clip_norm!r} instead."
            )
        super().__init__(plan)
        if clients is None and self._num_examples is None:
            raise InvalidInputError("The 'clients' argument has to be given, as the plan does not say 'num_examples'.")
        self._clip_norm, self._server_step, self._join_seconds = float(clip_norm), step, join_seconds
        self._checkpoint = None if checkpoint is None else Path(checkpoint)
        self._keys = (arrayrecord_key, configrecord_key)
        self._options: dict[str, Any] = {"rng": rng, "secure": secure, "max_bytes": max_bytes, "rows": rows}
        check_options(self.mechanism.exact, dtype=np.float32, **self._options)
        self._clients = [] if clients is None else self._population([int(client) for client in clients])
        self._layout: Layout | None = None
        self._model: Reals | None = None  # that the clients of this round have
        self._continued: Reals | None = None  # of a checkpoint, until the rounds go on from it
        self._batch: NDArray[np.int64] | None = None
        self._settle()  # may take long, so what can be wrong comes before

    @property
    def also_checked(self) -> tuple[str, ...]:
        """What the strategy does itself, which a run alone takes on trust."""
        return (*CHECKED, "exact_sums") if self.mechanism.exact else CHECKED

    @property
    def also_asserted(self) -> tuple[str, ...]:
        """What a run of examples does not need."""
        return ASSERTED

    def _population(self, clients: Sequence[int]) -> list[int]:
        planned = self._num_examples
        if len(set(clients)) != len(clients):
            raise InvalidInputError("The 'clients' argument must name every node once.")
        if not clients or planned not in (None, len(clients)):
            wanted = "at least one" if planned is None else f"as many as the plan has examples, {planned}"
            raise InvalidInputError(f"The clients must be {wanted}. Got {len(clients)} instead.")
        return list(clients)

    def _join(self, grid: Grid) -> list[int]:
        """The nodes that have joined, once they are as many as the plan has examples."""
        assert self._num_examples is not None
        end = time.monotonic() + self._join_seconds
        while True:
            joined = sorted(int(node) for node in grid.get_node_ids())
            if len(joined) >= self._num_examples or time.monotonic() >= end:
                return self._population(joined)
            time.sleep(POLL)

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int | None = None,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """As in Flower; ``num_rounds`` are those that the plan has left by default, and rounds count from its first.

        Where there is a checkpoint, its model takes the place of ``initial_arrays``, which say the names and shapes.

        Raises: InvalidInputError for more rounds than the plan has left, before the first, and for a checkpoint of
        another plan, other clients or another model.
        """
        if self._run is None:
            self._begin(grid, initial_arrays)
        assert self._layout is not None
        arrays = initial_arrays if self._continued is None else self._layout.record(self._continued)
        self._continued = None
        before = self.run.step
        rounds = self.run.remaining if num_rounds is None else num_rounds
        if rounds > self.run.remaining:
            raise InvalidInputError(
                f"The 'num_rounds' argument must be at most the {self.run.remaining} rounds that the plan has left. "
                f"Got {shortened(num_rounds)} instead."
            )
        counted = None if evaluate_fn is None else lambda number, model: evaluate_fn(number + before, model)
        result: Result = super().start(grid, arrays, rounds, timeout, train_config, evaluate_config, counted)
        if not rounds:
            result.arrays = arrays
        return result

    def summary(self) -> None:
        """Log the plan."""
        mechanism = self.mechanism
        LOG.info("Cohorts: %s, %s rounds", mechanism.sampler.kind, mechanism.sampler.steps)
        LOG.info("Noise: %s, multiplier %s", mechanism.strategy.kind, mechanism.sigma)
        LOG.info("Clipping norm: %s", self._clip_norm)

    def _begin(self, grid: Grid, arrays: ArrayRecord) -> None:
        """Make the run, for the model and the clients that there are, or continue that of the checkpoint."""
        layout = Layout(arrays)
        clients = self._clients or self._join(grid)
        run = Run(
            self.mechanism,
            num_examples=len(clients),
            shape=layout.size,
            dtype=np.int32 if self.mechanism.exact else layout.dtype,
            **self._options,
        )
        if self._checkpoint is not None and self._checkpoint.exists():
            entries = load_arrays(self._checkpoint, f"checkpoint {shortened(str(self._checkpoint))}")
            for name, own in (("layout", str(layout)), ("clients", _listed(clients))):
                if str(entries.pop(name, "")) != own:
                    raise InvalidInputError(
                        f"The checkpoint {shortened(str(self._checkpoint))} is of other {WHAT[name]}; continue with "
                        "those that it was made with."
                    )
            self._continued = np.asarray(entries.pop("model"))
            run.load_state_dict(entries)
        self._clients, self._layout, self._run = clients, layout, run

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The messages to the clients of the next batch that are connected.

        Raises: InvalidInputError within a round, after the last one, and for a model of other names or shapes.
        """
        if self._run is None:
            self._begin(grid, arrays)
        assert self._layout is not None
        if self._batch is not None:
            raise InvalidInputError("A round has to end, with aggregate_train, before the next one begins.")
        if not self.run.remaining:
            raise InvalidInputError(f"All {self.run.steps} planned rounds were taken; more need a plan of more steps.")
        model = self._layout.flat(arrays)
        if model is None:
            raise InvalidInputError("The model must have the names and shapes that it had in the first round.")
        self._model, self._batch = model, next(self.run.batches())
        config["server-round"] = self.run.step + 1
        content = RecordDict({self._keys[0]: arrays, self._keys[1]: config})
        connected = set(grid.get_node_ids())
        nodes = [self._clients[client] for client in self._batch]
        return [
            Message(content=content, message_type=MessageType.TRAIN, dst_node_id=node)
            for node in nodes
            if node in connected
        ]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The next model; no metrics, which are not covered.

        Raises: InvalidInputError outside of a round, and in the first one where no answer is a model like that sent.
        """
        if self._batch is None or self._model is None or self._layout is None:
            raise InvalidInputError("There is no round to aggregate; configure_train begins it.")
        updates, strange = self._updates(replies)
        if strange and not updates and not self.run.step:
            raise InvalidInputError(
                "Clients have to answer with one ArrayRecord, of the names and shapes of the model's arrays. "
                f"None of {strange} did."
            )
        steps = self.run.norm_steps
        total = np.zeros(self._model.size, np.float64 if steps is None else np.int64)
        for update in updates:
            total += self._clipped(update)
        noise = np.asarray(self.run.noise(self._batch))
        noisy = total + self._clip_norm * noise if steps is None else (total + noise) * (self._clip_norm / steps)
        self._batch = None
        arrays = self._layout.record(self._server_step(self._model, noisy / self.run.expected_batch_size))
        self._save(arrays)
        return arrays, None

    def _updates(self, replies: Iterable[Message]) -> tuple[list[Reals], int]:
        """What clients of this round changed, and how many answers are none."""
        assert self._batch is not None
        assert self._model is not None
        assert self._layout is not None
        waiting = {self._clients[client] for client in self._batch}
        updates, strange = [], 0
        for reply in replies:
            if reply.has_error():  # may come from Flower itself, in the name of no client
                continue
            node = int(reply.metadata.src_node_id)
            if node not in waiting:
                LOG.warning("An answer of node %s, which was not asked or has answered, is left out.", node)
                continue
            waiting.remove(node)
            records = list(reply.content.array_records.values())
            answer = self._layout.flat(records[0]) if len(records) == 1 else None
            if answer is None:
                strange += 1
                LOG.warning("The answer of node %s is no model of the same names and shapes: zeros.", node)
            else:
                updates.append(answer - self._model)
        return updates, strange

    def _clipped(self, update: Reals) -> Reals:
        """In whole grid steps where the mechanism is exact."""
        steps = self.run.norm_steps
        if steps is None:
            return clipped(update[None, :], self._clip_norm)[0]
        return exact_sum(update[None, :], self._clip_norm, steps)[0]

    def _save(self, arrays: ArrayRecord) -> None:
        """Before anybody has the model: a run that continues from here never repeats what was released."""
        if self._checkpoint is not None:
            assert self._layout is not None
            entries = {
                "model": self._layout.flat(arrays),
                "layout": str(self._layout),
                "clients": _listed(self._clients),
            }
            save_arrays(self._checkpoint, self.run.state_dict() | entries)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Nobody: what clients say of their data is not covered."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Nothing, as nobody evaluates."""
        return None


def _listed(clients: Sequence[int]) -> str:
    return json.dumps(clients)
