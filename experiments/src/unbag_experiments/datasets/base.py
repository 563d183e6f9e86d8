"""Data sets, and their declaration: files, how they are read, where they come from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unbag_experiments.datasets.download import Remote, fetch
from unbag_experiments.datasets.folder import data_folder, existing


@dataclass(frozen=True, eq=False)
class Dataset:
    """Data to learn from and to be judged on, in one form whatever they are.

    Examples
    --------
    >>> Dataset("two", np.zeros((2, 3), np.float32), np.array([0, 1]), ("no", "yes"), None, None, "made up", "none")
    Dataset two: 2 rows of 3, 2 classes
    """

    name: str
    X: np.ndarray
    """Tables: (n, d) float32. Images: (n, channels, height, width) uint8."""
    y: np.ndarray
    """Labels from 0, int64: of the rows, or of the bags where there are bags."""
    classes: tuple[str, ...]
    bags: np.ndarray | None
    """For every row the number of its bag, sorted from 0; None where rows carry labels."""
    n_train: int | None
    """Rows [:n_train] are the official training part, the others the official test part; None: no official split."""
    source: str
    licence: str

    def __repr__(self) -> str:
        bags = "" if self.bags is None else f" in {len(self.y)} bags"
        shape = " x ".join(map(str, self.X.shape[1:]))
        return f"Dataset {self.name}: {len(self.X)} rows of {shape}{bags}, {len(self.classes)} classes"


@dataclass(frozen=True, eq=False)
class Content:
    """What a reader found in the files of a data set."""

    X: np.ndarray
    y: np.ndarray
    n_train: int | None = None
    bags: np.ndarray | None = None
    classes: tuple[str, ...] | None = None
    """Where the files name the classes: the names, to be compared with those of the recipe."""


@dataclass(frozen=True)
class Layout:
    """One form in which a data set is kept: its files, how they are read, and how their content differs, if at all."""

    files: tuple[str, ...]
    read: Callable[[Sequence[Path]], Content]
    note: str = ""


@dataclass(frozen=True)
class Recipe:
    """The declaration of a data set.

    Parameters
    ----------
    name, title
        What it is called in code, and for people.
    shape
        The shape of one row.
    classes
        Names of the classes, in the order of the labels.
    citation, home, licence
        Whom to cite, where a person gets the files, and what they may be used for.
    layouts
        The forms in which it is read. The first whose files are all there is taken.
    places
        What the names of files begin with, below the data folder. By default files lie in that folder itself, or in
        one named as the data set is.
    remotes
        The files of one of the layouts as they can be downloaded; nothing where no checksum of them is known.
    """

    name: str
    title: str
    shape: tuple[int, ...]
    classes: tuple[str, ...]
    citation: str
    home: str
    licence: str
    layouts: tuple[Layout, ...]
    places: tuple[str, ...] = ()
    remotes: tuple[Remote, ...] = ()

    def load(self) -> Dataset:
        """Read the data set from the data folder, after downloading what is missing where that is possible."""
        folder = data_folder()
        files = self._find(folder)
        if files is None and self.remotes:
            for remote in self.remotes:
                fetch(remote, folder / self.name)
            files = self._find(folder)
        if files is None:
            raise FileNotFoundError(self._missing(folder))
        layout, paths = files
        return self._checked(layout.read(paths), ", ".join(map(str, paths)), layout.note)

    @property
    def _places(self) -> tuple[str, ...]:
        return self.places or ("", f"{self.name}/")

    def _find(self, folder: Path) -> tuple[Layout, list[Path]] | None:
        for layout in self.layouts:
            for place in self._places:
                paths = [existing(folder, place + file) for file in layout.files]
                if None not in paths:
                    return layout, [path for path in paths if path is not None]
        return None

    def _missing(self, folder: Path) -> str:
        """Say which files are read, and which of them are there already."""
        forms = [[place + file for file in layout.files] for layout in self.layouts for place in self._places]
        wanted = ", or ".join(" and ".join(files) for files in forms)
        there = [file for files in forms for file in files if existing(folder, file) is not None]
        but = f"Of these only {' and '.join(there)} is there. " if there else ""
        return f"{self.name} is not in {folder}. Put there {wanted}. {but}The files are to be had from {self.home}"

    def _checked(self, content: Content, origin: str, note: str) -> Dataset:
        """Refuse what does not fit the declaration, before somebody learns from it."""
        X, y, bags, k = content.X, content.y, content.bags, len(self.classes)
        n_labels = len(X) if bags is None else len(np.unique(bags))
        problem = ""
        if X.shape[1:] != self.shape or len(X) == 0:
            problem = f"rows of shape {self.shape}, got {len(X)} of shape {X.shape[1:]}"
        elif bags is not None and not (
            len(bags) == len(X) and np.array_equal(bags, np.cumsum(np.diff(bags, prepend=bags[:1]) > 0))
        ):
            problem = "a bag for every row, numbered from 0, the rows of a bag next to each other"
        elif y.shape != (n_labels,):
            problem = f"a label for each of {n_labels} {'rows' if bags is None else 'bags'}, got {len(y)} labels"
        elif y.min() < 0 or y.max() >= k:
            problem = f"labels from 0 to {k - 1}, got {y.min()} to {y.max()}"
        elif content.classes not in (None, self.classes):
            problem = f"the classes {self.classes}, got {content.classes}"
        elif not np.isfinite(X).all():
            problem = f"finite numbers, got others in row {np.argwhere(~np.isfinite(X))[0][0]}"
        if problem:
            raise ValueError(f"{self.name} needs {problem}; this is what {origin} holds")
        return Dataset(
            name=self.name,
            X=np.ascontiguousarray(X, np.float32 if len(self.shape) == 1 else np.uint8),
            y=y.astype(np.int64),
            classes=self.classes,
            bags=None if bags is None else bags.astype(np.int64),
            n_train=content.n_train,
            source=f"{self.citation}, {self.home}" + (f"; {note}" if note else ""),
            licence=self.licence,
        )
