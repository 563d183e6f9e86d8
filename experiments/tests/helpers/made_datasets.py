"""Small data sets, written in the forms in which the real ones are kept."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.io import savemat
from scipy.sparse import csc_matrix

from unbag_experiments.datasets import RECIPES, Content

IDX_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
PREFIX = {"mnist": "mnist_", "fashion-mnist": "fashion-mnist_", "kuzushiji-mnist": "kmnist_"}


def make(name: str, seed: int = 0) -> Content:
    """Draw what a data set of that shape might hold."""
    recipe, draw = RECIPES[name], np.random.default_rng(seed)
    k, n = len(recipe.classes), 200 if name == "cifar10" else 14
    if len(recipe.shape) > 1:
        split = 100 if name == "cifar10" else 9
        return Content(draw.integers(0, 256, (n, *recipe.shape), np.uint8), draw.integers(0, k, n), n_train=split)
    X = draw.integers(-5, 17, (n, *recipe.shape)).astype(np.float32)
    if name == "msplice":
        X = np.eye(4, dtype=np.float32)[draw.integers(0, 4, (n, 60))].reshape(n, 240)
    if name == "usps":
        X = X / 16
    if k == 2:
        return Content(X, np.array([1, 0, 1, 0]), bags=np.repeat([0, 1, 2, 3], [5, 1, 6, 2]))
    split = 9 if name in ("optdigits", "pendigits", "usps") else None
    return Content(X, draw.integers(0, k, n), n_train=split)


def idx(values: np.ndarray) -> bytes:
    return bytes([0, 0, 8, values.ndim]) + np.array(values.shape, ">u4").tobytes() + values.astype(np.uint8).tobytes()


def lines(rows: list[list[object]], separator: str) -> str:
    return "".join(separator.join(map(str, row)) + "\n" for row in rows)


def halves(content: Content) -> list[tuple[np.ndarray, np.ndarray]]:
    n = content.n_train
    return [(content.X[:n], content.y[:n]), (content.X[n:], content.y[n:])]


def mosaic(tiles: np.ndarray, columns: int) -> Image.Image:
    """Put pictures beside and below each other; the last row is filled up with black ones."""
    padding = np.zeros((-len(tiles) % columns, *tiles.shape[1:]), np.uint8)
    rows = np.concatenate([tiles, padding]).reshape(-1, columns, *tiles.shape[1:])
    return Image.fromarray(
        np.concatenate([np.concatenate(list(row), axis=2) for row in rows], axis=1).transpose(1, 2, 0)
    )


def prepared(name: str, content: Content, folder: Path) -> None:
    """Write unbag's own form."""
    recipe = RECIPES[name]
    if name in PREFIX:
        for file, values in zip(IDX_FILES, sum(((X[:, 0], y) for X, y in halves(content)), ()), strict=True):
            (folder / f"{PREFIX[name]}{file}.gz").write_bytes(gzip.compress(idx(values)))
    elif name == "svhn":
        (train, y_train), (test, y_test) = halves(content)
        # Rows of four tiles: nine pictures are one whole row and five, of which the last row is padded.
        for tiles, file in ((train[:4], "train_1"), (train[4:], "train_2"), (test, "test")):
            mosaic(tiles, 4).save(folder / f"svhn_{file}.jpg", quality=100, subsampling=0)
        np.savez(folder / "svhn_labels.npz", y_train=y_train, y_test=y_test)
    elif name == "cifar10":
        (train, y_train), (test, y_test) = halves(content)
        for number, tiles in enumerate([*np.split(train, 5), test], 1):
            file = "cifar10_test.webp" if number == 6 else f"cifar10_train_{number}.webp"
            mosaic(tiles, len(tiles) // 2).save(folder / file, lossless=True)
        np.savez(folder / "cifar10_labels.npz", y_train=y_train, y_test=y_test, classes=recipe.classes)
    else:
        X = np.insert(content.X, (0, 38), 0, axis=1) if name == "optdigits" else content.X
        extra = {"bag": content.bags} if content.bags is not None else {"classes": recipe.classes}
        if content.n_train is not None:
            extra["n_train"] = content.n_train
        np.savez(folder / f"{name}.npz", X=X, y=content.y, **extra)


def published(name: str, content: Content, folder: Path) -> None:
    """Write the files in which the authors publish a data set."""
    PUBLISHED[name](name, content, folder)


def _musk(name: str, content: Content, folder: Path) -> None:
    rows = [
        [f"MUSK-{bag}", f"{bag}_{row}+1", *content.X[row].astype(int), f"{content.y[bag]}."]
        for row, bag in enumerate(content.bags)
    ]
    (folder / f"clean{name[-1]}.data").write_text(lines(rows, ","))


def _corel(name: str, content: Content, folder: Path) -> None:
    labels = 2.0 * content.y[content.bags] - 1
    arrays = {"features": csc_matrix(content.X), "labels": csc_matrix(labels[None]), "bag_ids": content.bags[None] + 7}
    savemat(folder / f"{name}_100x100_matlab.mat", arrays)


def _splice(name: str, content: Content, folder: Path) -> None:
    letters = np.array(list("ACGT"))[content.X.reshape(-1, 60, 4).argmax(2)]
    rows = [
        [RECIPES[name].classes[label], f"   GENE-{row}", "     " + "".join(letters[row])]
        for row, label in enumerate(content.y)
    ]
    rows.insert(3, ["N", "   AMBIGUOUS", "     " + "ACGN" * 15])
    (folder / "splice.data").write_text(lines(rows, ","))


def _digits(name: str, content: Content, folder: Path) -> None:
    for (X, y), end in zip(halves(content), ("tra", "tes"), strict=True):
        full = np.insert(X, (0, 38), 0, axis=1) if name == "optdigits" else X
        rows = [[*(f"{value:3.0f}" for value in row), label] for row, label in zip(full, y, strict=True)]
        (folder / f"{name}.{end}").write_text(lines(rows, ","))


def _usps(_: str, content: Content, folder: Path) -> None:
    for (X, y), file in zip(halves(content), ("zip.train.gz", "zip.test.gz"), strict=True):
        rows = [[f"{label}.0000", *(f"{value:.4f}" for value in row), ""] for row, label in zip(X, y, strict=True)]
        (folder / file).write_bytes(gzip.compress(lines(rows, " ").encode()))


def _vehicle(name: str, content: Content, folder: Path) -> None:
    rows = [
        [*X.astype(int), f"{RECIPES[name].classes[label]:<4}"] for X, label in zip(content.X, content.y, strict=True)
    ]
    for letter, part in zip("abcdefghi", np.array_split(np.arange(len(rows)), 9), strict=True):
        (folder / f"xa{letter}.dat").write_text(lines([rows[row] for row in part], " "))


def _mnist(name: str, content: Content, folder: Path) -> None:
    (folder / name).mkdir()
    for file, values in zip(IDX_FILES, sum(((X[:, 0], y) for X, y in halves(content)), ()), strict=True):
        (folder / name / file).write_bytes(idx(values))


def cifar_batches(content: Content) -> dict[str, bytes]:
    (train, y_train), (test, y_test) = halves(content)
    batches = [*zip(np.split(train, 5), np.split(y_train, 5), strict=True), (test, y_test)]
    names = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
    return {
        name: b"".join(bytes([label]) + picture.tobytes() for picture, label in zip(*batch, strict=True))
        for name, batch in zip(names, batches, strict=True)
    }


def _cifar10(_: str, content: Content, folder: Path) -> None:
    with tarfile.open(folder / "cifar-10-binary.tar.gz", "w:gz") as archive:
        top = tarfile.TarInfo("cifar-10-batches-bin")
        top.type = tarfile.DIRTYPE
        archive.addfile(top)
        for name, batch in cifar_batches(content).items():
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(batch)
            archive.addfile(member, io.BytesIO(batch))


def _svhn(_: str, content: Content, folder: Path) -> None:
    for (X, y), part in zip(halves(content), ("train", "test"), strict=True):
        digits = np.where(y == 0, 10, y).astype(np.uint8)[:, None]
        savemat(folder / f"{part}_32x32.mat", {"X": X.transpose(2, 3, 1, 0), "y": digits}, do_compression=True)


PUBLISHED: dict[str, Callable[[str, Content, Path], None]] = {
    **dict.fromkeys(("musk1", "musk2"), _musk),
    **dict.fromkeys(("elephant", "fox", "tiger"), _corel),
    "msplice": _splice,
    **dict.fromkeys(("optdigits", "pendigits"), _digits),
    "usps": _usps,
    "vehicle": _vehicle,
    **dict.fromkeys(("mnist", "fashion-mnist", "kuzushiji-mnist"), _mnist),
    "cifar10": _cifar10,
    "svhn": _svhn,
}
