"""Flower's rounds on the cohorts, the clipping and the noise of a plan, with client apps in this process."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.errors import InvalidInputError

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

CLIP_NORM = 0.5
Update = Callable[[int, np.ndarray], np.ndarray]


class Room(Grid):
    """A grid whose nodes are client apps of this process; some do not answer, or say that they failed."""

    def __init__(
        self, nodes: Iterable[int], update: Update, *, silent: Iterable[int] = (), failing: Iterable[int] = ()
    ):
        TaskIdentity.run_id = 1
        TaskIdentity.task_id = 1
        TaskIdentity.node_id = 1
        self.nodes, self.update, self.silent, self.failing = list(nodes), update, set(silent), set(failing)
        self.asked: list[list[int]] = []
        self.app = ClientApp()
        self.app.train()(self.train)

    def train(self, message: Message, context: Context) -> Message:
        model = {key: array.numpy() for key, array in message.content["arrays"].items()}
        change = self.update(context.node_id, np.concatenate([part.ravel() for part in model.values()]))
        ends = np.cumsum([part.size for part in model.values()])[:-1]
        parts = zip(model.items(), np.split(change, ends), strict=True)
        arrays = {key: Array((old + new.reshape(old.shape)).astype(old.dtype)) for (key, old), new in parts}
        metrics = MetricRecord({"num-examples": 10**context.node_id, "loss": 0.1})
        return Message(content=RecordDict({"arrays": ArrayRecord(arrays), "metrics": metrics}), reply_to=message)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        messages = list(messages)
        self.asked.append([message.metadata.dst_node_id for message in messages])
        return [reply for message in messages for reply in self.replies(message)]

    def replies(self, message: Message) -> list[Message]:
        node = message.metadata.dst_node_id
        if node in self.silent:
            return []
        if node in self.failing:
            return [Message(error=Error(code=0, reason="out of memory"), reply_to=message)]
        context = Context(run_id=1, node_id=node, node_config={}, state=RecordDict(), run_config={})
        return [self.app(message, context)]

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def set_run(self, run: Any) -> None: ...

    @property
    def run(self) -> Any: ...

    def create_message(self, *args: Any, **options: Any) -> Any: ...

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        return []

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return []


def model(dtype: Any = np.float64) -> ArrayRecord:
    weights = np.random.default_rng(5).normal(size=(3, 2)).astype(dtype)
    return ArrayRecord({"weights": Array(weights), "bias": Array(np.zeros(2, dtype))})


def towards(node: int, flat: np.ndarray) -> np.ndarray:
    """Some clients' updates are longer than the clipping norm, some shorter."""
    return np.full(flat.size, 0.02 * node) - 0.1 * flat


def numbers(arrays: ArrayRecord) -> np.ndarray:
    return np.concatenate([array.numpy().ravel() for array in arrays.values()])


def mechanism(sampler: hs.samplers.Sampler | None = None, **fields: Any) -> hs.Mechanism:
    return hs.Mechanism(sampler=sampler or hs.Poisson(sampling_prob=0.4, steps=20), noise_multiplier=2.0, **fields)


def by_hand(plan: hs.Mechanism, nodes: list[int], update: Update, absent: Iterable[int] = ()) -> np.ndarray:
    """All rounds through ``hs.training.Run``."""
    flat = numbers(model())
    run = hs.training.Run(
        plan,
        num_examples=len(nodes),
        shape=flat.size,
        dtype=np.int32 if plan.exact else np.float64,
        rng=np.random.default_rng(3),
    )
    for batch in run.batches():
        kept = [nodes[client] for client in batch if nodes[client] not in set(absent)]
        rows = np.array([(flat + update(node, flat)) - flat for node in kept]).reshape(-1, flat.size)
        if plan.exact:
            total = sum((hs.training.exact_sum(row[None], CLIP_NORM, run.norm_steps)[0] for row in rows), 0)
            noisy = (total + run.noise(batch)) * (CLIP_NORM / run.norm_steps)
        else:
            noisy = hs.training.clipped(rows, CLIP_NORM).sum(axis=0) + CLIP_NORM * run.noise(batch)
        flat = flat + noisy / run.expected_batch_size
    return flat


def strategy(plan: Any, **options: Any) -> Any:
    return hs.flower.Strategy(plan, clip_norm=CLIP_NORM, rng=np.random.default_rng(3), **options)


