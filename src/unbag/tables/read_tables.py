"""Read files as ``unbag fit`` does, for callers of the estimator."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch.nn.functional import one_hot

from unbag._utils.findings import UnbagWarning
from unbag._utils.problems import Problem, raise_errors
from unbag.aggregates import LabelProportions
from unbag.data.groups import Groups
from unbag.tables.checking import examine, require_explicit_kind
from unbag.tables.ids import find
from unbag.tables.load import LoadedTables, load_tables
from unbag.tables.plan import FILES, PLAN, SOURCE, check_keys, make_plan
from unbag.training import Observations


@dataclass(frozen=True, eq=False)
class Tables:
    """The contents of files for ``AggregateClassifier(**parameters).fit(X, y, groups, subjects=subjects)``."""

    X: Any
    """The features; ``X.to_pandas()`` and ``polars.from_arrow(X)`` are accepted alike."""
    y: Any
    """Observations of groups, :class:`unbag.training.Observations` with groups and weights; a list if there are several
    files, or labels to learn from."""
    groups: Any
    """None if ``y`` contains them."""
    parameters: dict[str, Any]
    """Parameters of the classifier: aggregate, n_classes, classes, sampling and class_shares."""
    labels: np.ndarray | None
    """True classes, for evaluation only, of the rows ``labelled_rows``."""
    labelled_rows: np.ndarray | None
    subjects: np.ndarray | None
    """The number of the subject of each row."""
    instances: pa.Table
    """All columns of the instances."""
    problems: list[Problem]
    """Warnings and notes, as ``unbag check`` lists them; there are no errors."""


def read_tables(instances: str | Path, groups: str | Path, **options: Any) -> Tables:
    r"""Read a file of instances and one of observations as ``unbag fit`` does, ready for the estimator.

    Parameters
    ----------
    instances
        One row per instance: CSV, Parquet, or a folder of Parquet files.
    groups
        One row per group, pair or triplet, with what was observed of it.
    options
        Those of ``unbag check``, with underscores: ``aggregate="multiple_instance"``, ``exclude=["name"]``,
        ``group="ward"``, ``noise="laplace:2"``; further files as ``also=[{"file": "pairs.csv", "aggregate": ...}]``.

    Returns
    -------
    Tables
        ``X``, ``y`` and ``groups`` for fit, and ``parameters`` for the classifier.

    Examples
    --------
    >>> import tempfile, unbag
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "people.csv").write_text("ward,age\nnorth,31\nnorth,45\nsouth,62\nsouth,28\n")
    >>> _ = (folder / "wards.csv").write_text("ward,ill,well\nnorth,1,1\nsouth,0,2\n")
    >>> data = unbag.read_tables(folder / "people.csv", folder / "wards.csv")
    >>> data.X.column_names, data.parameters["classes"], data.y.z.tolist()
    (['age'], ['ill', 'well'], [[1, 1], [0, 2]])
    >>> clf = unbag.AggregateClassifier(**data.parameters)
    >>> clf.fit(data.X, data.y, groups=data.groups, subjects=data.subjects)  # doctest: +SKIP
    """
    allowed = {**SOURCE, **PLAN, **{name: FILES[name] for name in ("published", "also")}}
    check_keys(options, allowed, "read_tables")
    plan = make_plan({"instances": instances, "groups": groups, **options})
    loaded, problems = read_plan(plan, in_memory=True)
    for one in problems:
        if one.severity == "warning":
            warnings.warn(str(one), UnbagWarning, stacklevel=2)
    return as_tables(loaded, problems)


def read_plan(plan: Any, *, in_memory: bool = False) -> tuple[LoadedTables, list[Problem]]:
    """Return the files of a plan, and warnings and notes; raise for errors.

    ``in_memory`` is that of :func:`unbag.tables.load.load_tables`.
    """
    loaded = load_tables(plan, in_memory=in_memory)
    require_explicit_kind(loaded)
    _, problems = examine(loaded)
    raise_errors(problems)
    return loaded, problems


def as_tables(loaded: LoadedTables, problems: list[Problem], X: Any = None) -> Tables:
    """Return files in the form that the estimator accepts; labels to learn from are one more set of observations.

    ``X`` contains the rows on disk, if features are not in memory.
    """
    plan = loaded.plan
    sets: list[tuple[Any, Any, Any, Any]] = [
        (one.aggregate, one.checked, None, source.rates)
        for one, source in zip(loaded.observed, plan.sources, strict=True)
    ]
    if loaded.learned_labels is not None:
        labels, rows = loaded.learned_labels
        of_one = Groups.from_tuples(torch.from_numpy(rows)[:, None], n_rows=len(loaded.instances))
        places = find(pa.array(labels), pa.array(loaded.classes))
        counts = one_hot(torch.from_numpy(places), len(loaded.classes))
        aggregate = LabelProportions()
        sets.append((aggregate, Observations(aggregate, of_one, counts, len(loaded.classes)), None, None))
    joined: Any = sets[0] if len(sets) == 1 else map(list, zip(*sets, strict=True))
    aggregate, y, groups, sampling = joined
    parameters = {
        "aggregate": aggregate,
        "n_classes": len(loaded.classes),
        # With a column of names, the classes are named after the fit.
        "classes": None if plan.names is not None and plan.classes is None else list(loaded.classes),
        "sampling": sampling,
        "class_shares": plan.shares,
    }
    if X is None:
        X = loaded.instances.data.select(loaded.columns.features)
        for place, name in enumerate(X.column_names):
            if name in plan.categorical:
                X = X.set_column(place, name, X.column(name).dictionary_encode())
    labelled = loaded.labels, loaded.labelled_rows
    return Tables(X, y, groups, parameters, *labelled, loaded.subjects, loaded.instances.data, problems)
