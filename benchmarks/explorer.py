"""The explorer's server under load: random plans, right and wrong, and many users at once.

``python -m benchmarks.explorer [--plans N] [--users N] [--seconds S]`` starts ``hockeystick explore`` and prints what
it measured. No answer may be a traceback, and none below the upper bound of ``certify``, which is computed where that
is cheap.
"""

import argparse
import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np

import hockeystick as hs
from hockeystick.accountants.registry import ACCOUNTANTS, DEFAULT
from hockeystick.explorer.choices import choices
from hockeystick.pairs.registry import dominating_pair
from hockeystick.types import Kind, Side

Json = dict[str, Any]
CHEAP = 3.0
"""Standard seconds of all accountants together, up to which an answer is compared with ``certify``."""
TINY = 1e-9
"""Added to both sides of a ratio, as an epsilon may be 0."""
WRONG: tuple[Any, ...] = (
    None,
    -1,
    0,
    1e400,
    float("nan"),
    "",
    "x" * 400,
    "__proto__",
    [],
    {},
    [[1]],
    True,
    10**40,
    "\x00</script>",
)
"""What spoiled plans have in some field."""
FORBIDDEN = ("Traceback", 'File "', "pydantic", "Value error", "nput should", ".py:", "Error:")
"""What no reply may contain."""
FIELDS = {
    "min_sep": (1, 40),
    "bands": (1, 12),
    "buffers": (1, 3),
    "height": (1, 6),
    "groups": (1, 12),
    "examples_per_user": (1, 4),
    "users_per_example": (1, 3),
    "participations": (1, 3),
    "truncated_batch_size": (50, 2_000),
    "warm_up_steps": (0, 20),
    "epochs": (1, 3),
    "cohort_steps": (1, 4),
}
"""Ranges of whole numbers."""


@dataclass
class Client:
    """Requests to one server."""

    port: int
    token: str
    timeout: float = 120.0

    def __call__(self, path: str, body: object = None, *, method: str | None = None) -> tuple[int, Json]:
        """Status and JSON of one request below ``/api/``; it waits while kernels are compiled."""
        while True:
            status, text = self.raw(path, body, method=method)
            if status != 202:
                return status, json.loads(text)
            time.sleep(0.5)

    def raw(self, path: str, body: object = None, *, method: str | None = None) -> tuple[int, str]:
        """Status and text of one request."""
        method = method or ("GET" if body is None else "POST")
        content = None if body is None else json.dumps(body)
        connection = HTTPConnection("127.0.0.1", self.port, timeout=self.timeout)
        with closing(connection):
            connection.request(method, f"/api/{path}", content, {"Authorization": f"Bearer {self.token}"})
            response = connection.getresponse()
            return response.status, response.read().decode()

    def certificate(self, body: object, patience: float = 300.0) -> Json:
        """What a job ends with."""
        status, begun = self("jobs", body)
        assert status == 201, begun
        until = time.monotonic() + patience
        while time.monotonic() < until:
            _, job = self(f"jobs/{begun['job']}")
            if job["state"] not in ("waiting", "running"):
                return job
            time.sleep(0.1)
        raise TimeoutError("The job did not end.")


