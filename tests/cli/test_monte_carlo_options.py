"""Monte Carlo from the command line: clean output, evidence that resumes and verifies, one sentence for bad input."""

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hockeystick import Certificate
from hockeystick.evidence import EvidenceStore
from hockeystick.samples import Chunk, Run

ALLOW = ("--allow", "monte-carlo")
UNSEEDED = (*ALLOW, "--failure-probability", "1e-2", "--budget", "600", "--workers", "1")
SAMPLED = (*UNSEEDED, "--seed", "1")
"""Sampling ends by itself within seconds; as the seed is fixed, nothing here fails by chance."""
SCHEME: dict[str, str | None] = {
    "data.num_examples": "800",
    "data.batch_size": "50",
    "data.epochs": None,
    "data.steps": "16",
    "strategy.kind": '"banded_square_root"',
    "strategy.bands": "2",
    "target.delta": "1e-2",
}
SAMPLERS: dict[str, dict[str, str | None]] = {
    "balls_in_bins": {},
    "poisson": {},
    "b_min_sep": {"sampler.min_sep": "4"},
    "multi_attribution": {
        "sampler.min_sep": "4",
        "sampler.examples_per_user": "1",
        "sampler.users_per_example": "3",
    },
}


def plan_of(kind: str, **more: str | None) -> dict[str, str | None]:
    """A small plan with correlated noise and this sampler; ``steps="8"`` changes a field of its table."""
    own = {f"sampler.{name}": value for name, value in more.items()}
    return SCHEME | {"sampler.kind": f'"{kind}"'} | SAMPLERS[kind] | own


@pytest.fixture(scope="module")
def made() -> dict[str, bytes]:
    """The files of ``finished``, sampled once."""
    return {}


@pytest.fixture
def finished(cli: Any, made: dict[str, bytes]) -> Any:
    """The command, where ``cert.json`` is certified for ``plan.toml`` (b-min-sep) by what ``x.sqlite`` stores."""
    cli.write_plan(plan_of("b_min_sep"))
    if not made:
        done = cli("epsilon", "plan.toml", *SAMPLED, "--evidence", "x.sqlite", "--out", "cert.json", "--json")
        check_json(done.json)
        made.update({name: Path(name).read_bytes() for name in sorted(done.created)})
    for name, content in made.items():
        Path(name).write_bytes(content)
    return cli


def check_json(said: dict[str, Any]) -> None:
    """What a Monte Carlo claim has to say."""
    assert set(said) == {
        *("delta", "noise_multiplier", "epsilon", "method", "kind", "confidence", "seconds", "hints"),
        *("failure_probability", "statement"),
    }
    assert (said["kind"], said["method"]["upper"], said["statement"]) == ("monte_carlo", "monte_carlo", "confidence")
    assert (said["failure_probability"], said["confidence"]) == (0.01, 0.99)


@pytest.mark.parametrize("kind", ["balls_in_bins", "poisson", "multi_attribution"])
def test_json_is_one_clean_object(cli: Any, kind: str) -> None:
    cli.write_plan(plan_of(kind))
    done = cli("epsilon", "plan.toml", *SAMPLED, "--method", "monte_carlo", "--json")
    assert [line for line in done.err.splitlines() if not line.startswith("hockeystick: ")] == []
    check_json(done.json)
    gaussian = cli("epsilon", "plan.toml", "--method", "gaussian", "--json")
    assert gaussian.code == 1 or done.json["epsilon"]["upper"] < gaussian.json["epsilon"]["upper"]
    assert done.created == set()


def test_the_certificate_says_what_may_fail_and_how_likely_it_is(finished: Any) -> None:
    assert sorted(path.name for path in Path().iterdir()) == ["cert.json", "plan.toml", "x.sqlite"]
    text = str(Certificate.load("cert.json"))
    assert "  kind              monte_carlo; fails with probability at most 0.01\n" in text


