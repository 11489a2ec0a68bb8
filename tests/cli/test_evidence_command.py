"""hockeystick evidence: tables, JSON, one-sentence errors, and what it leaves behind."""

import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from hockeystick import Certificate, Mechanism, Plan
from hockeystick.claim import MonteCarloClaim, RunClaim, Statement
from hockeystick.evidence import EvidenceStore
from hockeystick.evidence import store as store_module
from hockeystick.evidence.schema import SCHEMA
from hockeystick.monte_carlo import families
from hockeystick.monte_carlo.arrays import Array
from hockeystick.monte_carlo.proposals import Family, Proposal
from hockeystick.monte_carlo.runs import fingerprint, run_chunk
from hockeystick.pairs.registry import dominating_pair
from hockeystick.samples import Node, Run
from hockeystick.types import Direction, Side


@dataclass(frozen=True, kw_only=True, eq=False)
class Toy(Proposal):
    """Normal losses with the weight 1."""

    name: ClassVar[str] = "toy"
    chosen: ClassVar[tuple[str, ...]] = ("order",)
    order: float = 2.0

    @property
    def cost(self) -> float:
        return 1e-7

    def weight_bound(self, epsilon: float) -> float:
        return 1.0

    def draw(self, rng: np.random.Generator, log_weights: Array, losses: Array) -> None:
        log_weights[:] = 0.0
        losses[:] = rng.standard_normal(losses.size)


def mechanism() -> Mechanism:
    return Plan.load("plan.toml").mechanism()


@pytest.fixture
def family(cli: Any, monkeypatch: pytest.MonkeyPatch) -> Family:
    """Samples the pair of the good plan."""
    kind = type(dominating_pair(mechanism()))
    made = Family(
        pair=kind,
        kinds=(Toy,),
        propose=lambda pair, direction, epsilon: (),
        make=lambda pair, kind, **values: kind(**values),
        fingerprint=lambda pair: (pair.noise_multiplier,),
    )
    monkeypatch.setitem(families.FAMILIES, kind, lambda: made)
    return made


def run_of(family: Family, direction: Direction = Direction.REMOVE, seed: int = 1) -> Run:
    pair = dominating_pair(mechanism())
    node = Node(side=Side.UPPER, epsilon=1.0, theta=0.5, weight_bound=1.0 + 1e-6, failure=1e-6)
    return Run(
        subject=fingerprint(family, pair),
        direction=direction,
        proposal=Toy.name,
        parameters={"order": 2.0},
        nodes=(node, node.model_copy(update={"side": Side.LOWER})),
        chunk_size=64,
        seed=seed,
    )


def fill(path: str, run: Run, streams: tuple[int, ...], label: str = "good plan") -> None:
    with EvidenceStore.open(path, label=label) as store:
        for stream in streams:
            store.add(run, run_chunk(Toy(direction=run.direction), run, stream))


@pytest.fixture
def runs(family: Family, monkeypatch: pytest.MonkeyPatch) -> tuple[Run, Run]:
    """Two runs in ``x.sqlite``; the second has a gap."""
    monkeypatch.setattr(store_module, "_now", iter(f"2030-01-01T00:00:{i:02d}+00:00" for i in range(60)).__next__)
    first, second = run_of(family), run_of(family, Direction.ADD)
    fill("x.sqlite", first, (0, 1, 2))
    fill("x.sqlite", second, (0, 2), label="")
    return first, second


def certificate(cli: Any, *claims: RunClaim, name: str = "cert.json") -> None:
    """A certificate that rests on runs."""
    assert cli("epsilon", "plan.toml", "--method", "gaussian", "--out", name).code == 0
    if claims:
        claim = MonteCarloClaim(statement=Statement.CONFIDENCE, failure_probability=1e-3, runs=claims)
        Certificate.load(name).model_copy(update={"monte_carlo": claim}).sealed().save(name)


