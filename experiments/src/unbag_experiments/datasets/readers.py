"""Reading the formats that several data sets share: prepared arrays, IDX files, lines of values."""

from __future__ import annotations

import gzip
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import numpy as np

from unbag_experiments.datasets.base import Content


def broken(path: Path, problem: str) -> NoReturn:
    """Refuse a file that is not what its name says."""
    raise ValueError(f"{path}: {problem}; get the file again, or remove it")


def read_bytes(path: Path) -> bytes:
    """Read a file, decompressed where its name ends in .gz."""
    if path.suffix != ".gz":
        return path.read_bytes()
    try:
        return gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        broken(path, f"this is no whole gzip file ({error})")


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read the arrays of an ``.npz`` file, never anything else that such a file may hold.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "arrays.npz"
    >>> np.savez(path, y=np.array([0, 1]))
    >>> read_arrays(path)
    {'y': array([0, 1])}
    """
    arrays = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.namelist():
                with archive.open(member) as file:
                    arrays[member.removesuffix(".npy")] = np.lib.format.read_array(file, allow_pickle=False)
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError) as error:
        broken(path, f"this is no whole .npz file of arrays ({error})")
    return arrays


def read_prepared(paths: Sequence[Path]) -> Content:
    """Read the prepared form of a table or of bags: one ``.npz`` file with X, y and perhaps bag, n_train, classes."""
    arrays = read_arrays(paths[0])
    for key in ("X", "y"):
        if key not in arrays:
            broken(paths[0], f"the array {key} is missing, there are {', '.join(arrays) or 'none'}")
    return Content(
        X=arrays["X"],
        y=arrays["y"],
        n_train=int(arrays["n_train"]) if "n_train" in arrays else None,
        bags=arrays.get("bag"),
        classes=tuple(arrays["classes"].tolist()) if "classes" in arrays else None,
    )


def read_idx(path: Path) -> np.ndarray:
    """Read an IDX file of bytes, the format of MNIST: dimensions and their sizes, then the values.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "labels-idx1-ubyte"
    >>> path.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 2, 1]))
    11
    >>> read_idx(path)
    array([7, 2, 1], dtype=uint8)
    """
    content = read_bytes(path)
    if content[:3] != b"\0\0\x08":
        broken(path, f"an IDX file of bytes begins with 00 00 08, this one with {content[:3].hex(' ') or 'nothing'}")
    start = 4 + 4 * int.from_bytes(content[3:4])
    if len(content) < max(start, 5):
        broken(path, "it ends within its header")
    shape = np.frombuffer(content[4:start], ">u4").tolist()
    values = np.frombuffer(content, np.uint8)[start:]
    if len(values) != np.prod(shape):
        broken(path, f"the header announces {' x '.join(map(str, shape))} values, and {len(values)} follow")
    return values.reshape(shape)


def read_lines(path: Path, width: int, separator: str | None = None) -> list[list[str]]:
    r"""Read lines of separated values, each of one width; blank lines are passed over.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "numbers.data"
    >>> path.write_text("1, 2\n3, 4\n")
    10
    >>> read_lines(path, 2, ",")
    [['1', '2'], ['3', '4']]
    """
    try:
        text = read_bytes(path).decode("ascii")
    except UnicodeDecodeError as error:
        broken(path, f"this is no plain text ({error})")
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        values = [value.strip() for value in line.split(separator)]
        if len(values) != width:
            broken(path, f"line {number} has {len(values)} values instead of {width}")
        rows.append(values)
    if not rows:
        broken(path, "there are no lines in it")
    return rows


def as_numbers(path: Path, rows: list[list[str]]) -> np.ndarray:
    """Turn rows of values into float64; where that fails, name the value.

    Examples
    --------
    >>> as_numbers(Path("numbers.data"), [["1", "2."], ["-3", "4e2"]])
    array([[  1.,   2.],
           [ -3., 400.]])
    """
    try:
        return np.array(rows, dtype=np.float64)
    except ValueError as error:
        broken(path, f"a value is no number ({error})")


def as_labels(path: Path, values: Sequence[str], classes: Sequence[str]) -> np.ndarray:
    """Turn names of classes into their numbers; refuse a name that is not among them.

    Examples
    --------
    >>> as_labels(Path("cars.data"), ["van", "bus"], ("bus", "van"))
    array([1, 0])
    """
    number = {name: label for label, name in enumerate(classes)}
    unknown = sorted(set(values) - set(number))
    if unknown:
        broken(path, f"the class {unknown[0]!r} is none of {', '.join(classes)}")
    return np.array([number[value] for value in values])


def read_labelled(path: Path, width: int, classes: Sequence[str], separator: str | None = None) -> Content:
    r"""Read lines of numbers and, last, a label."""
    rows = read_lines(path, width, separator)
    y = as_labels(path, [row.pop() for row in rows], classes)
    return Content(as_numbers(path, rows), y)


def join(*train: Content, test: Content | None = None) -> Content:
    """Put the pieces of the official training part one after the other, and the official test part behind them."""
    parts = train if test is None else (*train, test)
    n_train = None if test is None else sum(len(part.y) for part in train)
    return Content(np.concatenate([part.X for part in parts]), np.concatenate([part.y for part in parts]), n_train)


def train_and_test(read: Callable[[Path], Content]) -> Callable[[Sequence[Path]], Content]:
    """Return what reads files of the training part, and last one of the test part, each in the same way."""

    def read_all(paths: Sequence[Path]) -> Content:
        *train, test = map(read, paths)
        return join(*train, test=test)

    return read_all


def gather_bags(X: np.ndarray, positive: np.ndarray, bag_of_row: Sequence[str]) -> Content:
    """Put the rows of each bag together, bags in the order of their first rows; positive is a bag with a positive row.

    Examples
    --------
    >>> content = gather_bags(np.array([[1.0], [2.0], [3.0]]), np.array([True, False, False]), ["b", "a", "b"])
    >>> content.X.tolist(), content.bags.tolist(), content.y.tolist()
    ([[1.0], [3.0], [2.0]], [0, 0, 1], [1, 0])
    """
    numbers = {name: number for number, name in enumerate(dict.fromkeys(bag_of_row))}
    bags = np.array([numbers[name] for name in bag_of_row])
    order = np.argsort(bags, kind="stable")
    y = np.zeros(len(numbers), np.int64)
    y[bags[positive]] = 1
    return Content(X[order], y, bags=bags[order])