@pytest.mark.parametrize("clients", [3, 7, 50])
def test_twenty_rounds_and_their_certificate(clients: int, tmp_path: Any) -> None:
    plan, nodes = mechanism(), [int(node) for node in np.random.default_rng(1).permutation(100)[:clients] + 1]
    room = Room(nodes, towards)
    rounds = strategy(plan, clients=nodes)
    result = rounds.start(room, model())
    np.testing.assert_allclose(numbers(result.arrays), by_hand(plan, nodes, towards), rtol=1e-12, atol=1e-14)
    drawn = [[nodes[client] for client in batch] for batch in rounds.run.all_batches()]
    assert room.asked == [asked for batch in drawn for asked in (batch, [])]  # nobody evaluates
    assert result.train_metrics_clientapp == {}
    certificate = rounds.certificate(delta=1e-3)
    record = rounds.record(certificate)
    hs.verify(certificate)
    assert record.violations == ()
    assert {"clipping", "norms", "noise_is_added", "public_normaliser"} <= {
        check.name for check in record.checks if check.status is hs.training.Status.CHECKED
    }


@pytest.mark.parametrize(
    "sampler",
    [hs.FixedSize(batch_size=5, num_examples=20, steps=200), hs.Poisson(sampling_prob=0.25, steps=200)],
    ids=["fixed_size", "poisson"],
)
def test_the_nodes_that_are_asked_have_the_law_of_the_plan(sampler: hs.samplers.Sampler) -> None:
    """The audit refutes a right law with probability 1e-6 at most; a loop over the nodes in order is refuted."""
    nodes = list(range(1, 21))
    room = Room(nodes, towards)
    strategy(mechanism(sampler), clients=nodes).start(room, model())
    asked = [[node - 1 for node in round_] for round_ in room.asked[::2]]  # between rounds nobody evaluates
    in_turn = [[(5 * round_ + place) % 20 for place in range(5)] for round_ in range(200)]
    for batches, refuted in ((asked, False), (in_turn, True)):
        verdict = hs.audit.sampler(batches, sampler, num_examples=20, level=1e-6)
        assert verdict.refuted == refuted


@pytest.mark.parametrize(
    "plan",
    [
        mechanism(hs.FixedSize(batch_size=3, num_examples=6, steps=8)),
        mechanism(hs.BallsInBins(bins=4, epochs=3), strategy=hs.BandedSquareRoot(bands=4)),
        mechanism(hs.Poisson(sampling_prob=0.1, steps=6)),  # with empty rounds
        mechanism(hs.Poisson(sampling_prob=0.5, steps=6), exact=True),
    ],
    ids=["fixed_size", "correlated", "empty", "exact"],
)
def test_the_rounds_are_those_of_a_loop_by_hand(plan: hs.Mechanism) -> None:
    nodes = [2, 3, 5, 7, 11, 13]
    known = getattr(plan.sampler, "num_examples", None)  # ids ascending where the plan says how many
    clients = nodes if known is None else None
    result = strategy(plan, clients=clients).start(Room(nodes[::-1], towards), model())
    exact = by_hand(plan, nodes, towards)
    np.testing.assert_allclose(numbers(result.arrays), exact, rtol=0.0 if plan.exact else 1e-12, atol=0.0)


def test_clients_that_do_not_answer_are_zeros() -> None:
    nodes = list(range(1, 9))
    room = Room(nodes[:-1], towards, silent=[1, 4], failing=[2])  # and 8 is not connected
    result = strategy(mechanism(), clients=nodes).start(room, model())
    np.testing.assert_allclose(
        numbers(result.arrays), by_hand(mechanism(), nodes, towards, absent=[1, 2, 4, 8]), rtol=1e-12
    )


def test_no_update_moves_the_model_by_more_than_the_clipping_norm() -> None:
    """Beside the same noise; also of what is not finite, and of a client that claims 10^9 examples."""
    plan = hs.Mechanism(sampler=hs.Deterministic(bins=1, epochs=1), noise_multiplier=1.0)

    def after(node: int, size: float) -> np.ndarray:
        return numbers(
            strategy(plan, clients=[node]).start(Room([node], lambda _, flat: flat * 0 + size), model()).arrays
        )

    for node, size, moved in ((1, 1e30, CLIP_NORM), (2, np.nan, 0.0), (3, np.inf, 0.0), (9, 1e-3, 1e-3 * 8**0.5)):
        assert np.linalg.norm(after(node, size) - after(node, 0.0)) == pytest.approx(moved, abs=1e-6)