def test_monte_carlo_is_never_used_without_being_allowed(cli: Any) -> None:
    cli.write_plan(plan_of("b_min_sep"))
    said = cli("epsilon", "plan.toml", "--json").json
    assert (said["kind"], said["confidence"]) == ("deterministic", 1.0)
    assert "failure_probability" not in said


@pytest.mark.parametrize("evidence", [("--evidence", "x.sqlite"), ()])
def test_a_certificate_verifies_with_its_evidence_and_without(finished: Any, evidence: tuple[str, ...]) -> None:
    stored = Path("x.sqlite").read_bytes()
    done = finished("verify", "cert.json", *evidence, "--json")
    claimed = Certificate.load("cert.json").bounds
    assert done.json["verified"] is True
    assert done.json["epsilon"] == {"lower": claimed.lower, "upper": claimed.upper}
    assert (done.created, Path("x.sqlite").read_bytes()) == (set(), stored)


def test_a_run_that_was_killed_goes_on_to_the_same_certificate(finished: Any) -> None:
    whole = Path("cert.json").read_bytes()
    with closing(sqlite3.connect("x.sqlite")) as connection:
        connection.execute("DELETE FROM chunks WHERE stream >= 2")
        connection.commit()
        left = connection.execute("SELECT count(*) FROM chunks").fetchone()[0]
    finished.refuses("verify", "cert.json", "--evidence", "x.sqlite", code=1, says=("holds 2 of the",))
    assert finished("epsilon", "plan.toml", *UNSEEDED, "--evidence", "x.sqlite", "--out", "cert.json").code == 0
    assert Path("cert.json").read_bytes() == whole
    with closing(sqlite3.connect("x.sqlite")) as connection:
        assert connection.execute("SELECT count(*) FROM chunks").fetchone()[0] > left >= 2


@pytest.mark.parametrize("evidence", [("--evidence", "x.sqlite"), ()])
def test_a_report_verifies_from_the_evidence_and_says_so_where_there_is_none(
    finished: Any, evidence: tuple[str, ...]
) -> None:
    assert finished("compose", "cert.json", "--delta", "1e-2", "--out", "claim.json").code == 0
    assert finished("report", "claim.json", *evidence, "--json").json["verified"] is bool(evidence)
    page = Path("claim.html").read_text()
    assert ("Verified: the claim was derived again" in page) is bool(evidence)
    assert ("random samples" in page) is not bool(evidence)


