"""Tables of random numbers for measurements, in Parquet and as arrays, that are made once and kept in a folder."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from unbag import Groups
from unbag.aggregates import LabelProportions
from unbag.persistence.run_folder import Run
from unbag.tables import fit_tables, make_plan
from unbag.training import Observations

ROWS_OF_PART = 250_000


@dataclass(frozen=True)
class Shape:
    """Rows and columns of a table, its classes, the size of the groups in which these are counted, and rows a step."""

    rows: int
    columns: int = 20
    classes: int = 2
    group_size: int = 100
    rows_of_step: int = 1000

    def __str__(self) -> str:
        words = {"columns": "{} columns", "classes": "{} classes", "group_size": "groups of {}"}
        words["rows_of_step"] = "{:,} rows a step"
        unusual = [name for name in words if getattr(self, name) != getattr(Shape, name)]
        return ", ".join([f"{self.rows:,} rows", *(words[name].format(getattr(self, name)) for name in unusual)])


class Files:
    """The files of a table in a folder, made where they are not there."""

    def __init__(self, shape: Shape, folder: Path) -> None:
        self.shape, self._folder = shape, folder
        own = folder / f"{shape.rows}-{shape.columns}-{shape.classes}-{shape.group_size}"
        self.parts, self.arrays, self._labels = own / "parts", own / "rows.npy", own / "labels.npy"
        self.groups, self.out = own / "groups.parquet", own / "out"
        if not self.groups.exists():
            self.parts.mkdir(parents=True, exist_ok=True)
            self._make()

    def _make(self) -> None:
        rows, size, labels = self.shape.rows, self.shape.group_size, np.arange(self.shape.classes)
        weights = np.random.default_rng(0).normal(size=(self.shape.columns, len(labels)))
        arrays = np.lib.format.open_memmap(self.arrays, "w+", np.float64, (rows, self.shape.columns))
        of_part, y = max(size, min(ROWS_OF_PART, rows // 4) // size * size), np.empty(rows, np.int64)
        for place, start in enumerate(range(0, rows, of_part)):
            random, own = np.random.default_rng([1, place]), slice(start, min(rows, start + of_part))
            X = arrays[own] = random.normal(size=(own.stop - start, self.shape.columns))
            y[own] = (X @ weights + random.gumbel(size=(len(X), len(labels)))).argmax(1)
            table = {"group": np.arange(own.start, own.stop) // size, **{f"x{n}": x for n, x in enumerate(X.T)}}
            pq.write_table(pa.table(table), self.parts / f"{place:05}.parquet", compression="zstd")
        np.save(self._labels, y)
        counts = {f"class {label}": (y.reshape(-1, size) == label).sum(1) for label in labels}
        pq.write_table(pa.table({"group": np.arange(rows // size), **counts}), self.groups)

    @property
    def n_bytes(self) -> int:
        """How many bytes the parts have."""
        return sum(part.stat().st_size for part in self.parts.iterdir())

    @property
    def observed(self) -> Observations:
        """The groups, and the counts of their classes."""
        counts = [column.to_numpy() for column in pq.read_table(self.groups).columns[1:]]
        groups = Groups.from_sizes(torch.full((len(counts[0]),), self.shape.group_size))
        return Observations(LabelProportions(), groups, torch.from_numpy(np.stack(counts, 1)), self.shape.classes)

    @property
    def labels(self) -> torch.Tensor:
        """The class of each row."""
        return torch.from_numpy(np.array(np.lib.format.open_memmap(self._labels, "r")))

    @property
    def run(self) -> Run:
        """A finished run with these columns and classes, which has learned from a small table."""
        small = Files(replace(self.shape, rows=20 * self.shape.group_size), self._folder)
        run = Run(small.parts.parent / "run")
        if not run.summary.exists():
            given = {"instances": small.parts, "groups": small.groups, "model": "mlp", "epochs": 1}
            fit_tables(make_plan(given), run, force=True)
        return run
