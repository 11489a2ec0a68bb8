"""Importing hockeystick, and asking for help, loads nothing heavy."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import hockeystick

HEAVY = (
    "transformers",
    "numpy",
    "scipy",
    "numba",
    "matplotlib",
    "typer",
    "rich",
    "pydantic",
    "torch",
    "jax",
    "dp_accounting",
)


def loaded(statements: str) -> set[str]:
    """Which heavy packages a fresh Python has loaded after some statements."""
    code = f"{statements}\nimport sys\nprint('LOADED', *[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return set(done.stdout.splitlines()[-1].split()[1:])


def test_the_package_loads_nothing_heavy() -> None:
    assert loaded("import hockeystick; dir(hockeystick); hockeystick.__version__") == set()


def test_help_loads_no_numerics() -> None:
    statements = (
        "from hockeystick.cli.main import main\n"
        "for arguments in (['--help'], ['calibrate', '--help'], ['foo'], ['list', 'foo']):\n"
        "    try: main(arguments)\n"
        "    except SystemExit: pass"
    )
    assert loaded(statements) <= {"typer", "rich", "pydantic"}


def test_a_plan_needs_no_compiler_and_no_plots() -> None:
    assert not loaded("import hockeystick; hockeystick.Plan") & {"numba", "matplotlib", "typer"}


def test_certify_needs_no_plots_and_no_optional_packages() -> None:
    assert not loaded("import hockeystick; hockeystick.certify") & {"matplotlib", "torch", "jax", "dp_accounting"}


PLAN = """
noise_multiplier = 1.0
data = {num_examples = 60000, batch_size = 600, epochs = 2}
sampler = {kind = "poisson"}
target = {epsilon = 2.0, delta = 1e-5}
"""
CERTIFICATES = Path(__file__).parents[1] / "experiments" / "choquette-choo-2024-figure-3" / "certificates"
ENGINES = ("filters", "moments", "monte_carlo", "posteriors", "sequences", "windows")
WORDS = {"monte_carlo", "monte_carlo.families"}
"""The table of families of samples: it loads no numerics."""


def modules_after(statements: str, folder: Path) -> set[str]:
    """The engines of ours and the numerical packages that a fresh Python has loaded after some statements."""
    code = f"{statements}\nimport sys\nprint('LOADED', *sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True, cwd=folder
    )
    names = {name.removeprefix("hockeystick.") for name in done.stdout.splitlines()[-1].split()[1:]}
    numerics = {name for name in names if name.split(".")[0] in ("numba", "scipy", "joblib")}
    engines = {name for name in names - WORDS if name.split(".")[0] in ENGINES}
    return engines | {".".join(name.split(".")[:2]) for name in numerics}


def command(folder: Path, *words: str) -> set[str]:
    """What a command has loaded when it ends."""
    (folder / "plan.toml").write_text(PLAN)
    (folder / "refused.toml").write_text(PLAN.replace("600,", "600000,"))
    statements = f"from hockeystick.cli.main import main\ntry: main({list(words)!r})\nexcept SystemExit: pass"
    return modules_after(statements, folder)


@pytest.mark.parametrize(
    "words",
    [
        ("list", "accountants"),
        ("list", "samplers"),
        ("list", "support"),
        ("list", "generators"),
        ("show", "plan.toml"),
        ("show", str(CERTIFICATES / "poisson-16-mmcc.json")),
        ("show", str(CERTIFICATES / "poisson-16-mmcc.json"), "--markdown"),
        ("epsilon", "refused.toml"),
        ("calibrate", "refused.toml"),
        ("recommend", "--help"),
    ],
    ids=" ".join,
)
def test_commands_that_compute_nothing_load_no_engine(words: tuple[str, ...], tmp_path: Path) -> None:
    assert command(tmp_path, *words) == set()


def test_a_plan_is_refused_before_anything_that_computes_is_imported(tmp_path: Path) -> None:
    (tmp_path / "refused.toml").write_text(PLAN.replace("600,", "600000,"))
    commands = ("epsilon", "delta", "calibrate", "compare", "curve", "recommend", "audit", "tune", "explore")
    statements = (
        "import sys\n"
        "from hockeystick.cli.main import main\n"
        f"for command in {commands!r}:\n"
        "    options = {'delta': ['--epsilon=1'], 'tune': ['--trials=3']}.get(command, [])\n"
        "    try: main([command, 'refused.toml', *options])\n"
        "    except SystemExit as error: assert error.code == 2, (command, error.code)\n"
        "rooms = ('accountants', 'audit', 'calibration', 'certification', 'composition', 'explorer', 'pairs', 'laws')\n"
        "seen = {name for name in sys.modules if name.startswith(tuple(f'hockeystick.{room}' for room in rooms))}\n"
    )
    code = f"{statements}print('SEEN', *seen)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.split()[-1:] == ["SEEN"], done.stdout
    assert done.stderr.count("Got 600000") == 9, done.stderr


@pytest.mark.parametrize("name", ["Mechanism", "Plan", "Certificate"])
def test_descriptions_load_no_engine(name: str, tmp_path: Path) -> None:
    assert modules_after(f"import hockeystick; hockeystick.{name}", tmp_path) == set()


def test_accountants_are_described_without_their_engines(tmp_path: Path) -> None:
    assert modules_after("import hockeystick; hockeystick.certify, hockeystick.calibrate", tmp_path) == set()


@pytest.mark.parametrize(
    "sampler",
    [
        'kind = "poisson"',
        'kind = "random_allocation"',
        'kind = "balls_in_bins"',
        'kind = "cyclic_poisson", groups = 4',
        'kind = "deterministic"',
    ],
)
def test_epsilon_of_independent_noise_loads_laws_alone(sampler: str, tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(PLAN.replace('kind = "poisson"', sampler))
    seen = command(tmp_path, "epsilon", "own.toml")
    assert "scipy.version" in seen, "it computes"
    assert not seen & {"numba", "scipy.special"}, "laws need them; contour integrals and transforms do not"
    assert not [name for name in seen if name.startswith(ENGINES)]
    assert not seen & {"scipy.signal", "scipy.stats", "scipy.optimize", "scipy.interpolate", "scipy.sparse", "joblib"}


def test_laws_load_their_kernels(tmp_path: Path) -> None:
    """Of little noise, contours and transforms say nothing."""
    plan = PLAN.replace("noise_multiplier = 1.0", "noise_multiplier = 0.3").replace("poisson", "balls_in_bins")
    (tmp_path / "own.toml").write_text(plan)
    assert {"numba", "scipy.special"} <= command(tmp_path, "epsilon", "own.toml")


def test_a_command_seldom_looks_for_cycles(tmp_path: Path) -> None:
    """Python's own pace would be some hundred times for the imports of a plan."""
    (tmp_path / "plan.toml").write_text(PLAN)
    code = (
        "import gc, sys\n"
        "seen = []\n"
        "gc.callbacks.append(lambda phase, info: seen.append(phase))\n"
        "from hockeystick.__main__ import main\n"
        "sys.argv = ['hockeystick', 'epsilon', 'plan.toml']\n"
        "try: main()\n"
        "except SystemExit: print('LOOKED', seen.count('start'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True
    )
    assert 1 <= int(done.stdout.split()[-1]) <= 30


