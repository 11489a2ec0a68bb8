"""The running server: answers, certificates as the command line writes them, refusals, and a clean end."""

import json
import signal
import subprocess
import sys
import time
import tomllib
from base64 import b64decode
from contextlib import closing
from http.client import HTTPConnection

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from benchmarks.explorer import ask_random, serving
from hockeystick.cli.main import main
from hockeystick.errors import install
from hockeystick.explorer.page import PAGES
from hockeystick.plan import Plan

PLAN = {
    "data": {"num_examples": 5_000, "batch_size": 50, "epochs": 2},
    "sampler": {"kind": "poisson"},
    "target": {"epsilon": 2.0, "delta": 1e-5},
}
LONG = {
    "data": {"num_examples": 50_000, "batch_size": 2_000, "epochs": 10},
    "sampler": {"kind": "balls_in_bins"},
    "strategy": {"kind": "dense", "epochs": 10},
    "target": {"epsilon": 2.0, "delta": 1e-5},
}
"""Optimising this strategy takes far longer than a quick answer may."""


def test_a_quick_answer(server):
    status, reply = server[0]("quick", {"plan": PLAN, "ask": "noise_multiplier", "patience": "still"})
    assert status == 200
    assert reply["answer"]["epsilon"]["upper"] <= 2.0
    assert reply["steps"] == 200
    body = {"plan": PLAN, "noise_multiplier": reply["answer"]["noise_multiplier"], "method": "direct"}
    status, more = server[0]("details", body)
    assert status == 200
    assert more["curve"]["delta"][0] > more["curve"]["delta"][-1]
    assert more["prefix_error"] > 0.0


def test_an_answer_is_kept_for_its_question_alone(server):
    """Asked again from another place, the search would end elsewhere; another plan has another answer."""
    body = {"plan": PLAN, "ask": "noise_multiplier", "patience": "still"}
    first = server[0]("quick", body)[1]
    assert first["complete"]
    assert server[0]("quick", body | {"near": 20.0})[1] == first
    other = server[0]("quick", body | {"plan": PLAN | {"target": {"epsilon": 1.0, "delta": 1e-5}}})[1]
    assert other["answer"]["noise_multiplier"] > first["answer"]["noise_multiplier"]


@pytest.mark.parametrize(("ask", "command"), [("noise_multiplier", "calibrate"), ("epsilon", "epsilon")])
def test_certificates_are_those_of_the_command_line(server, tmp_path, ask, command):
    """Byte for byte, from the plan that is downloaded."""
    plan = PLAN if ask == "noise_multiplier" else PLAN | {"noise_multiplier": 1.25}
    reply = server[0].certificate({"plan": plan, "ask": ask})
    status, written = server[0]("plan", {"plan": plan})
    assert status == 200
    path, out = tmp_path / "plan.toml", tmp_path / "certificate.json"
    path.write_text(written["file"])
    assert Plan.parse(tomllib.loads(written["file"])) == Plan.parse(plan)
    with pytest.raises(SystemExit) as ended:
        main([command, str(path), "--out", str(out), "--json"])
    assert ended.value.code == 0
    assert out.read_text() == reply["result"]["file"]
    assert reply["result"]["matrix"] is None


def test_a_certificate_comes_with_the_file_of_its_matrix(server, tmp_path):
    """Where the matrix is too large for a certificate: both in one folder verify where no optimiser may run."""
    strategy = {"kind": "column_normalized_banded", "bands": 2}
    plan = PLAN | {"strategy": strategy, "noise_multiplier": 2.0}
    result = server[0].certificate({"plan": plan, "ask": "epsilon"})["result"]
    path = tmp_path / "plan.certificate.json"
    path.write_text(result["file"])
    (tmp_path / result["matrix"]["name"]).write_bytes(b64decode(result["matrix"]["base64"]))
    alone = (
        "import sys; from hockeystick.strategies import ColumnNormalizedBanded as C; C.optimum = None;"
        "import hockeystick as hs; hs.verify(hs.Certificate.load(sys.argv[1])); print('verified')"
    )
    command = [sys.executable, "-c", alone, str(path)]
    assert "verified" in subprocess.run(command, capture_output=True, text=True, check=False).stdout
    (tmp_path / result["matrix"]["name"]).unlink()
    assert "verified" not in subprocess.run(command, capture_output=True, text=True, check=False).stdout


