"""CIFAR-10: 32 x 32 colour pictures of animals and vehicles."""

import tarfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from unbag_experiments.datasets.base import Content, Layout, Recipe
from unbag_experiments.datasets.download import Remote
from unbag_experiments.datasets.mosaics import read_mosaics
from unbag_experiments.datasets.readers import broken, join, read_bytes, train_and_test

BATCHES = (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin")
FOLDER = "cifar-10-batches-bin"
SHA256 = {"cifar-10-binary.tar.gz": "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"}
MOSAICS = (*(f"cifar10_train_{number}.webp" for number in range(1, 6)), "cifar10_test.webp")


def read_records(path: Path, content: bytes) -> Content:
    """Read records of a label and 32 x 32 bytes of red, green and blue."""
    if len(content) % 3073 or not content:
        broken(path, f"records of 3,073 bytes were expected, and {len(content):,} bytes are no whole number of them")
    records = np.frombuffer(content, np.uint8).reshape(-1, 3073)
    return Content(records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0])


def read_archive(paths: Sequence[Path]) -> Content:
    """Read the batches out of the archive in which they are published, without unpacking it."""
    (path,) = paths
    contents = {}
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                file = archive.extractfile(member)
                if file is not None:
                    contents[member.name] = file.read()
    except (tarfile.TarError, OSError, EOFError) as error:
        broken(path, f"this is no whole archive ({error})")
    missing = [batch for batch in BATCHES if f"{FOLDER}/{batch}" not in contents]
    if missing:
        broken(path, f"{FOLDER}/{missing[0]} is missing in it")
    *train, test = (read_records(path, contents[f"{FOLDER}/{batch}"]) for batch in BATCHES)
    return join(*train, test=test)


DATASETS = (
    Recipe(
        name="cifar10",
        title="CIFAR-10, pictures of animals and vehicles",
        shape=(3, 32, 32),
        classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
        citation="Krizhevsky, Learning multiple layers of features from tiny images, 2009",
        home="https://www.cs.toronto.edu/~kriz/cifar.html",
        licence="none stated; free to use with citation",
        layouts=(
            Layout((*MOSAICS, "cifar10_labels.npz"), read_mosaics),
            Layout(BATCHES, train_and_test(lambda path: read_records(path, read_bytes(path)))),
            Layout(tuple(SHA256), read_archive),
        ),
        places=("", "cifar10/", f"{FOLDER}/", f"cifar10/{FOLDER}/"),
        remotes=Remote.below("https://www.cs.toronto.edu/~kriz/", SHA256),
    ),
)