@contextmanager
def serving(*arguments: str) -> Iterator[tuple[Client, str, subprocess.Popen[str]]]:
    """A running explorer: a client, the address with the token, and the process."""
    command = [sys.executable, "-m", "hockeystick", "explore", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            parts = urlsplit(address)
            assert parts.port is not None, process.communicate()
            yield Client(parts.port, parse_qs(parts.query)["token"][0]), address, process
        finally:
            process.terminate()
            process.wait(30)


def random_plan(draw: random.Random) -> Json:
    """A plan of some kind, most of them sound in themselves; not all combinations are analysed."""
    known = choices()
    sampler = draw.choice(list(known["samplers"]))
    allowed = known["samplers"][sampler]["strategies"]
    strategy = "identity" if draw.random() < 0.5 else draw.choice(allowed)
    plan: Json = {
        "data": {
            "num_examples": draw.choice([1_000, 6_000, 50_000, 60_000, 1_000_000]),
            "batch_size": draw.choice([10, 100, 250, 333, 500]),
            "epochs": draw.choice([1, 2, 5, 10]),
        },
        "sampler": {"kind": sampler} | _options(draw, known["samplers"][sampler]["fields"]),
        "strategy": {"kind": strategy} | _options(draw, known["strategies"][strategy]["fields"]),
        "target": {"epsilon": round(10 ** draw.uniform(-0.7, 1.0), 3), "delta": draw.choice([1e-3, 1e-5, 1e-7])},
        "noise_multiplier": round(10 ** draw.uniform(-0.3, 1.3), 3),
    }
    if draw.random() < 0.15:
        plan["unit"] = {"kind": "user", "examples_per_user": draw.randint(2, 4)}
    return plan


def spoiled(plan: Json, draw: random.Random) -> Json:
    """The plan with something wrong in one field, or without it."""
    plan = json.loads(json.dumps(plan))
    tables = [name for name, value in plan.items() if isinstance(value, dict)]
    table = plan if draw.random() < 0.2 else plan[draw.choice(tables)]
    name = draw.choice(list(table))
    if draw.random() < 0.2:
        del table[name]
    else:
        table[draw.choice([name, "unknown"])] = draw.choice(WRONG)
    return plan


def _options(draw: random.Random, fields: Sequence[Json]) -> Json:
    chosen = {}
    for field in fields:
        if not field["required"] and draw.random() < 0.7:
            continue
        if field["choices"]:
            chosen[field["name"]] = draw.choice(field["choices"])
        elif field["type"] == "boolean":
            chosen[field["name"]] = draw.random() < 0.5
        elif field["name"] == "exponent":
            chosen[field["name"]] = draw.uniform(0.05, 0.95)
        else:
            chosen[field["name"]] = draw.randint(*FIELDS[field["name"]])
    return chosen


def check_answer(body: Json, status: int, text: str) -> str:
    """What became of one question: "answer", "none" or "refused"; AssertionError where the reply is no good."""
    assert status in (200, 400, 422), (status, text, body)
    assert not any(word in text for word in FORBIDDEN), (text, body)
    reply = json.loads(text)
    if status != 200:
        assert reply["error"].endswith("."), (reply, body)
        return "refused"
    return "none" if reply["answer"] is None else "answer"


def is_cheap(mechanism: "hs.Mechanism") -> bool:
    """Whether ``certify`` takes a few seconds at most."""
    pair = dominating_pair(mechanism)
    costs = (
        ACCOUNTANTS[name].seconds(pair)
        for name in DEFAULT
        for side in Side
        if ACCOUNTANTS[name].kind is Kind.DETERMINISTIC and ACCOUNTANTS[name].why_not(pair, side) is None
    )
    return not mechanism.strategy.optimised and sum(costs) <= CHEAP


def compare(body: Json, reply: Json) -> float | None:
    """The answer's upper bound over that of ``certify``; None where ``certify`` takes longer.

    AssertionError where it is below 1, or where a noise multiplier is not certified for the target.
    """
    plan, answer = hs.Plan.parse(body["plan"]), reply["answer"]
    mechanism = plan.mechanism(answer["noise_multiplier"])
    if not is_cheap(mechanism):
        return None
    certified = hs.certify(mechanism, delta=plan.target.delta).epsilon
    shown = answer["epsilon"]
    assert shown["upper"] >= certified.upper, (body, answer, certified)
    assert shown["lower"] is None or shown["lower"] <= certified.upper, (body, answer, certified)
    if body["ask"] == "noise_multiplier":
        assert certified.upper <= plan.target.epsilon, (body, answer, certified)
    return float((shown["upper"] + TINY) / (certified.upper + TINY))


def ask_random(
    client: Client, number: int, seed: int, most_compared: int
) -> tuple[Counter[str], list[float], list[float]]:
    """Ask for so many random plans: what became of them, seconds of each, and ratios to ``certify``."""
    draw, fates = random.Random(seed), Counter[str]()
    seconds: list[float] = []
    ratios: list[float] = []
    for _ in range(number):
        plan = random_plan(draw)
        if draw.random() < 0.25:
            plan = spoiled(plan, draw)
        body = {"plan": plan, "ask": draw.choice(["epsilon", "noise_multiplier"]), "patience": "moving"}
        while True:
            began = time.monotonic()
            status, text = client.raw("quick", body)
            if status != 202:
                break
            time.sleep(0.5)
        seconds.append(time.monotonic() - began)
        fate = check_answer(body, status, text)
        fates[fate] += 1
        if fate == "answer" and len(ratios) < most_compared:
            ratio = compare(body, json.loads(text))
            ratios += [] if ratio is None else [ratio]
    return fates, seconds, ratios


def many_users(client: Client, users: int, seconds: float) -> list[float]:
    """Seconds of every quick answer while so many users move sliders, a change every half second of each."""
    took: list[float] = []
    until = time.monotonic() + seconds

    def user(number: int) -> None:
        mine, draw, near = Client(client.port, client.token), random.Random(number), None
        while time.monotonic() < until:
            plan = {
                "data": {"num_examples": 50_000, "batch_size": draw.randint(400, 600), "epochs": 10},
                "sampler": {"kind": draw.choice(["poisson", "random_allocation"])},
                "target": {"epsilon": 2.0, "delta": 1e-5},
            }
            began = time.monotonic()
            status, reply = mine("quick", {"plan": plan, "ask": "noise_multiplier", "patience": "moving", "near": near})
            took.append(time.monotonic() - began)
            assert status == 200, reply
            if reply["answer"] and reply["answer"]["method"]["upper"] != "gaussian":
                near = reply["answer"]["noise_multiplier"]
            time.sleep(draw.uniform(0.25, 0.75))

    threads = [threading.Thread(target=user, args=(number,)) for number in range(users)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return took


def _percentiles(seconds: Sequence[float]) -> str:
    p50, p95, p99 = (1000.0 * float(np.quantile(seconds, level)) for level in (0.5, 0.95, 0.99))
    return f"{len(seconds)} answers, p50 {p50:.0f} ms, p95 {p95:.0f} ms, p99 {p99:.0f} ms"


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--plans", type=int, default=1_000)
    options.add_argument("--compared", type=int, default=200)
    options.add_argument("--users", type=int, default=20)
    options.add_argument("--seconds", type=float, default=20.0)
    options.add_argument("--seed", type=int, default=19)
    chosen = options.parse_args()
    with serving() as (client, _, _process):
        fates, seconds, ratios = ask_random(client, chosen.plans, chosen.seed, chosen.compared)
        print(f"{chosen.plans} random plans: {dict(fates)}; {_percentiles(seconds)}")
        if ratios:
            spread = (
                f"at least {min(ratios):.5f}, median {float(np.median(ratios)):.4f}, at most {max(ratios):.3f} times"
            )
            print(f"{len(ratios)} compared with certify: {spread}")
        heavy = {"plan": {**_HEAVY}, "ask": "noise_multiplier"}
        jobs = [client("jobs", heavy)[1]["job"] for _ in range(4)]
        took = many_users(client, chosen.users, chosen.seconds)
        print(f"{chosen.users} users beside {len(jobs)} certificates: {_percentiles(took)}")


_HEAVY: Json = {
    "data": {"num_examples": 50_000, "batch_size": 500, "epochs": 10},
    "sampler": {"kind": "balls_in_bins"},
    "strategy": {"kind": "banded_square_root", "bands": 16},
    "target": {"epsilon": 2.0, "delta": 1e-5},
}


if __name__ == "__main__":
    main()