class CrashError(Exception):
    """What a server that dies does to its round."""


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("round_", [1, 4, 12])
def test_a_run_that_died_goes_on_with_the_same_numbers(round_: int, where: str, tmp_path: Any) -> None:
    """In the middle of a round, or when its model was just released; answers after it are others, as of stragglers."""
    nodes = list(range(1, 7))
    plan = mechanism(hs.Poisson(sampling_prob=0.4, steps=12), strategy=hs.BandedSquareRoot(bands=3))
    whole = strategy(plan, clients=nodes).start(Room(nodes, towards), model())
    released: list[np.ndarray] = []

    def dies(number: int, arrays: ArrayRecord) -> None:
        released.append(numbers(arrays))
        if where == "after" and number == round_:
            raise CrashError

    class Dying(Room):
        def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
            replies = super().send_and_receive(messages, timeout=timeout)
            if where == "before" and len(self.asked) == 2 * round_ - 1:
                raise CrashError
            return replies

    path = tmp_path / "run.checkpoint"
    with pytest.raises(CrashError):
        strategy(plan, clients=nodes, checkpoint=path).start(Dying(nodes, towards), model(), evaluate_fn=dies)
    again = hs.flower.Strategy(plan, clip_norm=CLIP_NORM, clients=nodes, checkpoint=path, rng=np.random.default_rng(3))
    seen: list[int] = []
    result = again.start(Room(nodes, towards), model(), evaluate_fn=lambda number, arrays: seen.append(number))
    np.testing.assert_array_equal(numbers(result.arrays), numbers(whole.arrays))
    resumed = path.exists() and again.run.resumed
    assert resumed == (0 if (round_, where) == (1, "before") else 1)
    assert seen[-1:] == ([12] if again.run.steps > round_ or where == "before" else seen[-1:])
    assert again.run.remaining == 0


def test_rounds_in_two_parts_are_those_of_one() -> None:
    """The second part begins with the model that it is given, which is that of the first."""
    nodes = [1, 2, 3, 4]
    parts = strategy(mechanism(), clients=nodes)
    half = parts.start(Room(nodes, towards), model(), num_rounds=9)
    whole = strategy(mechanism(), clients=nodes).start(Room(nodes, towards), model())
    np.testing.assert_array_equal(numbers(parts.start(Room(nodes, towards), half.arrays).arrays), numbers(whole.arrays))


def test_a_checkpoint_of_other_clients_or_another_model_is_refused(tmp_path: Any) -> None:
    nodes, path = list(range(1, 7)), tmp_path / "run.checkpoint"
    strategy(mechanism(), clients=nodes, checkpoint=path).start(Room(nodes, towards), model(), num_rounds=2)
    other = ArrayRecord({"weights": Array(np.zeros((2, 3))), "bias": Array(np.zeros(2))})
    for says, clients, arrays in (("of other clients", nodes[::-1], model()), ("of other names", nodes, other)):
        with pytest.raises(InvalidInputError, match=says):
            strategy(mechanism(), clients=clients, checkpoint=path).start(Room(nodes, towards), arrays)


class Strange(Room):
    """Nodes 1 to 4 answer with other shapes, damaged bytes, two records and twice; Flower answers for 5."""

    def replies(self, message: Message) -> list[Message]:
        node = message.metadata.dst_node_id
        replies = super().replies(message)
        if node == 1:
            replies = [
                Message(content=RecordDict({"arrays": ArrayRecord({"bias": Array(np.ones(2))})}), reply_to=message)
            ]
        if node == 2:
            replies[0].content["arrays"]["bias"].data = b"no array"
        if node == 3:
            replies[0].content["more"] = ArrayRecord({"bias": Array(np.ones(2))})
        if node == 5:
            replies = [Message(error=Error(code=1, reason="unavailable"), reply_to=message)]
            replies[0].metadata.__dict__["_src_node_id"] = 1
        return replies * 2 if node == 4 else replies