@pytest.mark.parametrize("family", ["BandedSquareRoot", "BandedInverseSquareRoot"])
def test_strategies_solve_without_the_signals_of_scipy(family: str, tmp_path: Path) -> None:
    statements = f"import hockeystick, numpy; hockeystick.{family}(bands=4).matrix(9).solve(numpy.ones(9))"
    assert not modules_after(statements, tmp_path) & {"scipy.signal", "scipy.stats", "scipy.optimize"}


def test_a_method_loads_its_engine(tmp_path: Path) -> None:
    """The counts above are about modules that exist, and that something loads."""
    assert "moments.log_moments" in command(tmp_path, "epsilon", "plan.toml", "--method", "renyi")


@pytest.mark.parametrize("name", hockeystick.__all__)
def test_public_names_exist(name: str) -> None:
    assert getattr(hockeystick, name) is not None
    assert name in dir(hockeystick)


def test_names_are_listed_once_and_those_of_others_are_not() -> None:
    assert len(set(dir(hockeystick))) == len(dir(hockeystick))
    assert not {"TYPE_CHECKING", "import_module"} & set(dir(hockeystick))


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = hockeystick.nothing


@pytest.mark.skipif(find_spec("opacus") is not None, reason="it is there")
def test_the_part_for_torch_says_what_it_needs() -> None:
    with pytest.raises(ImportError, match=r"pip install '\.\[torch\]'"):
        _ = hockeystick.torch


@pytest.mark.skipif(find_spec("jax_privacy") is not None, reason="it is there")
def test_the_part_for_jax_says_what_it_needs() -> None:
    with pytest.raises(ImportError, match=r"pip install '\.\[jax\]'"):
        _ = hockeystick.jax


def test_training_needs_no_framework() -> None:
    assert not loaded("import hockeystick; hockeystick.training.Run") & {"torch", "jax", "matplotlib"}