def test_an_interruption_keeps_the_evidence_and_writes_no_certificate(
    finished: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Path("cert.json").read_bytes()
    Path("cert.json").unlink()
    Path("x.sqlite").unlink()
    keep = EvidenceStore.add
    added: list[int] = []

    def add(self: EvidenceStore, run: Run, chunk: Chunk) -> None:
        keep(self, run, chunk)
        added.append(chunk.stream)
        if len(added) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(EvidenceStore, "add", add)
        stopped = finished("epsilon", "plan.toml", *SAMPLED, "--evidence", "x.sqlite", "--out", "cert.json")
    assert (stopped.code, stopped.out) == (130, "")
    assert stopped.complaint == "Interrupted; no file was left half written."
    assert stopped.created == {"x.sqlite"}
    with closing(sqlite3.connect("x.sqlite")) as connection:
        assert connection.execute("SELECT stream FROM chunks ORDER BY stream").fetchall() == [(0,), (1,)]
    assert finished("epsilon", "plan.toml", *SAMPLED, "--evidence", "x.sqlite", "--out", "cert.json").code == 0
    assert Path("cert.json").read_bytes() == whole


def altered(change: Callable[[dict[str, Any]], None]) -> None:
    """Change ``cert.json`` as somebody would who can compute digests, and the keys and lines of runs."""
    content, claim = json.loads(Path("cert.json").read_text()), Certificate.load("cert.json").monte_carlo
    assert claim is not None
    content["monte_carlo"] = claim.model_dump(mode="json", context={"format": 1})
    change(content)
    Path("cert.json").write_text(json.dumps(content))
    certificate = Certificate.model_validate_json(Path("cert.json").read_text())
    certificate.sealed().save("cert.json")


def setting(*path: str | int, to: Any) -> Callable[[dict[str, Any]], None]:
    def change(content: Any) -> None:
        for step in path[:-1]:
            content = content[step]
        content[path[-1]] = to

    return change


RUN = ("monte_carlo", "runs", 0, "run")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (setting("monte_carlo", "failure_probability", to=1e-4), "claims 0.0001, but its runs spend"),
        (setting("monte_carlo", "failure_probability", to=0.02), "'confidence' field claims"),
        (setting("monte_carlo", "runs", 0, "chunks", to=10**6), "of the 1000000 chunks"),
        (setting("monte_carlo", to=None), "'monte_carlo' field is missing"),
        (setting("confidence", to=0.999), "'confidence' field claims"),
        (setting("kind", to="deterministic"), "'kind' field claims 'deterministic'"),
        (setting("method", "upper", to="gaussian"), "but the recomputed bound is"),
        (setting("mechanism", "sampler", "min_sep", to=3), "not about this mechanism"),
        (setting("mechanism", "noise_multiplier", to=2.0), "not about this mechanism"),
        (setting(*RUN, "seed", to=2), "holds 0 of the"),
        (setting(*RUN, "direction", to="add"), "'renewal"),
        (setting(*RUN, "proposal", to="foo"), "'foo'"),
        (setting(*RUN, "parameters", to={}), "with {} instead"),
        (setting(*RUN, "kernels", to=99), "says 99"),
        (setting(*RUN, "subject", to="ab"), "'monte_carlo.runs.subject'"),
        (setting(*RUN, "nodes", 0, "weight_bound", to=1e-9), "but the proved value is"),
        (setting(*RUN, "nodes", 0, "theta", to=1e9), "'theta' field"),
        (lambda content: content["monte_carlo"]["runs"].append(content["monte_carlo"]["runs"][0]), "names a run twice"),
        (setting("epsilon", "lower", to=None), "'method.lower' field must name a method exactly where"),
    ],
)
def test_a_forged_certificate_does_not_verify(
    finished: Any, change: Callable[[dict[str, Any]], None], says: str
) -> None:
    altered(change)
    finished.refuses("verify", "cert.json", "--evidence", "x.sqlite", code=1, says=(says,))


@pytest.mark.parametrize("side", ["lower", "upper"])
def test_a_bound_that_is_better_than_its_evidence_does_not_verify(finished: Any, side: str) -> None:
    bounds = json.loads(Path("cert.json").read_text())["epsilon"]
    altered(setting("epsilon", side, to=0.5 * (bounds["lower"] + bounds["upper"])))
    finished.refuses("verify", "cert.json", "--evidence", "x.sqlite", code=1, says=(f"'epsilon.{side}' field claims",))


def test_evidence_that_was_edited_does_not_verify(finished: Any) -> None:
    with closing(sqlite3.connect("x.sqlite")) as connection:
        connection.execute("UPDATE chunks SET samples = samples + 1 WHERE stream = 1")
        connection.commit()
    sentence = finished.refuses("verify", "cert.json", "--evidence", "x.sqlite", code=1, says=("'x.sqlite'", "1"))
    assert "digest" in sentence or "damaged" in sentence


def test_evidence_that_was_made_up_does_not_verify(finished: Any) -> None:
    with EvidenceStore.open("x.sqlite", read_only=True) as old, EvidenceStore.open("forged.sqlite") as new:
        for claimed in Certificate.load("cert.json").monte_carlo.runs:
            assert claimed.chunks <= 8  # so that every chunk is drawn again
            for chunk in old.chunks(claimed.run):
                new.add(claimed.run, replace(chunk, sums=chunk.sums * 0.9, logs=chunk.logs * 0.9))
    finished.refuses(
        "verify", "cert.json", "--evidence", "forged.sqlite", code=1, says=("chunk", "not what its seed gives")
    )


