"""Ctrl-C between any two lines of the command's outermost code, and while the process exits."""

import json
import subprocess
import sys
from io import StringIO

import pytest

from hockeystick import __version__
from hockeystick.cli.common import say
from hockeystick.cli.main import main

PATIENCE = 60
MESSAGE = "Interrupted; no file was left half written.\n"
PRINTED = f"hockeystick {__version__}\n"

EVERY_LINE = """
import json, os, signal, sys, tempfile
from hockeystick import __main__ as door
from hockeystick.cli import interruption, main as command

FILES = {door.__file__, interruption.__file__, command.__file__}
real_start = interruption.start

def start_traced():
    real_start()
    sys.settrace(trace)
    sys._getframe(1).f_trace = trace

def trace(frame, event, argument):
    global left
    if frame.f_code.co_filename not in FILES: return None
    if event == "line":
        left -= 1
        if left == 0: signal.raise_signal(signal.SIGINT)
    return trace

interruption.start = start_traced
sys.argv = ["hockeystick", *sys.argv[1:]]
found, after = [], 0
for line in range(1, 1000):
    left = line
    out, err = tempfile.TemporaryFile(), tempfile.TemporaryFile()
    child = os.fork()
    if child == 0:
        os.dup2(out.fileno(), 1), os.dup2(err.fileno(), 2)
        door.main()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    texts = [(file.seek(0), file.read().decode())[1] for file in (out, err)]
    found.append([status, *texts])
    if after == 5: break
    after = after + 1 if found[-1] == found[-2 if line > 1 else -1] and status != 130 else 0
print(json.dumps(found))
"""


@pytest.mark.parametrize(
    ("arguments", "code", "out"), [(("--version",), 0, PRINTED), (("--nothing",), 2, "")], ids=["done", "refused"]
)
def test_after_every_line(arguments: tuple[str, ...], code: int, out: str) -> None:
    """What comes before the command has finished ends it with 130, what comes later changes nothing."""
    done = subprocess.run(
        [sys.executable, "-c", EVERY_LINE, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
        start_new_session=True,
    )
    endings = json.loads(done.stdout)
    interrupted = [ending for ending in endings if ending[0] == 130]
    finished = [ending for ending in endings if ending[0] != 130]
    assert len(interrupted) > 10
    assert len(finished) > 5
    for _, printed, said in interrupted:
        assert said.endswith(MESSAGE)
        assert "Traceback" not in said
        assert printed in ("", out)
    assert {(status, printed) for status, printed, _ in finished} == {(code, out)}
    assert {said.count("\n") for _, _, said in finished} == {0 if code == 0 else 1}
    assert endings == interrupted + finished


BEFORE = "import atexit, os, signal, sys, threading\n"
AFTER = """
from hockeystick.__main__ import main
sys.argv = ["hockeystick", "--version"]
main()
"""


@pytest.mark.parametrize(
    "event",
    [
        "atexit.register(signal.raise_signal, signal.SIGINT)",  # runs after all that were registered later
        """
import typer
atexit.register(lambda: atexit.register(signal.raise_signal, signal.SIGINT))""",
        """
import hockeystick.cli.main
def print_version(wanted): atexit.register(signal.raise_signal, signal.SIGINT)
hockeystick.cli.main.typer.echo = lambda text: (print(text), atexit.register(signal.raise_signal, signal.SIGINT))""",
        """
def last():
    threading.main_thread().join()
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=last).start()""",
        """
class Last:
    def __init__(self): self.kill, self.arguments = os.kill, (os.getpid(), signal.SIGINT)
    def __del__(self): self.kill(*self.arguments)
last = Last()""",
    ],
    ids=["last exit handler", "exit handler of an exit handler", "first exit handler", "thread", "destructor"],
)
def test_while_the_process_exits(event: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BEFORE + event + AFTER],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        start_new_session=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, PRINTED, "")


@pytest.mark.parametrize(
    "event",
    [
        "ctypes.CFUNCTYPE(None)(lambda: signal.raise_signal(signal.SIGINT))()",
        "type('Thing', (), {'__del__': lambda self: signal.raise_signal(signal.SIGINT)})()",
    ],
    ids=["callback", "destructor"],
)
def test_an_interruption_that_python_swallows(event: str) -> None:
    """A compiled kernel may call back, and whatever is raised there is lost to the command."""
    code = f"""
import ctypes, signal, sys, threading
class Finder:
    def find_spec(name, path, target=None):
        if name != "hockeystick.cli.main": return None
        {event}
        threading.Event().wait({2 * PATIENCE})
sys.meta_path.insert(0, Finder)
from hockeystick.__main__ import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", MESSAGE)


def test_an_interruption_that_comes_while_one_is_to_be_repeated() -> None:
    """A busy machine may take longer to start the timer than the timer waits; errors in that report are lost too."""
    code = f"""
import signal, sys, threading
from hockeystick.cli import interruption
class Finder:
    def find_spec(name, path, target=None):
        if name != "hockeystick.cli.main": return None
        start = threading.Timer.start
        def slowly(timer):
            threading.Timer.start = start
            start(timer)
            signal.raise_signal(signal.SIGINT)
        threading.Timer.start = slowly
        type("Thing", (), {{"__del__": lambda self: signal.raise_signal(signal.SIGINT)}})()
        threading.Event().wait({2 * PATIENCE})
sys.meta_path.insert(0, Finder)
interruption.SOON = 0.2
from hockeystick.__main__ import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", MESSAGE)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [(["list", "support"], 130, MESSAGE.strip()), (["show", "nothing.toml"], 2, "nothing.toml")],
    ids=["interrupted", "failed"],
)
@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("as_json", [False, True])
def test_a_failure_is_told_once_however_often_the_command_is_interrupted(
    arguments: list[str], code: int, message: str, as_json: bool, before: bool
) -> None:
    """Impatient people press Ctrl-C again while the first one is answered."""
    words = [*arguments, *["--json"] * as_json]
    script = f"""
import signal, sys
import hockeystick.cli.main as command
from hockeystick.__main__ import main
say = command.say_failure
def interrupted(*arguments, **options):
    if {before}: signal.raise_signal(signal.SIGINT)
    say(*arguments, **options)
    if not {before}: signal.raise_signal(signal.SIGINT)
command.say_failure = interrupted
if {code} == 130: command.app = lambda **options: signal.raise_signal(signal.SIGINT)
sys.argv = ["hockeystick", *{words!r}]
main()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == code
    assert (done.stderr.count("\n"), message in done.stderr) == (1, True)
    assert done.stdout.count("\n") == as_json
    if as_json:
        assert json.loads(done.stdout)["exit_code"] == code


def test_other_errors_that_python_swallows_are_told() -> None:
    code = "import sys; sys.argv = ['hockeystick', '--version']\nfrom hockeystick.cli.main import app\n"
    code += "from hockeystick.cli import interruption; interruption.start()\n"
    code += "class Thing:\n    def __del__(self): 1 / 0\nThing()\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)
    assert "ZeroDivisionError" in done.stderr


class Pieces(StringIO):
    """A stream that remembers what it got at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[str] = []

    def write(self, text: str) -> int:
        self.pieces.append(text)
        return len(text)


def test_no_other_line_gets_between_a_line_and_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A timer may report progress at the moment at which the command is interrupted or fails."""
    stream = Pieces()
    monkeypatch.setattr(sys, "stderr", stream)
    say("certifying")
    with pytest.raises(SystemExit):
        main(["list", "nothing"])
    assert len(stream.pieces) == 2
    assert all(piece.endswith("\n") and piece.count("\n") == 1 for piece in stream.pieces)