def test_a_certificate_can_be_cancelled(server):
    client = server[0]
    job = client("jobs", {"plan": LONG, "ask": "noise_multiplier"})[1]["job"]
    assert client(f"jobs/{job}")[1]["state"] in ("waiting", "running")
    client(f"jobs/{job}", method="DELETE")
    while (job_state := client(f"jobs/{job}")[1])["state"] in ("waiting", "running"):
        time.sleep(0.1)
    assert job_state["state"] == "cancelled"
    assert client.certificate({"plan": PLAN | {"noise_multiplier": 2.0}, "ask": "epsilon"})["state"] == "done"


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({}, 422, "must be"),
        ([], 400, "must be a JSON object"),
        ({"plan": PLAN}, 422, "'ask' field"),
        ({"plan": PLAN, "ask": "epsilon"}, 422, "'noise_multiplier' field is missing"),
        ({"plan": PLAN | {"sampler": {"kind": [[]]}}, "ask": "epsilon"}, 422, "'sampler.kind' field"),
        ({"plan": PLAN | {"strategy": {"kind": "custom", "path": "/etc/passwd"}}, "ask": "epsilon"}, 422, "no files"),
    ],
)
def test_bad_questions_get_one_sentence(server, body, status, says):
    for path in ("quick", "jobs") if status == 400 else ("quick",):
        answered, reply = server[0](path, body)
        assert answered == status
        assert says in reply["error"]
        assert reply["error"].endswith(".")


def test_random_plans(server):
    """Twenty, some of them spoiled; a few cheap ones are compared with certify. benchmarks/explorer.py asks more."""
    fates, _, ratios = ask_random(server[0], 20, seed=1, most_compared=3)
    assert fates["answer"] > 4
    assert fates["refused"] > 4
    assert all(ratio >= 1.0 for ratio in ratios)


@pytest.mark.parametrize(
    "path",
    ["/../pyproject.toml", "/..%2f..%2fpyproject.toml", "/page/index.html", "//etc/passwd", "/explorer.py", "/.."],
)
def test_there_are_no_other_files(server, path):
    assert _get(server, path)[0] == 404


def test_pages(server):
    for path in PAGES:
        status, content = _get(server, path)
        assert status == 200
        assert content
        assert server[0].token.encode() not in content


def test_only_the_loopback_interface_listens(server):
    """/proc lists the listening sockets: 0100007F is 127.0.0.1."""
    try:
        with open("/proc/net/tcp") as table:
            lines = [line.split() for line in table]
    except OSError:
        pytest.skip("needs Linux")
    (address,) = {words[1] for words in lines if words[1].endswith(f":{server[0].port:04X}") and words[3] == "0A"}
    assert address.split(":")[0] == "0100007F"


def test_ctrl_c_stops_it_cleanly():
    """With a certificate under way; no worker is left."""
    with serving("--port", "0") as (client, _, process):
        client("jobs", {"plan": LONG, "ask": "noise_multiplier"})
        children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 0
        assert said.splitlines()[-1] == "hockeystick: stopped"
        left = subprocess.run(["ps", "-o", "pid=", "-p", ",".join(children.stdout.split())], capture_output=True)
        assert left.stdout == b""


def test_without_the_extra_one_sentence():
    code = "import sys; sys.modules['uvicorn'] = None\nfrom hockeystick.cli.main import main\nmain(['explore'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr == f"The explorer needs starlette and uvicorn; {install('explore')}.\n"


def _get(server, path: str) -> tuple[int, bytes]:
    with closing(HTTPConnection("127.0.0.1", server[0].port, timeout=60)) as connection:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()


def test_replies_are_json(server):
    status, text = server[0].raw("unknown", {})
    assert (status, json.loads(text)) == (404, {"error": "Not Found"})