def test_list(cli: Any, runs: tuple[Run, Run]) -> None:
    first, second = runs
    done = cli("evidence", "list", "x.sqlite")
    assert (done.code, done.err, done.created) == (0, "", set())
    assert done.out.splitlines() == [
        "run           about      direction  proposal  chunks  samples  stored",
        f"{first.key[:12]}  good plan  remove     toy       3       192      2030-01-01T00:00:00+00:00",
        f"{second.key[:12]}  -          add        toy       2       128      2030-01-01T00:00:03+00:00",
    ]
    listed = cli("evidence", "list", "x.sqlite", "--json").json
    assert [run["key"] for run in listed["runs"]] == [first.key, second.key]
    assert listed["runs"][1] | {"key": "", "hockeystick_version": ""} == {
        "key": "",
        "about": "",
        "direction": "add",
        "proposal": "toy",
        "chunks": 2,
        "without_gap": 1,
        "chunk_size": 64,
        "stored": "2030-01-01T00:00:03+00:00",
        "hockeystick_version": "",
    }


def test_show(cli: Any, runs: tuple[Run, Run]) -> None:
    first, second = runs
    everything = cli("evidence", "show", "x.sqlite")
    assert everything.out.count("run ") == 2
    selected = cli("evidence", "show", "x.sqlite", second.key[:8])
    assert f"run {second.key}" in selected.out
    assert first.key not in selected.out
    for part in ("add, toy, order = 2", "1 of 64 samples without a gap (1 more behind a gap)", "upper", "lower"):
        assert part in selected.out
    (shown,) = cli("evidence", "show", "x.sqlite", first.key.upper(), "--json").json["runs"]
    chunks = [run_chunk(Toy(direction=first.direction), first, stream) for stream in range(3)]
    assert shown["samples"] == 192
    assert [node["sum"] for node in shown["nodes"]] == list(sum(chunk.sums for chunk in chunks))
    assert [node["sum_of_logs"] for node in shown["nodes"]] == list(sum(chunk.logs for chunk in chunks))
    assert shown["largest_seen"] == max(chunk.largest for chunk in chunks)
    assert shown["nodes"][0]["theta"] == 0.5


def test_an_empty_store(cli: Any) -> None:
    EvidenceStore.open("x.sqlite").close()
    assert cli("evidence", "list", "x.sqlite").out == cli("evidence", "show", "x.sqlite").out == "no runs\n"
    assert cli("evidence", "list", "x.sqlite", "--json").json == {"runs": []}
    assert cli("evidence", "verify", "x.sqlite", "--json").json["chunks"] == 0


def test_merge(cli: Any, runs: tuple[Run, Run], family: Family) -> None:
    fill("y.sqlite", runs[0], (2, 3))
    fill("z.sqlite", run_of(family, seed=2), (0,))
    done = cli("evidence", "merge", "all.sqlite", "x.sqlite", "y.sqlite", "z.sqlite")
    assert done.out == "7 chunks added; all.sqlite has 3 runs and 7 chunks\n"
    assert done.created == {"all.sqlite"}
    again = cli("evidence", "merge", "all.sqlite", "y.sqlite", "--json")
    assert again.json == {"added": 0, "runs": 3, "chunks": 7}


def test_merging_what_contradicts_or_cannot_be_read(cli: Any, runs: tuple[Run, Run]) -> None:
    chunk = run_chunk(Toy(direction=Direction.REMOVE), runs[0], 1)
    with EvidenceStore.open("bad.sqlite") as store:
        store.add(runs[0], replace(chunk, sums=chunk.sums * 0.9, logs=chunk.logs * 0.9))
    cli.refuses("evidence", "merge", "x.sqlite", "bad.sqlite", code=1, says=("chunk 1", runs[0].key[:12], "'bad"))
    cli.refuses("evidence", "merge", "new.sqlite", "x.sqlite", "no.sqlite", says=("'no.sqlite'", "No such file"))
    cli.refuses("evidence", "merge", "no/x.sqlite", "x.sqlite", says=("'no/x.sqlite'", "No such file"))
    cli.refuses("evidence", "merge", "x.sqlite", says=("SOURCE",))


