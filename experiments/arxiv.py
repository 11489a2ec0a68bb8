"""arXiv's abstracts, for those who have the file ``arxiv-metadata-oai-snapshot.json`` of the arXiv data set.

One JSON object a line, of which ``abstract``, ``authors_parsed`` and ``categories`` are read. Papers of a single author
are left out, as in Dong and Ganesh (2026), section 7.3, and a paper belongs to all its authors; people of one name are
one user here. The label is the archive of a paper's first category, one of the 20 most frequent. The paper's TinyBERT
is not here: a classifier on hashed words stands in its place.
"""

import json
import sys
from collections import Counter
from pathlib import Path

import numpy as np

import hockeystick as hs
from experiments.mails import attributed, hashed
from experiments.task import ORDER, Task

FILE = "arxiv-metadata-oai-snapshot.json"
TEST = 200_000
ARCHIVES = 20


def task(cache: Path, examples_per_user: int, users_per_example: int, *, test_size: int = TEST) -> Task:
    """The archive of a paper: what is left after contributions are bounded, and 200,000 papers to test."""
    abstracts, authors, archives = abstracts_of(cache / FILE)
    frequent = [name for name, _ in sorted(Counter(archives).items(), key=lambda pair: (-pair[1], pair[0]))][:ARCHIVES]
    number = {name: index for index, name in enumerate(frequent)}
    known = np.array([index for index, name in enumerate(archives) if name in number])
    order = np.random.default_rng(ORDER).permutation(known)
    if len(order) <= test_size:
        sys.exit(f"{cache / FILE} has {len(order)} papers of several authors; more than {test_size} are needed.")
    rest, test = order[:-test_size], order[-test_size:]
    graph = attributed([authors[paper] for paper in rest])
    kept = hs.bound_contributions(graph, examples_per_user, users_per_example, rng=np.random.default_rng(ORDER))
    labels = np.array([number.get(name, 0) for name in archives])
    training = rest[kept]
    points = [hashed([abstracts[paper] for paper in some]) for some in (training, test)]
    return Task(points[0], labels[training], points[1], labels[test], len(frequent), graph.restricted_to(kept))


def abstracts_of(path: Path) -> tuple[list[str], list[set[str]], list[str]]:
    """Abstracts, authors and archives of all papers of at least two authors, in the order of the file."""
    if not path.exists():
        sys.exit(f"There is no file {path}; it is the snapshot of arXiv's metadata that Kaggle offers.")
    abstracts, authors, archives = [], [], []
    with path.open() as file:
        for line in file:
            paper = json.loads(line)
            people = {" ".join(part for part in parts if part).lower() for parts in paper["authors_parsed"]}
            if len(people) > 1:
                abstracts.append(paper["abstract"])
                authors.append(people)
                archives.append(paper["categories"].split()[0].split(".")[0])
    return abstracts, authors, archives
