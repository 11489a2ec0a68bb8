"""What all tests share: which of them are slow, how much memory they may take, and how Ctrl-C reaches them."""

import gc
import os
import shutil
import signal
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE / "conformance")]
"""For the tools beside this file, the declarations of the samplers and the examples of strategies."""

from covering import covering, killers  # noqa: E402 - tests are imported without a path

SLOW = frozenset((HERE / "slow.txt").read_text().splitlines())
"""Tests, or whole families of parameters, that ``tests/tiers.py`` found to be slow."""
WEEKLY = frozenset((HERE / "weekly.txt").read_text().splitlines())
"""Those that it found to be too slow for whole runs; one that kills a planted fault is in them all the same."""
COLD = frozenset((HERE / "cold.txt").read_text().splitlines())
"""Slow tests of which whole runs have all cells: mostly those whose kernels take seconds to compile on a new machine,
where hardly any other fast test needs them."""

OPTIONAL = (
    "torch",
    "triton",
    "opacus",
    "transformers",
    "peft",
    "trl",
    "lightning",
    "jax",
    "cryptography",
    "dask",
    "ray",
    "dp-accounting",
    "matplotlib",
    "starlette",
    "selenium",
)
"""Packages whose tests are left out where they are missing."""

# The first example of a law may load kernels or compile them, and timings are never asserted. Whole runs try the same
# examples every time; ``--hypothesis-profile=search`` tries others.
settings.register_profile("search", deadline=None)
settings.register_profile("same", deadline=None, derandomize=True)
settings.load_profile("same")

# Without it, MKL computes rows of a matrix product by where they stand, on some processors, and bits that tests compare
# are others (docs/theory/exact-sums.md). It has to be there before torch is imported.
os.environ.setdefault("MKL_CBWR", "AUTO")

# There is a test process on each core. Threads of linear algebra inside each would wait for each other, and turn while
# they wait: tests of small matrices took ten times as long. It has to be there before numpy is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell that starts the tests in the background makes them ignore Ctrl-C, and those of interruptions would never end.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


if sys.platform == "linux":
    import resource

    LARGEST_PROCESS = 8 << 30
    """Bytes that a process of the tests may ask for; more is a MemoryError of the test that asks, not a killed run."""
    LARGEST_PEAK = 6 << 30
    """Bytes that a process of the tests may have in memory; a third of it are the imported frameworks."""
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    if most == resource.RLIM_INFINITY or most > LARGEST_PROCESS:
        resource.setrlimit(resource.RLIMIT_DATA, (LARGEST_PROCESS, most))

    PEAK = pytest.StashKey[int]()
    """The largest memory of the process so far."""

    @pytest.fixture(autouse=True)
    def memory(request: pytest.FixtureRequest) -> Iterator[None]:
        """Fail the test in which the process, the fixtures of the test included, first has more than ``LARGEST_PEAK``.

        Two such processes would end a small machine, and the run with it.
        """
        yield
        before = request.config.stash.get(PEAK, LARGEST_PEAK)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        if peak > before:
            request.config.stash[PEAK] = peak
            pytest.fail(f"The process had {peak / 2**30:.1f} GiB in memory; {LARGEST_PEAK / 2**30:.0f} are allowed.")


COLLECTED = pytest.StashKey[frozenset[str]]()
"""The identifiers of all tests that were found, before ``-m`` selects."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Import and collect without looking for garbage, and look at nothing of it later: two million objects stay.

    Collection takes a third less time, and every search among all objects a second less, of which tests make many.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark slow and weekly tests; leave out the weekly ones unless they are asked for. Runs before ``-m`` selects."""
    config.stash[COLLECTED] = frozenset(item.nodeid for item in items)
    families: defaultdict[str, dict[str, pytest.Item]] = defaultdict(dict)
    always = killers(HERE / "mutations")
    for item in items:
        family = item.nodeid.split("[")[0]
        if not WEEKLY.isdisjoint((item.nodeid, family)) and item.nodeid not in always:
            item.add_marker(pytest.mark.weekly)
        if not SLOW.isdisjoint((item.nodeid, family)):
            item.add_marker(pytest.mark.slow)
            if not item.get_closest_marker("weekly"):
                families[family][item.nodeid] = item
        elif not COLD.isdisjoint((item.nodeid, family)):
            item.add_marker(pytest.mark.slow)
    for cells in families.values():
        for name in cells.keys() - covering({name: parameters_of(cell) for name, cell in cells.items()}, always):
            cells[name].add_marker(pytest.mark.weekly)
    weekly = {item for item in items if item.get_closest_marker("weekly")}
    if weekly and "weekly" not in config.option.markexpr:
        items[:] = [item for item in items if item not in weekly]
        config.hook.pytest_deselected(items=list(weekly))


def parameters_of(item: pytest.Item) -> Mapping[str, object]:
    """The values of the parameters of a test, by name."""
    return item.callspec.params if hasattr(item, "callspec") else {}


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A headless Chromium; skipped where there is none."""
    webdriver = pytest.importorskip("selenium.webdriver")
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("there is no chromium with its chromedriver here")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    started = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    started.set_script_timeout(60)
    yield started
    started.quit()


@pytest.fixture
def browser(chromium: Any, tmp_path: Path) -> Iterator[Any]:
    """A new window of the browser, with empty logs and a storage of its own; downloads are saved in ``tmp_path``."""
    first = chromium.current_window_handle
    chromium.switch_to.new_window("window")
    chromium.set_window_size(1280, 1000)
    chromium.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    for kind in ("browser", "performance"):
        chromium.get_log(kind)
    yield chromium
    chromium.close()
    chromium.switch_to.window(first)


@pytest.fixture(scope="session")
def axe() -> str:
    """The script of axe-core, which finds what is not accessible; skipped where it is missing."""
    pytest.importorskip("axe_core_python")
    return (files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8")


@pytest.fixture
def collected(request: pytest.FixtureRequest) -> frozenset[str]:
    """The identifiers of all tests that were found, slow ones included."""
    return request.config.stash[COLLECTED]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which optional packages the tests ran with."""
    terminalreporter.write_line("optional packages: " + ", ".join(f"{name} {_version(name)}" for name in OPTIONAL))


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"