def test_verify_without_a_pair_says_what_it_did_not_do(cli: Any, runs: tuple[Run, Run]) -> None:
    done = cli("evidence", "verify", "x.sqlite")
    assert done.out.splitlines() == [
        "intact: 2 runs and 5 chunks, all digests match",
        f"run {runs[1].key[:12]}: chunk 1 is missing; what is stored behind it waits for it",
        "no samples were drawn again; give --certificate or --plan, which say what to draw from",
    ]
    health = cli("evidence", "verify", "x.sqlite", "--json").json
    assert (health["intact"], health["redrawn"], health["gaps"]) == (True, None, {runs[1].key: 1})


def test_verify_with_a_plan(cli: Any, runs: tuple[Run, Run]) -> None:
    done = cli("evidence", "verify", "x.sqlite", "--plan", "plan.toml", "--chunks", "9")
    assert f"run {runs[0].key[:12]}: drawn again and confirmed: 0, 1, 2 (3 bit for bit)" in done.out
    health = cli("evidence", "verify", "x.sqlite", "--plan", "plan.toml", "--chunks", "1", "--json").json
    assert [(run["run"], len(run["streams"]), run["bit_for_bit"]) for run in health["redrawn"]] == [
        (run.key, 1, 1) for run in runs
    ]
    other = ("--plan", "plan.toml", "--noise-multiplier", "2")
    cli.refuses("evidence", "verify", "x.sqlite", *other, says=("plan's mechanism", "any run"))


def test_verify_with_a_certificate(cli: Any, runs: tuple[Run, Run]) -> None:
    certificate(cli, RunClaim(run=runs[0], chunks=3), RunClaim(run=runs[1], chunks=1))
    health = cli("evidence", "verify", "x.sqlite", "--certificate", "cert.json", "--json").json
    assert [run["run"] for run in health["redrawn"]] == [run.key for run in runs]
    certificate(cli, RunClaim(run=runs[1], chunks=2), name="more.json")
    says = ("uses 2 chunks", runs[1].key[:12], "has 1")
    cli.refuses("evidence", "verify", "x.sqlite", "--certificate", "more.json", code=1, says=says)
    certificate(cli, RunClaim(run=runs[0].model_copy(update={"seed": 9}), chunks=2), name="other.json")
    cli.refuses("evidence", "verify", "x.sqlite", "--certificate", "other.json", code=1, says=("has 0",))
    certificate(cli, name="none.json")
    cli.refuses("evidence", "verify", "x.sqlite", "--certificate", "none.json", says=("'none.json'", "names no runs"))
    cli.write_plan({"mechanism.noise_multiplier": "2.0"})
    certificate(cli, RunClaim(run=runs[0], chunks=3), name="quieter.json")
    says = (runs[0].key[:12], "another mechanism")
    cli.refuses("evidence", "verify", "x.sqlite", "--certificate", "quieter.json", code=1, says=says)


def test_a_chunk_that_was_not_drawn(cli: Any, runs: tuple[Run, Run]) -> None:
    chunk = run_chunk(Toy(direction=Direction.REMOVE), runs[0], 3)
    with EvidenceStore.open("x.sqlite") as store:
        store.add(runs[0], replace(chunk, logs=0.99 * chunk.logs))
    assert cli("evidence", "verify", "x.sqlite").code == 0  # its digest is good
    says = ("chunk 3", runs[0].key[:12])
    cli.refuses("evidence", "verify", "x.sqlite", "--plan", "plan.toml", "--chunks", "4", code=1, says=says)


def test_damage(cli: Any, runs: tuple[Run, Run]) -> None:
    content = Path("x.sqlite").read_bytes()
    Path("x.sqlite").write_bytes(content[:-1])
    for command in (("list",), ("show",), ("verify",), ("merge", "new.sqlite"), ("prune", "--run", "ab")):
        cli.refuses("evidence", *command, "x.sqlite", code=1, says=("'x.sqlite'", "damaged"))
    Path("x.sqlite").write_bytes(content)
    with closing(sqlite3.connect("x.sqlite", isolation_level=None)) as connection:
        connection.execute("UPDATE chunks SET sums = logs WHERE stream = 2 AND run = ?", (runs[0].key,))
    for command in (("show",), ("verify",), ("merge", "new.sqlite")):
        done = cli("evidence", *command, "x.sqlite")
        assert (done.code, done.out) == (1, "")
        for part in ("chunk 2", runs[0].key[:12], "'x.sqlite'"):
            assert part in done.complaint