@pytest.mark.parametrize("change", [{"seed": 2}, {"subject": "ab" * 32}, None])
def test_evidence_of_other_runs_or_of_none(finished: Any, change: dict[str, Any] | None) -> None:
    claim = Certificate.load("cert.json").monte_carlo
    with EvidenceStore.open("x.sqlite", read_only=True) as old, EvidenceStore.open("other.sqlite") as new:
        for run in [] if change is None else [claimed.run for claimed in claim.runs]:
            for chunk in old.chunks(run):
                new.add(run.model_copy(update=change), chunk)
    finished.refuses("verify", "cert.json", "--evidence", "other.sqlite", code=1, says=("holds 0 of the",))


def foreign(path: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE letters (text TEXT)")
        connection.commit()


def from_the_future(path: str) -> None:
    with EvidenceStore.open(path):
        pass
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
        connection.commit()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (foreign, "is not a store of evidence"),
        (from_the_future, "newer schema 99"),
        (lambda path: Path(path).write_text("a letter\n" * 1000), "is not a store of evidence"),
        (lambda path: Path(path).write_text("x"), "is not a store of evidence"),
        (lambda path: Path(path).mkdir(), "not an ordinary file"),
    ],
)
def test_files_that_are_no_evidence_are_left_as_they_are(finished: Any, make: Callable[[str], None], says: str) -> None:
    make("y.sqlite")
    before = Path("y.sqlite").read_bytes() if Path("y.sqlite").is_file() else b""
    finished.refuses("epsilon", "plan.toml", *SAMPLED, "--evidence", "y.sqlite", says=("'y.sqlite'", says))
    finished.refuses("verify", "cert.json", "--evidence", "y.sqlite", says=("'y.sqlite'",))
    assert before == (Path("y.sqlite").read_bytes() if Path("y.sqlite").is_file() else b"")


@pytest.mark.parametrize("command", ["epsilon", "delta", "calibrate", "compare"])
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--allow", "mc"), ("'--allow'", "'monte-carlo'", "Got 'mc'")),
        (("--allow=",), ("'--allow'", "'monte-carlo'", "Got ''")),
        *(
            ((option, "1"), (f"'{option}'", "needs '--allow monte-carlo'"))
            for option in ("--failure-probability", "--seed", "--evidence", "--workers", "--address")
        ),
    ],
)
def test_sampling_has_to_be_allowed_in_so_many_words(
    cli: Any, command: str, arguments: tuple[str, ...], says: tuple[str, ...]
) -> None:
    cli.refuses(command, "plan.toml", *arguments, says=says)


@pytest.mark.parametrize("command", ["epsilon", "calibrate"])
def test_the_method_has_to_be_allowed_too(cli: Any, command: str) -> None:
    cli.write_plan(plan_of("b_min_sep"))
    cli.refuses(command, "plan.toml", "--method", "monte_carlo", says=("'monte_carlo'", "--allow monte-carlo"))


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        *(("--failure-probability", value, ("between 0 and 1",)) for value in ("0", "1", "-1", "nan", "inf", "1e-400")),
        *(("--failure-probability", value, ("a number", f"Got {value!r}")) for value in ("abc", "", "1,5")),
        *(("--seed", value, (f"Got {value!r}",)) for value in ("-1", "1e3", "1.5", "abc", "", "²")),
        ("--seed", str(1 << 128), ("'", str(1 << 128))),
        ("--seed", "9" * 5000, ("'--seed'", "999...")),
        *(("--workers", value, ("'workers'", f"Got {value}")) for value in ("0", "1000000")),
        *(("--workers", value, ("'--workers'", f"Got {value!r}")) for value in ("-1", "two", "1.5")),
        ("--backend", "foo", ("'backend'", "local, dask, ray", "Got 'foo'")),
        ("--backend", "dask", ("'address' field is missing", "Dask")),
        ("--address", "tcp://10.0.0.1:8786", ("'address'", "'local'")),
        ("--evidence", "", ("cannot be written", "empty")),
        ("--evidence", "/dev/null", ("'/dev/null'", "not an ordinary file")),
        ("--evidence", "nothing/x", ("'nothing/x'", "No such file or directory")),
        ("--evidence", "plan.toml", ("'plan.toml'", "not a store of evidence")),
    ],
)
def test_bad_sampling_options(cli: Any, option: str, value: str, says: tuple[str, ...]) -> None:
    name = option[2:].replace("-", "_")
    sentence = cli.refuses("epsilon", "plan.toml", *ALLOW, f"{option}={value}", says=says)
    assert len(sentence) < 250
    assert name in sentence.replace("-", "_") or option in ("--backend", "--evidence")


