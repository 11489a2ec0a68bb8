"""Scripts for Opacus, which train on our engine with one line changed; one more saves the certificate."""

import difflib
import types
from pathlib import Path

import numpy as np
import pytest

import hockeystick as hs

pytest.importorskip("opacus", reason="needs torch and opacus")

import torch
from processes import end, free_port, start

FOLDER = Path(__file__).parent / "opacus_loops"
THEIRS = "from opacus import PrivacyEngine\n"
OURS = "from hockeystick.training.torch import PrivacyEngine\n"
CERTIFICATE = "privacy_engine.certificate(delta=DELTA).save({path!r})\n"
STEPS = {"mnist": 2 * 10, "imdb": 2 * 13, "char_lstm": 2 * 5, "image": 2 * 9, "text": 2 * 4}
"""Of the last run of each script: epochs times the length of its loader."""
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


def sources(name):
    """The script, and the same with one line changed."""
    theirs = (FOLDER / f"{name}.py").read_text()
    ours = theirs.replace(THEIRS, OURS)
    changed = [line for line in difflib.ndiff(theirs.splitlines(), ours.splitlines()) if line[:2] in ("- ", "+ ")]
    assert changed == [f"- {THEIRS.strip()}", f"+ {OURS.strip()}"]
    return theirs, ours


def run(source, name):
    """The names that a script leaves."""
    module = types.ModuleType(name)
    exec(compile(source, f"{name}.py", "exec"), module.__dict__)
    return module


@pytest.mark.parametrize("name", list(STEPS))
def test_one_line_is_changed_and_one_saves_the_certificate(name, tmp_path):
    """The same loop, as many steps; epsilon of the executed steps, which is that of the certificate."""
    if name == "text":
        pytest.importorskip("transformers")
    theirs, ours = sources(name)
    path = tmp_path / "certificate.json"
    left, made = run(theirs, name), run(ours + CERTIFICATE.format(path=str(path)), name)
    engine, certificate = made.privacy_engine, hs.Certificate.load(path)
    assert engine.run.step == STEPS[name] == certificate.mechanism.sampler.steps
    assert len(made.epsilons) >= 2
    spent = engine.get_epsilon(made.DELTA)
    assert certificate.epsilon.lower <= spent <= 1.01 * certificate.epsilon.upper
    assert 0.0 < made.epsilons[-1] <= spent
    assert type(left.optimizer).__mro__[0] in type(made.optimizer).__mro__
    weights = torch.cat([p.detach().reshape(-1) for p in made.model.parameters()])
    assert bool(weights.isfinite().all())
    assert not engine.record().violations
    if name in ("image", "text"):  # a target, which both keep
        assert made.EPSILON * 0.99 < certificate.epsilon.upper <= made.EPSILON
        assert engine.has_end
    if name == "mnist":  # what was learned, and a second run of its own
        assert min(*left.accuracies, *made.accuracies) > 0.5
        assert np.isclose(made.epsilons[1], made.epsilons[3])


def run_in_two(source, path):
    """Run the script of two processes, which print an epsilon each."""
    path.write_text(source)
    process = start("processes.script", path, free_port(), folder=path.parent)
    end(process)
    assert Path(process.name).read_text().count("epsilon = ") == 2


@pytest.mark.weekly
def test_two_processes_of_opacus_alone(tmp_path):
    run_in_two(sources("ddp")[0], tmp_path / "theirs.py")


def test_two_processes(tmp_path):
    _, ours = sources("ddp")
    line = CERTIFICATE.format(path="FOLDER").replace("'FOLDER'", f"f'{tmp_path}/{{rank}}.json'")
    ours = ours.replace("    dist.destroy_process_group()\n", f"    {line}    dist.destroy_process_group()\n")
    run_in_two(ours, tmp_path / "ours.py")
    certificates = [hs.Certificate.load(tmp_path / f"{rank}.json") for rank in (0, 1)]
    assert certificates[0].mechanism == certificates[1].mechanism
    assert certificates[0].mechanism.sampler == hs.Poisson(sampling_prob=1 / 8, steps=16)