@pytest.mark.parametrize("command", ["list", "show", "verify", "prune"])
def test_files_that_are_no_store(cli: Any, command: str) -> None:
    more = ("--run", "ab") if command == "prune" else ()
    Path("folder").mkdir()
    Path("empty").touch()
    Path("text").write_text("text" * 1000)
    for name, says in (
        ("missing", "No such file"),
        ("folder", "not an ordinary file"),
        ("empty", "it is empty"),
        ("text", "not a store"),
        ("plan.toml", "not a store"),
    ):
        cli.refuses("evidence", command, name, *more, says=(f"'{name}'", says))
    EvidenceStore.open("new.sqlite").close()
    with closing(sqlite3.connect("new.sqlite")) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    cli.refuses("evidence", command, "new.sqlite", *more, says=(f"newer schema {SCHEMA + 1}", f"up to {SCHEMA}"))


def test_prune(cli: Any, runs: tuple[Run, Run], family: Family) -> None:
    third = run_of(family, seed=5)
    fill("x.sqlite", third, (0,))
    done = cli("evidence", "prune", "x.sqlite", "--run", third.key[:10])
    assert done.out == f"dropped run {third.key[:12]} with 1 chunk\nx.sqlite has 2 runs and 5 chunks\n"
    certificate(cli, RunClaim(run=runs[1], chunks=1))
    kept = cli("evidence", "prune", "x.sqlite", "--certificate", "cert.json", "--json")
    assert kept.json == {"dropped": [runs[0].key], "kept": [runs[1].key]}
    certificate(cli, name="none.json")
    cli.refuses("evidence", "prune", "x.sqlite", "--certificate", "none.json", says=("names no runs",))
    assert os.path.exists("x.sqlite")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "ommand"),
        (("foo",), "'foo'"),
        (("list",), "FILE"),
        (("show", "x.sqlite", "zz"), "Got 'zz'"),
        (("verify", "x.sqlite", "--chunks", "0"), "whole number from 1 on. Got '0'"),
        (("verify", "x.sqlite", "--chunks", "1.5"), "Got '1.5'"),
        (("verify", "x.sqlite", "--certificate", "a", "--plan", "b"), "cannot be combined"),
        (("verify", "x.sqlite", "--noise-multiplier", "1"), "belongs to --plan"),
        (("verify", "x.sqlite", "--plan", "missing.toml"), "'missing.toml'"),
        (("verify", "x.sqlite", "--certificate", "missing.json"), "'missing.json'"),
        (("prune", "x.sqlite"), "Either --certificate or --run"),
        (("prune", "x.sqlite", "--run", "a", "--certificate", "b"), "not both"),
        (("prune", "x.sqlite", "--run", ""), "beginning of one run's key"),
        (("prune", "x.sqlite", "--run", "zz"), "Got 'zz'"),
    ],
)
def test_command_lines_that_say_nothing_known(cli: Any, runs: object, arguments: tuple[str, ...], says: str) -> None:
    before = Path("x.sqlite").read_bytes()
    cli.refuses("evidence", *arguments, says=(says,))
    assert Path("x.sqlite").read_bytes() == before


def test_a_run_from_another_version(cli: Any, runs: tuple[Run, Run]) -> None:
    """Its evidence can be merged and checked, but not read."""
    import hashlib

    content = '{"something": "else"}'
    key = hashlib.sha256(content.encode()).hexdigest()
    with closing(sqlite3.connect("x.sqlite", isolation_level=None)) as connection:
        connection.execute("INSERT INTO runs VALUES (?, ?, '', '2031', '9.9')", (key, content))
    cli.refuses("evidence", "list", "x.sqlite", code=1, says=(key[:12], "9.9"))
    assert cli("evidence", "verify", "x.sqlite").code == 0
    assert cli("evidence", "merge", "y.sqlite", "x.sqlite").code == 0
    assert cli("evidence", "prune", "x.sqlite", "--run", key).code == 0
    assert cli("evidence", "list", "x.sqlite").code == 0
