"""Bags in a folder: a file of rows for each bag, and a table with their labels."""

import pickle
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from unbag._utils.problems import fail, failing, list_some
from unbag.data.columns import Table, is_missing, plain_types
from unbag.data.groups import Groups
from unbag.data.mapped_rows import MappedRows
from unbag.tables.cells import label_texts
from unbag.tables.files import BAG_SUFFIXES, TableFile, open_table
from unbag.tables.ids import repeated


@dataclass(frozen=True, eq=False)
class Bags:
    """The contents of a folder for ``AggregateClassifier(...).fit(bags.X, bags.y, groups=bags.groups)``.

    ``X`` has the rows of all bags in the order of the names of their files, ``y`` a number or a text for each bag, and
    the ids of ``groups`` are the names of the files without their ending.
    """

    X: Any
    y: np.ndarray
    groups: Groups


def read_bags(
    folder: str | Path,
    table: Any,
    *,
    file: str | None = None,
    label: str | None = None,
    array: str | None = None,
    on_disk: bool = False,
) -> Bags:
    r"""Read a folder with a file for each bag, and a table with the labels of the bags.

    Every file needs a row of the table, and every row a file. Files with other endings are ignored.

    Parameters
    ----------
    folder
        Folder of files with an array each, ``(rows, columns)``: .npy, .pt, .safetensors, .h5 or .hdf5.
    table
        A CSV or Parquet file, or a table of pandas, polars or Arrow.
    file, label
        Columns with the names of the files, with or without their ending, and with the labels; of a table with two
        columns, they are the first and the second.
    array
        Name of the array, where files contain several.
    on_disk
        Whether rows of .npy and .safetensors files stay on disk and are read when a network needs them.

    Examples
    --------
    >>> import tempfile, unbag
    >>> folder = Path(tempfile.mkdtemp())
    >>> np.save(folder / "slide_1.npy", np.ones((2, 3)))
    >>> np.save(folder / "slide_2.npy", np.zeros((1, 3)))
    >>> _ = (folder / "labels.csv").write_text("slide,label\nslide_2,normal\nslide_1,tumour\n")
    >>> bags = unbag.read_bags(folder, folder / "labels.csv")
    >>> bags.X.shape, bags.y.tolist(), bags.groups.ids
    ((3, 3), ['tumour', 'normal'], ['slide_1', 'slide_2'])
    >>> clf = unbag.AggregateClassifier("multiple_instance", classes=["normal", "tumour"])
    >>> clf.fit(bags.X, bags.y, groups=bags.groups)  # doctest: +SKIP
    """
    paths = _find_files(Path(folder))
    y = _read_labels(table, file, label, paths, str(folder))
    if on_disk:
        X: Any = MappedRows([*paths.values()])
        sizes = X.sizes
    else:
        arrays = [rows for _, rows in _load_all(paths, array)]
        X, sizes = np.concatenate(arrays), [len(rows) for rows in arrays]
    return Bags(X, y, replace(Groups.from_sizes(sizes), ids=[*paths]))


