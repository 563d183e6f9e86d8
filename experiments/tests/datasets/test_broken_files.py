"""Files that are not what they should be: every reader says which file, where in it, and what was expected."""

from __future__ import annotations

import gzip
import re
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from made_datasets import cifar_batches, idx, make, prepared, published
from PIL import Image
from scipy.io import savemat

from unbag_experiments import datasets

Damage = Callable[[Path], object]


def write(content: bytes | str) -> Damage:
    return lambda path: path.write_bytes(content.encode() if isinstance(content, str) else content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def lines(change: Callable[[list[str]], list[str]]) -> Damage:
    return lambda path: path.write_text("\n".join(change(path.read_text().splitlines())))


def arrays(**changed: np.ndarray | None) -> Damage:
    """Write an .npz file anew, with some arrays changed or left out."""

    def damage(path: Path) -> None:
        with np.load(path) as old:
            new = {**old, **changed}
        np.savez(path, **{key: value for key, value in new.items() if value is not None})

    return damage


def matlab(**content: np.ndarray) -> Damage:
    return lambda path: savemat(path, content)


def swap(path: Path) -> None:
    path.with_name("train-images-idx3-ubyte").write_bytes(path.read_bytes())


SEQUENCE = "ACGT" * 15
PICTURES, BYTES = np.zeros((32, 32, 3, 2), np.uint8), np.zeros(20, np.uint8)
CASES: list[tuple[str, Callable[..., None], str, Damage, str]] = [
    ("mnist", published, "mnist/train-images-idx3-ubyte", cut, "announces 9 x 28 x 28 values, and 7051 follow"),
    ("mnist", published, "mnist/train-images-idx3-ubyte", write(b""), "begins with 00 00 08, this one with nothing"),
    ("mnist", published, "mnist/t10k-labels-idx1-ubyte", write(b"\x89PNG..."), "this one with 89 50 4e"),
    ("mnist", published, "mnist/t10k-labels-idx1-ubyte", write(b"\0\0\x08\x03\0"), "it ends within its header"),
    ("mnist", published, "mnist/t10k-labels-idx1-ubyte", write(idx(BYTES)), "20 labels for the 5 pictures of t10k-im"),
    ("mnist", published, "mnist/train-labels-idx1-ubyte", swap, "got shapes (9,) and (9,)"),
    ("mnist", prepared, "mnist_train-labels-idx1-ubyte.gz", cut, "this is no whole gzip file"),
    ("mnist", prepared, "mnist_train-labels-idx1-ubyte.gz", write(b"no gzip"), "this is no whole gzip file"),
    ("musk1", published, "clean1.data", lines(lambda rows: [*rows[:3], rows[3][:-9], *rows[4:]]), "line 4 has 16"),
    (
        "musk1",
        published,
        "clean1.data",
        lines(lambda rows: [row[:-2] + "2." for row in rows]),
        "the class '2.' is none",
    ),
    (
        "musk2",
        published,
        "clean2.data",
        lines(lambda rows: [row.replace(",", ",x", 3) for row in rows]),
        "is no number",
    ),
    ("musk2", published, "clean2.data", write("\n\n"), "there are no lines in it"),
    ("musk2", published, "clean2.data", write(b"\x1f\x9d\x90compressed"), "this is no plain text"),
    ("musk1", prepared, "musk1.npz", cut, "this is no whole .npz file of arrays"),
    ("musk1", prepared, "musk1.npz", arrays(y=None), "the array y is missing, there are X, bag"),
    ("musk1", prepared, "musk1.npz", arrays(X=np.array([{}])), "this is no whole .npz file of arrays (Object arrays"),
    ("vehicle", prepared, "vehicle.npz", arrays(classes=np.array(["a", "b", "c", "d"])), "('a', 'b', 'c', 'd')"),
    ("elephant", published, "elephant_100x100_matlab.mat", cut, "this is no whole MATLAB file"),
    ("elephant", published, "elephant_100x100_matlab.mat", write(b"text"), "this is no whole MATLAB file"),
    (
        "elephant",
        published,
        "elephant_100x100_matlab.mat",
        matlab(features=np.ones((2, 230))),
        "array labels is missing",
    ),
    (
        *("elephant", published, "elephant_100x100_matlab.mat"),
        matlab(features=np.ones((2, 230)), labels=np.ones((1, 3)), bag_ids=np.ones((1, 2))),
        "there are 2 rows of features, 3 labels and 2 bag_ids",
    ),
    (
        *("fox", published, "fox_100x100_matlab.mat"),
        matlab(features=np.ones((2, 230)), labels=np.array([[1, 5]]), bag_ids=np.ones((1, 2))),
        "labels are 1 or -1, got 5",
    ),
    ("msplice", published, "splice.data", write(f"EI, a, {SEQUENCE[1:]}"), "sequence 1 is not one of 60 letters"),
    (
        "msplice",
        published,
        "splice.data",
        write(f"N, a, {SEQUENCE}\nN, b, X{SEQUENCE[1:]}"),
        "sequence 2 is not one of",
    ),
    ("msplice", published, "splice.data", write(f"II, a, {SEQUENCE}"), "the class 'II' is none of EI, IE, N"),
    ("msplice", published, "splice.data", write(SEQUENCE), "line 1 has 1 values instead of 3"),
    ("optdigits", published, "optdigits.tes", write("1," * 64 + "1"), "the first and the fortieth are always 0"),
    ("optdigits", prepared, "optdigits.npz", arrays(X=np.zeros((14, 62))), "expected 64 columns"),
    ("pendigits", published, "pendigits.tra", write("1," * 16 + "10"), "the class '10' is none of 0, 1,"),
    ("pendigits", published, "pendigits.tes", cut, "line 5 has 16 values instead of 17"),
    ("usps", published, "zip.train.gz", write(gzip.compress(b"1.5 " * 257)), "the first value of a line is its digit"),
    ("usps", published, "zip.test.gz", write(gzip.compress(b"3.0 " * 256)), "line 1 has 256 values instead of 257"),
    ("vehicle", published, "xac.dat", write("1 " * 18 + "tram"), "the class 'tram' is none of bus, opel, saab, van"),
    ("cifar10", prepared, "cifar10_train_2.webp", cut, "this is no whole picture"),
    ("cifar10", prepared, "cifar10_labels.npz", arrays(y_test=BYTES), "there are 20 labels for 100 pictures"),
    (
        "cifar10",
        prepared,
        "cifar10_labels.npz",
        arrays(y_test=None),
        "expected the arrays y_train and y_test, got y_train",
    ),
    (
        *("cifar10", prepared, "cifar10_test.webp"),
        lambda path: Image.new("RGB", (64, 33)).save(path),
        "expected tiles of 32 x 32, got a picture of 33 x 64",
    ),
    ("cifar10", published, "cifar-10-binary.tar.gz", halve, "this is no whole archive"),
    ("cifar10", published, "cifar-10-binary.tar.gz", write(b"text"), "this is no whole archive"),
    (
        *("cifar10", published, "cifar-10-binary.tar.gz"),
        lambda path: tarfile.open(path, "w:gz").close(),
        "cifar-10-batches-bin/data_batch_1.bin is missing in it",
    ),
    ("svhn", prepared, "svhn_test.jpg", halve, "this is no whole picture"),
    ("svhn", prepared, "svhn_labels.npz", arrays(y_train=np.zeros(8, int)), "there are 8 labels for 12 pictures"),
    ("svhn", prepared, "svhn_labels.npz", arrays(y_test=np.zeros(9, int)), "there are 9 labels for 8 pictures"),
    ("svhn", published, "train_32x32.mat", matlab(X=PICTURES), "the array y is missing"),
    ("svhn", published, "train_32x32.mat", matlab(X=PICTURES, y=np.array([[1]])), "there are 1 labels for 2 pictures"),
    ("svhn", published, "test_32x32.mat", matlab(X=PICTURES, y=np.array([[0], [1]])), "labels are 1 to 10, got 0 to 1"),
    ("svhn", published, "test_32x32.mat", matlab(X=PICTURES[:, :, 0], y=BYTES), "got uint8 32 x 32 x 2"),
    ("svhn", published, "test_32x32.mat", cut, "this is no whole MATLAB file"),
]


@pytest.mark.parametrize("case", CASES, ids=[f"{file}: {problem[:40]}" for _, _, file, _, problem in CASES])
def test_a_broken_file_is_named_with_what_is_wrong(tmp_path, monkeypatch, case):
    name, form, file, damage, problem = case
    monkeypatch.setenv("UNBAG_DATA", str(tmp_path))
    form(name, make(name), tmp_path)
    damage(tmp_path / file)
    with pytest.raises(ValueError, match=re.escape(problem)) as error:
        datasets.load(name)
    assert str(tmp_path) in str(error.value)
    assert Path(file).name.rsplit("-", 2)[0] in str(error.value)


def test_a_batch_of_cifar10_that_is_cut_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("UNBAG_DATA", str(tmp_path))
    for name, batch in cifar_batches(make("cifar10")).items():
        (tmp_path / name).write_bytes(batch)
    cut(tmp_path / "data_batch_3.bin")
    with pytest.raises(ValueError, match=r"data_batch_3\.bin: records of 3,073 bytes were expected, and 61,455 bytes"):
        datasets.cifar10()
