"""Pictures that are kept as tiles of large ones, with their labels as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from unbag_experiments.datasets.base import Content
from unbag_experiments.datasets.readers import broken, join, read_arrays

SIDE = 32


def read_mosaics(paths: Sequence[Path]) -> Content:
    """Read mosaics of the training part, that of the test part, and the labels ``y_train`` and ``y_test``.

    The last row of tiles of a part may be padded: tiles without a label, fewer than a row of them, are left out.
    """
    *mosaics, labels = paths
    arrays = read_arrays(labels)
    if not {"y_train", "y_test"} <= set(arrays):
        broken(labels, f"expected the arrays y_train and y_test, got {', '.join(arrays) or 'none'}")
    *train, test = map(read_tiles, mosaics)
    return join(_part(labels, train, arrays["y_train"]), test=_part(labels, [test], arrays["y_test"]))


def _part(labels: Path, mosaics: Sequence[np.ndarray], y: np.ndarray) -> Content:
    """Put the tiles of some mosaics, (rows, columns, ...), one after the other, as many as there are labels."""
    X = np.concatenate([tiles.reshape(-1, *tiles.shape[2:]) for tiles in mosaics])
    padding = len(X) - len(y)
    if not 0 <= padding < mosaics[-1].shape[1]:
        broken(labels, f"there are {len(y)} labels for {len(X)} pictures")
    return Content(X[: len(y)], y)


def read_tiles(path: Path) -> np.ndarray:
    """Cut a picture into tiles of 32 x 32: (rows, columns, 3, 32, 32)."""
    from PIL import Image  # noqa: PLC0415  # only this form needs it

    try:
        with Image.open(path) as image:
            pixels = np.asarray(image.convert("RGB"))
    except OSError as error:
        broken(path, f"this is no whole picture ({error})")
    height, width, _ = pixels.shape
    if height % SIDE or width % SIDE:
        broken(path, f"expected tiles of {SIDE} x {SIDE}, got a picture of {height} x {width}")
    tiles = pixels.reshape(height // SIDE, SIDE, width // SIDE, SIDE, 3)
    return tiles.transpose(0, 2, 4, 1, 3)