def test_a_calibration_cannot_fail_more_often_than_delta(cli: Any) -> None:
    cli.write_plan(plan_of("b_min_sep"))
    cli.refuses("calibrate", "plan.toml", *ALLOW, "--failure-probability", "0.5", says=("below delta = 0.01", "0.5"))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            plan_of("b_min_sep", min_sep="17"),
            ("num_examples / batch_size = 16", "sampler.min_sep = 16 would do."),
        ),
        (
            plan_of("b_min_sep", min_sep="17") | {"data.batch_size": "700"},
            ("'sampler.min_sep'", "min_sep = 1 would"),
        ),
        (plan_of("b_min_sep", min_sep="16"), ("balls-in-bins over 16 bins", "'balls_in_bins'")),
        (plan_of("b_min_sep", min_sep="16", warm_start="false"), ("no sampling at all", "without amplification")),
        (plan_of("b_min_sep", min_sep="0"), ("'sampler.min_sep'", "at least 1", "Got 0")),
        (plan_of("b_min_sep", min_sep=None), ("'sampler.min_sep'", "missing")),
        (plan_of("b_min_sep", warm_start="3"), ("'sampler.warm_start'", "Got 3")),
        (plan_of("b_min_sep", truncated_batch_size="801"), ("truncated_batch_size", "at most num_examples = 800")),
        (plan_of("multi_attribution", exclusion='"other"'), ("'sampler.exclusion'", "Got 'other'")),
        (plan_of("multi_attribution", truncated_batch_size="3"), ("'sampler.truncated_batch_size'", "not known")),
    ],
)
def test_samplers_that_have_no_analysis(cli: Any, changes: dict[str, str | None], says: tuple[str, ...]) -> None:
    changes = {place: value for place, value in changes.items() if value is not None or place == "data.epochs"}
    cli.write_plan(changes)
    cli.refuses("epsilon", "plan.toml", *SAMPLED, says=says)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            plan_of("multi_attribution", examples_per_user="2", users_per_example="1")
            | {"strategy.kind": '"binary_tree"'},
            "a square strategy matrix",
        ),
    ],
)
def test_strategies_that_cannot_be_sampled_are_refused_by_the_method_and_left_out_by_compare(
    cli: Any, changes: dict[str, str | None], says: str
) -> None:
    cli.write_plan({place: value for place, value in changes.items() if place != "strategy.bands"})
    cli.refuses("epsilon", "plan.toml", *SAMPLED, "--method", "monte_carlo", says=("'monte_carlo'", says))
    bounds = cli("compare", "plan.toml", *SAMPLED, "--json").json["bounds"]
    (row,) = [row for row in bounds if row["method"] == "monte_carlo" and row["side"] == "upper"]
    assert says in row["status"]


def test_importing_brings_none_of_the_heavy_libraries() -> None:
    heavy = {"joblib", "dask", "distributed", "ray", "scipy", "numba", "numpy", "sqlite3", "pydantic", "rich"}
    code = "import sys, hockeystick.cli.main; print(*sorted(set(sys.argv[1:]) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code, *heavy], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