class BagFolder(TableFile):
    """A folder with a file for each bag as one table: the column ``bag`` has the names of the files without ending."""

    def __init__(self, path: Path) -> None:
        self.path, self._paths = path, _find_files(path)
        with failing():
            n_columns = _load(next(iter(self._paths.values())), None).shape[1]
        self.names = ["bag", *(f"x{place}" for place in range(n_columns))]

    def _read(self, as_text: Collection[str], columns: list[str] | None, counts: Collection[str]) -> pa.Table:
        return pa.Table.from_batches(self._stream(columns or self.names))

    def _stream(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        with failing():
            for name, rows in _load_all(self._paths, None):
                data = dict(zip(self.names, (np.full(len(rows), name), *rows.T.astype(np.float64)), strict=True))
                yield pa.RecordBatch.from_pydict({column: data[column] for column in columns})


def _load_all(paths: Mapping[str, Path], array: str | None) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the rows of each bag; all must have the same columns."""
    first: tuple[str, int] | None = None
    for name, path in paths.items():
        rows = _load(path, array)
        first = first or (path.name, rows.shape[1])
        if rows.shape[1] != first[1]:
            different = f"{path} has {rows.shape[1]} and {first[0]} has {first[1]}"
            raise ValueError(f"all bags must have the same columns, but {different}")
        yield name, rows


def _find_files(folder: Path) -> dict[str, Path]:
    """Return the files of a folder by their names without the ending, sorted."""
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}; check the name")
    paths: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        if path.suffix.lower() in BAG_SUFFIXES and not path.name.startswith("."):
            if path.stem in paths:
                raise ValueError(f"{path} and {paths[path.stem].name} are files of the same bag; remove one of them")
            paths[path.stem] = path
    if not paths:
        raise ValueError(f"{folder} contains no file that ends in {', '.join(BAG_SUFFIXES)}")
    return paths


def _read_labels(source: Any, file: str | None, label: str | None, paths: dict[str, Path], folder: str) -> np.ndarray:
    """Return the label of each file; every file must have one row."""
    if isinstance(source, str | Path):
        with open_table(Path(source)) as opened:
            table = opened.read(as_text=opened.names)
    else:
        data = pa.Table.from_pandas(source, preserve_index=False) if hasattr(source, "iloc") else pa.table(source)
        table = Table(Path("table"), plain_types(data, "table"))
    if file is None and label is None and len(table.names) == 2:
        file, label = table.names
    if file is None or label is None:
        raise fail(f"pass file= and label=, the names of two of its columns {list_some(table.names)}", table.file)
    if missing := [name for name in (file, label) if name not in table.names]:
        raise fail(f"there is no column {missing[0]!r}; its columns are {list_some(table.names)}", table.file)
    for name in (file, label):
        if (absent := is_missing(table.column(name))).any():
            raise fail("the cell is empty; fill it in, or remove the row", table.file, int(absent.argmax()) + 1, name)
    names = table.column(file).cast(pa.string()).to_pylist()
    stems = [name.removesuffix(next(filter(name.lower().endswith, BAG_SUFFIXES), "")) for name in names]
    if (twice := repeated(pa.array(stems))).any():
        raise fail(f"{stems[row := int(twice.argmax())]!r} has several rows; keep one", table.file, row + 1, file)
    if unknown := [name for name in stems if name not in paths]:
        raise fail(f"there is no file in {folder} for {list_some(unknown)}; remove their rows", table.file, None, file)
    if unlabelled := [name for name in paths if name not in set(stems)]:
        raise fail(f"there is no row for the files {list_some(unlabelled)} of {folder}", table.file, None, file)
    texts = label_texts(table, label).to_pylist()
    is_number = all(text.removeprefix("-").isdecimal() for text in texts)
    labels = dict(zip(stems, map(int, texts) if is_number else texts, strict=True))
    return np.array([labels[name] for name in paths])


def _load(path: Path, array: str | None) -> np.ndarray:
    """Return the array of a file; nothing in the file is executed."""
    try:
        content = _READERS[path.suffix.lower()](path)
    except (OSError, ValueError, EOFError, RuntimeError, pickle.UnpicklingError, SafetensorError) as error:
        raise ValueError(f"{path} cannot be read: {str(error).splitlines()[0]}; write it again as an array") from error
    if isinstance(content, Mapping):
        if array is None and len(content) != 1:
            raise ValueError(f"{path} contains {list_some(content)}; pass array= with the name of the rows")
        if array is not None and array not in content:
            raise ValueError(f"{path} contains no {array!r}, but {list_some(content)}")
        content = content[next(iter(content)) if array is None else array]
    if isinstance(content, Tensor):
        content = (content.float() if content.dtype == torch.bfloat16 else content).numpy(force=True)
    rows = np.asarray(content)
    if rows.ndim != 2 or rows.size == 0 or rows.dtype.kind not in "fiub":
        found = f"{rows.dtype} of shape {rows.shape}"
        raise ValueError(f"{path} must hold an array of numbers, (rows, columns), at least one row; got {found}")
    return rows.astype(np.result_type(rows.dtype, np.float32), copy=False)


def _read_h5(path: Path) -> dict[str, np.ndarray]:
    try:
        import h5py  # noqa: PLC0415 (not a dependency)
    except ImportError as error:
        raise ImportError(f"{path} needs the package h5py, which is not installed: pip install h5py") from error
    with h5py.File(path, "r") as file:
        return {name: np.asarray(values) for name, values in file.items() if hasattr(values, "shape")}


_READERS: dict[str, Any] = {
    ".npy": partial(np.load, allow_pickle=False),
    ".pt": partial(torch.load, map_location="cpu", weights_only=True),
    ".safetensors": load_file,
    ".h5": _read_h5,
    ".hdf5": _read_h5,
}