def test_strange_answers_are_zeros_or_left_out() -> None:
    """But for the first round, in which a mistake of all clients is an error."""
    nodes = list(range(1, 9))
    plan = hs.Mechanism(sampler=hs.Deterministic(bins=1, epochs=2), noise_multiplier=2.0)
    result = strategy(plan, clients=nodes).start(Strange(nodes, towards), model())
    np.testing.assert_allclose(numbers(result.arrays), by_hand(plan, nodes, towards, absent=[1, 2, 3, 5]), rtol=1e-12)


def test_a_client_that_changes_nothing_counts_as_zeros() -> None:
    """Flower's own clipping divides by the length of its update."""
    nodes = [1, 2, 3]
    plan = hs.Mechanism(sampler=hs.Deterministic(bins=1, epochs=2), noise_multiplier=2.0)

    def update(node: int, flat: np.ndarray) -> np.ndarray:
        return np.zeros(flat.size) if node == 2 else towards(node, flat)

    result = strategy(plan, clients=nodes).start(Room(nodes, update), model())
    np.testing.assert_allclose(numbers(result.arrays), by_hand(plan, nodes, towards, absent=[2]), rtol=1e-12)


def test_a_client_that_writes_into_what_it_got_changes_its_own_update_alone() -> None:
    """Client apps in one process may have got the server's own arrays."""

    class Writing(Room):
        def train(self, message: Message, context: Context) -> Message:
            reply = super().train(message, context)
            message.content["arrays"]["bias"] = Array(np.full(2, 1e6))
            return reply

    nodes = [1, 2, 3]
    result = strategy(mechanism(), clients=nodes).start(Writing(nodes, towards), model())
    assert np.linalg.norm(numbers(result.arrays)) < 100.0


def test_a_step_of_the_server_and_a_plan_with_a_target() -> None:
    plan = hs.Plan.model_validate(
        {
            "data": {"num_examples": 5, "batch_size": 2, "steps": 4},
            "sampler": {"kind": "poisson"},
            "target": {"epsilon": 3.0, "delta": 1e-3},
        }
    )
    rounds = strategy(plan, step=lambda flat, mean: 0.0 * flat)
    result = rounds.start(Room([1, 2, 3, 4, 5], towards), model(np.float32))
    assert not numbers(result.arrays).any()
    assert result.arrays["weights"].numpy().dtype == np.float32
    assert rounds.certificate().epsilon.upper <= 3.0


class Misshapen(Room):
    """No client answers with the names of the model."""

    def replies(self, message: Message) -> list[Message]:
        wrong = ArrayRecord({"weights": Array(np.zeros(3))})
        return [Message(content=RecordDict({"arrays": wrong}), reply_to=message)]


def test_what_cannot_be_is_one_sentence() -> None:
    plan, room = mechanism(), Room([1, 2, 3], towards)
    everyone = hs.Mechanism(sampler=hs.Deterministic(bins=1, epochs=2), noise_multiplier=2.0)
    three = partial(strategy, clients=[1, 2, 3])
    six = mechanism(hs.FixedSize(batch_size=3, num_examples=6, steps=8))
    whole = ArrayRecord({"counter": Array(np.zeros(2, np.int64))})
    wrong: list[tuple[str, Callable[[], Any]]] = [
        ("must be positive and finite", lambda: hs.flower.Strategy(plan, clip_norm=0.0)),
        ("must be a Plan or a Mechanism", lambda: hs.flower.Strategy(None, clip_norm=1.0)),
        ("must name every node once", lambda: strategy(plan, clients=[1, 1])),
        ("as many as the plan has examples, 6", lambda: strategy(six, join_seconds=0.0).start(room, model())),
        ("must be at most the 20 rounds", lambda: three(plan).start(room, model(), num_rounds=21)),
        ("must hold floating-point numbers", lambda: three(plan).start(room, whole)),
        ("'clients' argument has to be given", lambda: strategy(plan)),
        ("names and shapes of the model's", lambda: three(everyone).start(Misshapen([1, 2, 3], towards), model())),
        ("no round to aggregate", lambda: three(plan).aggregate_train(1, [])),
    ]
    for says, call in wrong:
        with pytest.raises(InvalidInputError, match=says) as refused:
            call()
        assert "\n" not in str(refused.value)
