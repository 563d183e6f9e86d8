"""Rows on disk: memory-mapped .npy and .safetensors files, read on demand."""

from __future__ import annotations

import json
import math
import mmap
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

SUFFIXES = (".npy", ".safetensors")
DTYPES = {"F16": np.float16, "F32": np.float32, "F64": np.float64}
"""Types of numbers that are read from .safetensors files."""
MAX_HEADER_BYTES = 1 << 20


class MappedRows:
    """The rows of one or several files, in their order, without a copy in memory: embeddings, prepared tables.

    Parameters
    ----------
    paths
        A file that ends in .npy or .safetensors, a folder of such files, which are sorted by name, or a list of files.
        Each holds one array, ``(rows, ...)``; half precision is converted to float32.
    device
        Device of the rows that are read.

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
    """Maximum number of mapped files: the number of open files of a process is limited."""
    released_bytes = 1 << 26
    """Bytes after which the pages that were read are released; the system caches them while there is room."""
    block_bytes = 1 << 22
    """Bytes of neighbouring rows that an epoch visits close to each other; see :mod:`unbag.training.batches`."""

    def __init__(self, paths: str | Path | Iterable[str | Path], device: torch.device | str = "cpu") -> None:
        self.paths = _list_files(paths)
        self.device = torch.device(device)
        self._mapped: OrderedDict[int, np.memmap] = OrderedDict()
        self._bytes_read = 0
        self._states = [_stat(path) for path in self.paths]
        self.sizes: list[int] = []
        """Number of rows of each file."""
        kinds: list[tuple[np.dtype, tuple[int, ...]]] = []  # type and shape of the rows of each file
        for path in self.paths:
            array = _map(path)
            self.sizes.append(len(array))
            kinds.append((np.result_type(array.dtype, np.float32), array.shape[1:]))
            if kinds[-1] != kinds[0]:
                raise ValueError(
                    f"{path} holds rows of {kinds[-1][0]} and shape {kinds[-1][1]}, but {self.paths[0].name} rows of "
                    f"{kinds[0][0]} and shape {kinds[0][1]}; write all files with the same type and shape"
                )
        self._dtype, row = kinds[0]
        self.shape = (sum(self.sizes), *row)
        self.ndim = len(self.shape)
        self.dtype = torch.from_numpy(np.empty(0, self._dtype)).dtype
        self.rows_of_block = max(1, self.block_bytes // (math.prod(row) * self._dtype.itemsize))
        self._starts = np.append(0, np.cumsum(self.sizes))

    def __reduce__(self) -> tuple[Any, ...]:  # a checkpoint identifies rows by it, too
        return MappedRows, (self.paths, str(self.device)), {"_states": self._states}

    def __len__(self) -> int:
        return self.shape[0]

    def to(self, device: torch.device | str) -> MappedRows:
        """Return the same rows, for another device."""
        return self if torch.device(device) == self.device else MappedRows(self.paths, device)

    def gather(self, rows: Tensor) -> Tensor:
        """Return rows by their numbers, shape ``(n,)``, in this order, shape ``(n, ...)``."""
        numbers = rows.numpy(force=True)
        if len(self.paths) == 1:
            gathered = np.asarray(self._open(0))[numbers]
        else:
            gathered = np.empty((len(numbers), *self.shape[1:]), self._dtype)
            files = np.searchsorted(self._starts, numbers, "right") - 1
            for file in np.unique(files).tolist():
                selected = files == file
                gathered[selected] = self._open(file)[numbers[selected] - self._starts[file]]
        self._release(gathered.nbytes)
        return torch.from_numpy(gathered).to(self.device, self.dtype)

    def split(self, size: int) -> Iterator[Tensor]:
        """Yield consecutive parts of the rows."""
        return (self.gather(part) for part in torch.arange(len(self)).split(size))

    def _open(self, file: int) -> np.memmap:
        """Return the rows of a file, which must not have changed."""
        path = self.paths[file]
        if _stat(path) != self._states[file]:
            raise RuntimeError(f"{path} has changed since it was first read; do not change files until the run ends")
        if file not in self._mapped:
            self._mapped[file] = _map(path)
            if len(self._mapped) > self.max_open:
                self._mapped.popitem(last=False)
        self._mapped.move_to_end(file)
        return self._mapped[file]

    def _release(self, n_bytes: int) -> None:
        """Release pages once in a while: otherwise all rows would be in memory in the end."""
        self._bytes_read += n_bytes
        if self._bytes_read >= self.released_bytes and hasattr(mmap, "MADV_DONTNEED"):
            self._bytes_read = 0
            for array in self._mapped.values():
                array._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]


def _list_files(paths: str | Path | Iterable[str | Path]) -> list[Path]:
    if not isinstance(paths, str | Path):
        files = [Path(path) for path in paths]
    elif Path(paths).is_dir():
        files = sorted(path for path in Path(paths).iterdir() if path.suffix in SUFFIXES and path.name[0] not in "._")
    else:
        files = [Path(paths)]
    if not files:
        raise ValueError(f"there are no rows: {paths} contains no file that ends in {' or '.join(SUFFIXES)}")
    return files


def _stat(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no file {path}; it holds rows of the training data, restore it") from None
    return status.st_size, status.st_mtime_ns


def _map(path: Path) -> np.memmap:
    """Map the array of a file into memory."""
    try:
        array = np.lib.format.open_memmap(path, "r") if path.suffix == ".npy" else _map_safetensors(path)
    except (ValueError, KeyError, TypeError) as error:
        kinds = " or ".join(SUFFIXES)
        raise ValueError(f"{path} cannot be read as {kinds} with one array: {error}; write or copy it again") from error
    if array.ndim < 2 or array.size == 0 or array.dtype.kind not in "fiub":
        raise ValueError(f"{path} must hold numbers, (rows, columns), got {array.dtype} of shape {array.shape}")
    if not array.flags.c_contiguous:
        raise ValueError(f"{path} is stored by columns (Fortran order); store it by rows with numpy.ascontiguousarray")
    return array


def _map_safetensors(path: Path) -> np.memmap:
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > MAX_HEADER_BYTES:
            raise ValueError("it has no header of safetensors")
        header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    if len(header) != 1:
        raise ValueError(f"it holds {len(header)} arrays")
    (array,) = header.values()
    if array["dtype"] not in DTYPES:
        raise ValueError(f"numbers of type {array['dtype']} are not supported; write one of {', '.join(DTYPES)}")
    offset = 8 + length + array["data_offsets"][0]
    return np.memmap(path, DTYPES[array["dtype"]], "r", offset, tuple(array["shape"]))
