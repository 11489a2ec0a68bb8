"""Ctrl-C while a kernel is loaded or compiled, in scripts and notebooks."""

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import signal, threading
from numba.core import event
from numba.core.codegen import CPUCodeLibrary
from hockeystick.compiling import kernel

def press(): signal.raise_signal(signal.SIGINT)

asks, pressed_in = CPUCodeLibrary._object_getbuffer_hook, []
def asked(module):
    if pressed_in: pressed_in.pop()()
    return asks(module)
CPUCodeLibrary._object_getbuffer_hook = asked

def fresh():
    @kernel
    def twice(number): return 2.0 * number
    return twice

def result(function):
    try: return function(1.5)
    except KeyboardInterrupt: return "interrupted"

twice = fresh()
pressed_in.append(press)
print(result(twice), signal.getsignal(signal.SIGINT) is signal.default_int_handler, result(twice))

class Listener(event.Listener):
    def on_start(self, at): press()
    def on_end(self, at): pass
@kernel
def thrice(number): return 3.0 * number
pressed_in.append(lambda: print("too late"))
with event.install_listener("numba:compiler_lock", Listener()): print(result(thrice), len(pressed_in))
pressed_in.clear()

seen = []
def own(number, frame): seen.append(number)
signal.signal(signal.SIGINT, own)
pressed_in.append(press)
print(result(fresh()), seen == [signal.SIGINT], signal.getsignal(signal.SIGINT) is own)

values = []
thread = threading.Thread(target=lambda: values.append(result(fresh())))
thread.start(), thread.join()
signal.signal(signal.SIGINT, signal.SIG_IGN)
pressed_in.append(press)
print(values, result(fresh()), signal.getsignal(signal.SIGINT) is signal.SIG_IGN)
"""


def test_a_ctrl_c_waits_for_callbacks_alone_and_the_handler_stays_in_charge(tmp_path: Path) -> None:
    script = tmp_path / "script.py"  # kernels are kept beside the file that has them
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "interrupted True 3.0",
        "interrupted 1",
        "3.0 True True",
        "[3.0] 3.0 True",
    ]
