"""CIFAR-10 and CINIC-10 from a folder where you have them: images of 32 by 32 pixels in ten classes.

``load(folder)`` recognises three formats by what is in the folder:

* the binary version of CIFAR-10: ``data_batch_1.bin`` to ``data_batch_5.bin`` and ``test_batch.bin``;
* its Python version: ``data_batch_1`` to ``data_batch_5`` and ``test_batch``, pickles, of which only arrays are read;
* CINIC-10: ``train/CLASS/*.png`` and ``test/CLASS/*.png`` (``pip install pillow``).
"""

import pickle
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

Pictures = tuple[np.ndarray, np.ndarray]
"""Images of shape (number, 3, 32, 32) as bytes, and their labels."""

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
BATCHES = [f"data_batch_{number}" for number in range(1, 6)]


class NoDataError(Exception):
    """There are no such images in the folder; the message says what is missing or wrong."""


def load(folder: Path) -> tuple[Pictures, Pictures]:
    """Training and test pictures; raises NoDataError for a folder in none of the three forms."""
    if (folder / "data_batch_1.bin").exists():
        return joined([binary(folder / f"{name}.bin") for name in BATCHES]), binary(folder / "test_batch.bin")
    if (folder / "data_batch_1").exists():
        return joined([pickled(folder / name) for name in BATCHES]), pickled(folder / "test_batch")
    if (folder / "train").is_dir():
        return drawn(folder / "train"), drawn(folder / "test")
    raise NoDataError(
        f"{folder} has neither data_batch_1.bin (CIFAR-10, binary version), data_batch_1 (Python version), nor train/ "
        "(CINIC-10)."
    )


def joined(parts: list[Pictures]) -> Pictures:
    """All parts in order."""
    return np.concatenate([pictures for pictures, _ in parts]), np.concatenate([labels for _, labels in parts])


def binary(path: Path) -> Pictures:
    """Records of a byte for the label and 3,072 for the picture."""
    content = np.frombuffer(read(path), dtype=np.uint8)
    if not content.size or content.size % 3073:
        raise NoDataError(f"{path} must have records of 3073 bytes. It has {content.size} bytes.")
    records = content.reshape(-1, 3073)
    return checked(records[:, 1:], records[:, 0], path)


def pickled(path: Path) -> Pictures:
    """A dictionary with ``data``, an array of bytes, and ``labels``."""
    try:
        content = ArraysOnly(BytesIO(read(path)), encoding="bytes").load()
        return checked(np.asarray(content[b"data"]), np.asarray(content[b"labels"]), path)
    except (pickle.UnpicklingError, KeyError, TypeError, EOFError) as error:
        raise NoDataError(f"{path} is no batch of CIFAR-10: {error}.") from None


class ArraysOnly(pickle.Unpickler):
    """Reads arrays and plain data; a pickle that asks for anything else, which could be any program, is refused."""

    ALLOWED = {("_codecs", "encode"), ("numpy", "ndarray"), ("numpy", "dtype")}
    ALLOWED |= {(f"numpy.{core}.multiarray", "_reconstruct") for core in ("core", "_core")}

    def find_class(self, module: str, name: str) -> Any:
        """What arrays are made of."""
        if (module, name) not in self.ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)


def drawn(folder: Path) -> Pictures:
    """A folder of PNG files for each class."""
    from PIL import Image

    pictures, labels = [], []
    for label, name in enumerate(CLASSES):
        for path in sorted((folder / name).glob("*.png")):
            with Image.open(path) as image:
                pictures.append(np.asarray(image.convert("RGB")).transpose(2, 0, 1))
            labels.append(label)
    if not pictures:
        raise NoDataError(f"{folder} has no folder such as {CLASSES[0]} with PNG files.")
    if any(picture.shape != (3, 32, 32) for picture in pictures):
        raise NoDataError(f"{folder} has pictures of other sizes than 32 by 32.")
    return np.array(pictures), np.array(labels)


def read(path: Path) -> bytes:
    """The content; raises NoDataError where there is none."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise NoDataError(f"{path} cannot be read: {error.strerror}.") from None


def checked(pictures: np.ndarray, labels: np.ndarray, path: Path) -> Pictures:
    """Pictures in their shape; raises NoDataError for others, and for labels outside 0 to 9."""
    if pictures.ndim != 2 or pictures.shape[1] != 3072 or pictures.dtype != np.uint8 or len(labels) != len(pictures):
        raise NoDataError(f"{path} must have a label and 3072 bytes for each picture.")
    if labels.size and not 0 <= labels.min() <= labels.max() <= 9:
        raise NoDataError(f"{path} has labels outside 0 to 9.")
    return pictures.reshape(-1, 3, 32, 32), labels.astype(np.int64)
