"""Rows in files that are memory-mapped: shards of .npy or .safetensors, read where they are needed."""

from __future__ import annotations

import json
import math
import mmap
import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

SUFFIXES = (".npy", ".safetensors")
FLOATS = {"F16": np.float16, "F32": np.float32, "F64": np.float64}
"""Types of numbers in .safetensors that are read."""


class MappedRows:
    """Rows of one file or of several, one after the other, that are not in memory: embeddings, prepared tables.

    Parameters
    ----------
    paths
        A file that ends in .npy or .safetensors, a folder of them, whose order is that of their names, or a list. Each
        holds one array, ``(rows, ...)``; half precision is read as float32.
    device
        Where rows are put when they are read.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> np.save(folder / "slide_1.npy", np.ones((2, 3), np.float32))
    >>> np.save(folder / "slide_2.npy", np.zeros((1, 3), np.float32))
    >>> rows = MappedRows(folder)
    >>> rows.shape, rows.sizes, rows.gather(torch.tensor([2, 0]))
    ((3, 3), [2, 1], tensor([[0., 0., 0.],
            [1., 1., 1.]]))
    """

    max_open = 256
    """Files that are mapped at a time: a process may not have many more open."""
    released_bytes = 1 << 26
    """Bytes after which pages that were read are given back; the system caches them while there is room."""
    block_bytes = 1 << 22
    """Bytes of neighbouring rows that an epoch visits close to each other; see :mod:`unbag.training.batches`."""

    def __init__(self, paths: str | Path | Iterable[str | Path], device: torch.device | str = "cpu") -> None:
        self.paths = _files_of(paths)
        self.device = torch.device(device)
        self._mapped: OrderedDict[int, tuple[mmap.mmap, np.ndarray]] = OrderedDict()
        self._read = 0
        self._known = [_state_of(path) for path in self.paths]
        headers = [_read_header(path) for path in self.paths]
        kinds = [(np.result_type(kind, np.float32), tuple(shape[1:])) for kind, shape, _ in headers]
        for path, kind in zip(self.paths, kinds, strict=True):
            if kind != kinds[0]:
                raise ValueError(
                    f"{path} holds rows of {kind[0]} and shape {kind[1]}, but {self.paths[0].name} rows of "
                    f"{kinds[0][0]} and shape {kinds[0][1]}; write all files alike"
                )
        self._kind, row = kinds[0]
        self.sizes: list[int] = [shape[0] for _, shape, _ in headers]
        """How many rows each file has."""
        self.shape = (sum(self.sizes), *row)
        self.ndim = len(self.shape)
        self.dtype = torch.from_numpy(np.empty(0, self._kind)).dtype
        self.rows_of_block = max(1, self.block_bytes // (math.prod(row) * self._kind.itemsize))
        self._starts = np.append(0, np.cumsum(self.sizes))

    def __reduce__(self) -> tuple[Any, ...]:  # by which a checkpoint knows the rows, too
        return MappedRows, (self.paths, str(self.device)), {"_known": self._known}

    def __len__(self) -> int:
        return self.shape[0]

    def to(self, device: torch.device | str) -> MappedRows:
        """Return the same rows, which are put on another device when they are read."""
        return self if torch.device(device) == self.device else MappedRows(self.paths, device)

    def gather(self, rows: Tensor) -> Tensor:
        """Return the rows of these numbers, (n,), in their order, (n, ...)."""
        numbers = rows.numpy(force=True)
        if len(self.paths) == 1:
            taken = self._file(0)[numbers]
        else:
            taken = np.empty((len(numbers), *self.shape[1:]), self._kind)
            of_file = np.searchsorted(self._starts, numbers, "right") - 1
            for place in np.unique(of_file).tolist():
                own = of_file == place
                taken[own] = self._file(place)[numbers[own] - self._starts[place]]
        self._release(taken.nbytes)
        return torch.from_numpy(taken).to(self.device, self.dtype)

    def split(self, at_once: int) -> Iterator[Tensor]:
        """Yield all rows in their order, so many at a time."""
        return (self.gather(part) for part in torch.arange(len(self)).split(at_once))

    def _file(self, place: int) -> np.ndarray:
        """Return the rows of a file, which must be as it was at first."""
        path = self.paths[place]
        if _state_of(path) != self._known[place]:
            raise RuntimeError(f"{path} has changed since it was first read; keep files as they are until the run ends")
        if place not in self._mapped:
            kind, shape, offset = _read_header(path)
            with open(path, "rb") as file:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            array = np.frombuffer(mapped, kind, math.prod(shape), offset).reshape(shape)
            self._mapped[place] = mapped, array
            if len(self._mapped) > self.max_open:
                self._mapped.popitem(last=False)
        self._mapped.move_to_end(place)
        return self._mapped[place][1]

    def _release(self, read: int) -> None:
        """Give pages back once in a while: otherwise all rows would be held in memory in the end."""
        self._read += read
        if self._read >= self.released_bytes and hasattr(mmap, "MADV_DONTNEED"):
            self._read = 0
            for mapped, _ in self._mapped.values():
                mapped.madvise(mmap.MADV_DONTNEED)


def _files_of(paths: str | Path | Iterable[str | Path]) -> list[Path]:
    if not isinstance(paths, str | Path):
        files = [Path(path) for path in paths]
    elif Path(paths).is_dir():
        files = sorted(path for path in Path(paths).iterdir() if path.suffix in SUFFIXES and path.name[0] not in "._")
    else:
        files = [Path(paths)]
    if not files:
        raise ValueError(f"there are no rows: {paths} holds no file that ends in {' or '.join(SUFFIXES)}")
    return files


def _state_of(path: Path) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no file {path}; it holds rows to learn from, put it back") from None
    return status.st_size, status.st_mtime_ns


def _read_header(path: Path) -> tuple[np.dtype, Sequence[int], int]:
    """Return type and shape of the array that a file holds, and where its numbers begin."""
    size = os.stat(path).st_size
    with open(path, "rb") as file:
        try:
            kind, shape, offset = (_read_npy if path.suffix == ".npy" else _read_safetensors)(file)
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} cannot be read as {' or '.join(SUFFIXES)} with one array: {error}") from error
    if len(shape) < 2 or 0 in shape or kind.kind not in "fiub":
        raise ValueError(f"{path} must hold an array of numbers, (rows, columns), got {kind} of shape {tuple(shape)}")
    if offset + math.prod(shape) * kind.itemsize > size:
        raise ValueError(f"{path} is cut short: it has {size:,} bytes; write or copy it again")
    return kind, shape, offset


def _read_npy(file: Any) -> tuple[np.dtype, Sequence[int], int]:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, by_column, kind = read(file)
    if by_column:
        raise ValueError("it is stored by columns (Fortran order); store it by rows with numpy.ascontiguousarray")
    return kind, shape, file.tell()


def _read_safetensors(file: Any) -> tuple[np.dtype, Sequence[int], int]:
    length = int.from_bytes(file.read(8), "little")
    if length > 1 << 20:
        raise ValueError("it has no header of safetensors")
    header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    if len(header) != 1:
        raise ValueError(f"it holds {len(header)} arrays")
    (one,) = header.values()
    if one["dtype"] not in FLOATS:
        raise ValueError(f"numbers of type {one['dtype']} are not read; write one of {', '.join(FLOATS)}")
    return np.dtype(FLOATS[one["dtype"]]), one["shape"], 8 + length + one["data_offsets"][0]
