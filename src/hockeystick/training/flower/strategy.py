"""A strategy of Flower: the plan's cohorts, every update clipped to one norm and of weight one, the plan's noise."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result
from flwr.serverapp.strategy import Strategy as FlowerStrategy
from numpy.typing import NDArray

from hockeystick.errors import InvalidInputError, shortened
from hockeystick.mechanism import Mechanism
from hockeystick.noise.rows import MAX_BYTES, Rows
from hockeystick.plan import Plan
from hockeystick.training.adaptive import clipped, expect_positive
from hockeystick.training.engine import Engine
from hockeystick.training.exact_sums import exact_sum
from hockeystick.training.run import Run

Reals = NDArray[Any]
Step = Callable[[Reals, Reals], Reals]
"""From the flat model and the noisy mean of the updates to the next model; it sees nothing else, so it is free."""
CHECKED = ("clipping", "norms", "clipping_norm", "noise_is_added", "public_normaliser", "batches_in_step")
"""What the strategy does itself."""
POLL = 0.5
"""Seconds between two looks at who has joined."""


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

    *Clients that do not answer*, in time or at all, or with an error, count as an update of zeros, and the batch and
    its noise stay as they are. That is covered as long as it depends on the client's own data or on chance, not on
    other clients' data. Answers that come later are not looked at.

    *What leaves the server.* The model of every round is covered. Metrics that clients send are not, so they are not
    looked at, and clients do not evaluate: give ``start`` an ``evaluate_fn`` with data of the server. Flower's own log
    says how many clients answered, which is secret with most samplers.

    *Secure aggregation* gives the server sums alone, and it cannot clip: there is no such strategy here.

    Args:
        plan: a Plan or a Mechanism; one with a target and no noise is calibrated here.
        clip_norm: l2 norm of an update, all arrays of the model together.
        clients: node ids in the order of the plan's examples, as many as it has; by default those that have joined when
            the first round begins, ascending.
        step: of the server, from the flat model and the noisy mean of updates to the next model; by default their sum.
        rng: seeds cohorts and noise; None for a fresh seed of the operating system.
        secure: take the noise from AES-256 under a key of the operating system; excludes ``rng``.
        max_bytes, rows: as for :func:`hockeystick.noise.stream`, which says where the noise keeps its rows.
        join_seconds: how long the first round waits for all clients of the plan.
        arrayrecord_key, configrecord_key: as for FedAvg.

    Raises: InvalidInputError for arguments out of range, and for a plan that says neither noise nor a target.
    """

    BEGINS = "start"

    def __init__(
        self,
        plan: Plan | Mechanism,
        *,
        clip_norm: float,
        clients: Iterable[int] | None = None,
        step: Step = add,
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
        super().__init__(plan)
        self._settle()
        self._clip_norm, self._server_step, self._join_seconds = float(clip_norm), step, join_seconds
        self._keys = (arrayrecord_key, configrecord_key)
        self._options: dict[str, Any] = {"rng": rng, "secure": secure, "max_bytes": max_bytes, "rows": rows}
        self._clients = None if clients is None else self._population([int(client) for client in clients])
        self._arrays: ArrayRecord | None = None
        self._batch: NDArray[np.int64] | None = None
        self._saved: Path | None = None

    @property
    def also_checked(self) -> tuple[str, ...]:
        """What the strategy does itself, which a run alone takes on trust."""
        return (*CHECKED, "exact_sums") if self.mechanism.exact else CHECKED

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
        end = time.monotonic() + self._join_seconds
        while True:
            joined = sorted(int(node) for node in grid.get_node_ids())
            enough = bool(joined) if self._num_examples is None else len(joined) >= self._num_examples
            if enough or time.monotonic() >= end:
                return self._population(joined)
            time.sleep(POLL)

    def save(self, path: str | Path) -> None:
        """Write the run's state to a file; save the model of the same round beside it. Secret, see ``Run.save``."""
        self.run.save(path)

    def load(self, path: str | Path) -> None:
        """Continue from a file of :meth:`save` when the next :meth:`start` begins, with its nodes and its model."""
        self._saved = Path(path)

    def start(self, grid: Grid, initial_arrays: ArrayRecord, num_rounds: int | None = None, **options: Any) -> Result:
        """As in Flower; ``num_rounds`` are those that the plan has left by default.

        Raises: InvalidInputError for more rounds than these, before the first.
        """
        if self._run is None:
            self._begin(grid, initial_arrays)
        rounds = self.run.remaining if num_rounds is None else num_rounds
        if rounds > self.run.remaining:
            raise InvalidInputError(
                f"The 'num_rounds' argument must be at most the {self.run.remaining} rounds that the plan has left. "
                f"Got {shortened(num_rounds)} instead."
            )
        result: Result = super().start(grid, initial_arrays, num_rounds=rounds, **options)
        return result

    def summary(self) -> None:
        """Log the plan."""
        log, mechanism = logging.getLogger("flwr"), self.mechanism
        log.info("Cohorts: %s, %s rounds", mechanism.sampler.kind, mechanism.sampler.steps)
        log.info("Noise: %s, multiplier %s", mechanism.strategy.kind, mechanism.sigma)
        log.info("Clipping norm: %s", self._clip_norm)

    def _begin(self, grid: Grid, arrays: ArrayRecord) -> None:
        """Make the run, for the model and the clients that there are."""
        if self._clients is None:
            self._clients = self._join(grid)
        model = _flat(arrays)
        self._run = Run(
            self.mechanism,
            num_examples=len(self._clients),
            shape=model.size,
            dtype=np.int32 if self.mechanism.exact else model.dtype,
            **self._options,
        )
        if self._saved is not None:
            self._run.load(self._saved)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The messages to the clients of the next batch that are connected."""
        if self._run is None:
            self._begin(grid, arrays)
        if self._batch is not None:
            raise InvalidInputError("A round has to end, with aggregate_train, before the next one begins.")
        if not self.run.remaining:
            raise InvalidInputError(f"All {self.run.steps} planned rounds were taken; more need a plan of more steps.")
        assert self._clients is not None
        self._arrays, self._batch = arrays, next(self.run.batches())
        config["server-round"] = server_round
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

        Raises: InvalidInputError for an answer of a node that was not asked, a second one of a node, and arrays that
        are not those of the model.
        """
        if self._batch is None or self._arrays is None or self._clients is None:
            raise InvalidInputError("There is no round to aggregate; configure_train begins it.")
        asked = {self._clients[client] for client in self._batch}
        model = _flat(self._arrays)
        steps = self.run.norm_steps
        total = np.zeros(model.size, np.float64 if steps is None else np.int64)
        for reply in replies:
            node = int(reply.metadata.src_node_id)
            if node not in asked:
                raise InvalidInputError(f"Node {node} answered in round {server_round} twice, or without being asked.")
            asked.remove(node)
            if not reply.has_error():
                total += self._clipped(self._answer(node, reply) - model)
        batch, self._batch = self._batch, None
        noise = np.asarray(self.run.noise(batch))
        noisy = total + self._clip_norm * noise if steps is None else (total + noise) * (self._clip_norm / steps)
        return _like(self._arrays, self._server_step(model, noisy / self.run.expected_batch_size)), None

    def _clipped(self, update: Reals) -> Reals:
        """In whole grid steps where the mechanism is exact."""
        steps = self.run.norm_steps
        if steps is None:
            return clipped(update[None, :], self._clip_norm)[0]
        return exact_sum(update[None, :], self._clip_norm, steps)[0]

    def _answer(self, node: int, reply: Message) -> Reals:
        records = list(reply.content.array_records.values())
        assert self._arrays is not None
        planned = {key: tuple(array.shape) for key, array in self._arrays.items()}
        if len(records) != 1 or {key: tuple(array.shape) for key, array in records[0].items()} != planned:
            raise InvalidInputError(
                f"Node {node} has to answer with one ArrayRecord, of the names and shapes of the model's arrays. Got "
                f"{len(records)} of others instead."
            )
        return _flat({key: records[0][key] for key in planned}).astype(_flat(self._arrays).dtype, copy=False)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Nobody: what clients say of their data is not covered."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Nothing, as nobody evaluates."""
        return None


def _flat(arrays: Mapping[str, Array]) -> Reals:
    """All numbers of a model in a row, in float64 where any array has it, else in float32."""
    parts = [array.numpy() for array in arrays.values()]
    for key, part in zip(arrays, parts, strict=True):
        if part.dtype.kind != "f":
            raise InvalidInputError(
                f"The array {shortened(key)} of the model must hold floating-point numbers, as noise is added to it. "
                f"Got {part.dtype} instead."
            )
    if not sum(part.size for part in parts):
        raise InvalidInputError("The model must have at least one number.")
    dtype = np.float64 if any(part.dtype == np.float64 for part in parts) else np.float32
    return np.concatenate([part.ravel().astype(dtype) for part in parts])


def _like(arrays: ArrayRecord, flat: Reals) -> ArrayRecord:
    """The numbers in the names, shapes and types of these arrays."""
    parts, start = {}, 0
    for key, array in arrays.items():
        old = array.numpy()
        parts[key] = Array(flat[start : start + old.size].reshape(old.shape).astype(old.dtype))
        start += old.size
    return ArrayRecord(parts)
