"""The command as a process of its own: streams, signals, pipes and exit codes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PATIENCE = 120
"""Seconds after which a process counts as hanging; nothing here should take a tenth of it."""
COMMAND = [sys.executable, "-m", "hockeystick"]
PLAN = """
noise_multiplier = 1.0
[data]
num_examples = {examples}
batch_size = 1
epochs = 10
[sampler]
kind = "poisson"
[target]
epsilon = 2.0
delta = 1e-7
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "small.toml").write_text(PLAN.format(examples=100))
    (tmp_path / "large.toml").write_text(PLAN.format(examples=100_000_000))
    return tmp_path


def run(here: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], cwd=here, capture_output=True, text=True, timeout=PATIENCE)


def without_progress(stderr: str) -> list[str]:
    """The lines that are not progress, which appears only on slow machines."""
    return [line for line in stderr.splitlines() if not line.startswith("hockeystick: ")]


def test_from_plan_to_verified_certificate(here: Path) -> None:
    done = run(here, "calibrate", "small.toml", "--method", "gaussian", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["certificate"] == "small.certificate.json"
    verified = run(here, "verify", "small.certificate.json")
    assert (verified.returncode, without_progress(verified.stderr)) == (0, [])
    text = (here / "small.certificate.json").read_text()
    (here / "small.certificate.json").write_text(text.replace('"sampling_prob": 0.01', '"sampling_prob": 0.001'))
    tampered = run(here, "verify", "small.certificate.json")
    assert (tampered.returncode, tampered.stdout, len(without_progress(tampered.stderr))) == (1, "", 1)


def test_bad_input(here: Path) -> None:
    refused = run(here, "epsilon", "small.toml", "--delta", "2")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == "The 'delta' field must be from 1e-30 to below 1. Got 2.0 instead.\n"


def test_a_budget_is_kept(here: Path) -> None:
    done = run(here, "epsilon", "large.toml", "--budget", "0.05", "--noise-multiplier", "5000", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["epsilon"]["upper"] > 0.0
    stopped = run(here, "calibrate", "large.toml", "--budget", "0.05")
    assert (stopped.returncode, without_progress(stopped.stderr)) == (0, [])
    assert "more seconds may give a better bound" in stopped.stdout
    assert sorted(os.listdir(here)) == ["large.certificate.json", "large.toml", "small.toml"]


@pytest.mark.parametrize("wait", [0.7, 2.5])
def test_an_interruption_leaves_nothing_half_written(here: Path, wait: float) -> None:
    with subprocess.Popen(
        [*COMMAND, "calibrate", "large.toml"],
        cwd=here,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        time.sleep(wait)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    if process.returncode == 0:  # a very fast machine was done already
        return
    lines = [line for line in err.splitlines() if not line.startswith("hockeystick: ")]
    assert (process.returncode, out) == (130, ""), err
    assert lines == ["Interrupted; no file was left half written."]
    assert sorted(os.listdir(here)) == ["large.toml", "small.toml"]


@pytest.mark.parametrize(
    "event",
    [
        "signal.raise_signal(signal.SIGINT)",
        "exec('signal.raise_signal(signal.SIGINT)')",  # Python remembers this one, and would end by the signal
        """
        try: signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt: raise ImportError("a library hides it")""",
    ],
)
def test_an_interruption_during_the_imports(event: str) -> None:
    code = f"""
import signal, sys
class Finder:
    def find_spec(name, path, target=None):
        if name != "hockeystick.cli.main": return None
        {event.strip()}
sys.meta_path.insert(0, Finder)
from hockeystick.__main__ import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, start_new_session=True
    )
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "Interrupted; no file was left half written.\n"


def test_an_interruption_that_a_library_passes_on_as_another_error() -> None:
    code = """
import signal, sys
import hockeystick.cli.main
from hockeystick.__main__ import main
class Finder:
    def find_spec(name, path, target=None):
        if name != "numpy": return None
        try: signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt: raise ImportError("initialization failed")
sys.meta_path.insert(0, Finder)
sys.argv = ["hockeystick", "list", "support"]
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, start_new_session=True
    )
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "Interrupted; no file was left half written.\n"


def test_an_interruption_while_a_kernel_is_loaded_waits_for_it(here: Path) -> None:
    """LLVM asks for a kernel's code by a callback that cannot pass an exception on, and would abort the process."""
    code = """
import signal, sys
from numba.core.codegen import CPUCodeLibrary
asks = CPUCodeLibrary._object_getbuffer_hook
def interrupted(module):
    if not waits:
        waits.append(True)
        signal.raise_signal(signal.SIGINT)
        sys.stderr.write("waits\\n")
    return asks(module)
waits = []
CPUCodeLibrary._object_getbuffer_hook = interrupted
sys.argv = ["hockeystick", "calibrate", "large.toml"]
from hockeystick.__main__ import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=here,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        start_new_session=True,
    )
    assert (done.returncode, done.stdout) == (130, ""), done.stderr
    assert without_progress(done.stderr) == ["waits", "Interrupted; no file was left half written."]
    assert sorted(os.listdir(here)) == ["large.toml", "small.toml"]


def test_a_fault_during_the_imports_is_not_hidden() -> None:
    code = "import sys; sys.modules['hockeystick.cli.main'] = None; from hockeystick.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout) == (1, "")
    assert "ModuleNotFoundError" in done.stderr


def test_a_reader_that_goes_away(here: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [*COMMAND, "list", "support"], cwd=here, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=PATIENCE
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_behind_stdout(here: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*COMMAND, "list", "support"], cwd=here, stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE
        )
    assert done.returncode == 2
    assert done.stderr.startswith("The standard output cannot be written: ")
    assert done.stderr.count("\n") == 1


def test_a_plan_whose_name_is_no_text(here: Path) -> None:
    name = os.fsencode(here) + b"/\xff.toml"
    try:
        Path(os.fsdecode(name)).write_text(PLAN.format(examples=100))
    except OSError:
        pytest.skip("the file system wants text")
    done = subprocess.run(
        [*map(os.fsencode, COMMAND), b"calibrate", name, b"--method", b"gaussian"],
        cwd=here,
        capture_output=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    assert b"certificate written to" in done.stdout
