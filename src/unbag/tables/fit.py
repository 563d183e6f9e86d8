"""Fit a classifier to the files of a plan, and keep it with its summary in a run folder."""

import json
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch.nn.functional import one_hot

from unbag._utils.files import write_atomic
from unbag._utils.findings import UnbagWarning
from unbag._utils.problems import Problem, fail, raise_errors
from unbag.aggregates import LabelProportions
from unbag.data.columns import is_missing
from unbag.data.frames import EncodedRows
from unbag.data.groups import Groups
from unbag.persistence.run_folder import Run
from unbag.tables.cells import label_texts
from unbag.tables.checking import OF_COLUMNS, as_problems, examine
from unbag.tables.disk import encode_in_memory, encode_on_disk
from unbag.tables.ids import find
from unbag.tables.load import LoadedTables, load_tables
from unbag.tables.options import RENAMED, Plan
from unbag.tables.plan import FILES, NETWORK, PLAN, SOURCE, TRAINING, check_keys, make_plan
from unbag.tables.roles import kinds_of_size
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


@dataclass(frozen=True)
class FitReport:
    """A finished run, its summary, and warnings and notes on it."""

    run: Run
    summary: dict[str, Any]
    problems: list[Problem]
    resumed: bool


def read_tables(instances: str | Path, groups: str | Path, **options: Any) -> Tables:
    r"""Read a file of instances and one of observations as ``unbag fit`` does, ready for the estimator.

    Parameters
    ----------
    instances
        One row per instance: CSV, Parquet, or a folder of Parquet files.
    groups
        One row per group, pair or triplet, with its observation.
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
    check_keys(options, {**SOURCE, **PLAN, **{name: FILES[name] for name in ("published", "also")}}, "read_tables")
    plan = make_plan({"instances": instances, "groups": groups, **options})
    loaded, problems = _read_plan(plan, in_memory=True)
    for problem in problems:
        if problem.severity == "warning":
            warnings.warn(str(problem), UnbagWarning, stacklevel=2)
    return _as_tables(loaded, problems)


def _read_plan(plan: Plan, *, in_memory: bool = False) -> tuple[LoadedTables, list[Problem]]:
    """Return the files of a plan, and warnings and notes; raise for errors."""
    loaded = load_tables(plan, in_memory=in_memory)
    for table in loaded.observed:
        if not table.columns.certain:
            kinds = " or ".join(kind.name for kind in kinds_of_size(table.columns.kind.size))
            raise fail(f"this may be {kinds}; name the kind with --aggregate", table.table.file)
    _, problems = examine(loaded)
    raise_errors(problems)
    return loaded, problems


def _as_tables(loaded: LoadedTables, problems: list[Problem], X: Any = None) -> Tables:
    """Return files in the form that the estimator accepts; labels to learn from are a further set of observations.

    ``X`` contains the encoded rows, if they are encoded already.
    """
    plan = loaded.plan
    sets: list[Any] = [(table.aggregate, table.checked, None, table.source.rates) for table in loaded.observed]
    if loaded.learned_labels is not None:
        labels, rows = loaded.learned_labels
        groups_of_one = Groups.from_tuples(torch.from_numpy(rows)[:, None], n_rows=len(loaded.instances))
        places = find(pa.array(labels), pa.array(loaded.classes))
        counts = one_hot(torch.from_numpy(places), len(loaded.classes))
        observations = Observations(LabelProportions(), groups_of_one, counts, len(loaded.classes))
        sets.append((observations.aggregate, observations, None, None))
    aggregate, y, groups, sampling = sets[0] if len(sets) == 1 else map(list, zip(*sets, strict=True))
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
    names, rows_with_names = loaded.labels or (None, None)
    return Tables(X, y, groups, parameters, names, rows_with_names, loaded.subjects, loaded.instances.data, problems)


def fit_tables(
    plan: Plan,
    run: Run,
    *,
    force: bool = False,
    verbose: bool = False,
    rows: Path | None = None,
    on_read: Callable[[LoadedTables], None] = lambda loaded: None,
) -> FitReport:
    """Fit a classifier to the files of a plan, and save it in the folder of a run.

    An unfinished run of the same plan is resumed where training has saved checkpoints; ``force`` replaces a finished
    run, or a run of another plan. ``rows`` is the folder for rows that stay on disk, if the plan has none, by default
    beside the run. ``on_read`` is called when files were read, before training.
    """
    from unbag.estimators import AggregateClassifier  # noqa: PLC0415 (slow to import)
    from unbag.report import summarise  # noqa: PLC0415
    from unbag.report.overview import describe_failures  # noqa: PLC0415

    with run.opened(plan.as_dict(), force=force) as resumed:
        loaded, problems = _read_plan(plan)
        if loaded.on_disk:
            X, loaded, position = encode_on_disk(loaded, plan.disk or rows or run.rows)
            problems.append(Problem("note", f"rows are read from {X.rows.paths[0].parent}", loaded.instances.file))
        else:
            X, position = encode_in_memory(loaded), np.arange(len(loaded.instances))
        data, inputs = _as_tables(loaded, problems, X), _describe_inputs(loaded)
        clf = AggregateClassifier(**data.parameters, **plan.training.parameters(run.checkpoint), verbose=int(verbose))
        on_read(loaded)
        with run.training(plan.as_dict(), inputs, resumed=resumed), warnings.catch_warnings():
            warnings.simplefilter("ignore", UnbagWarning)  # they are among the problems
            with _options_named():
                clf.fit(X, data.y, data.groups, subjects=data.subjects)
        if plan.names is not None:
            _name_classes(clf, X, loaded, plan.names, position)
        clf.set_params(verbose=0, **({} if clf.training is None else {"training__checkpoint": None}))
        clf.save(run.model, overwrite=True)
        known = {*OF_COLUMNS, *(finding.kind for findings in loaded.findings for finding in findings)}
        known.add("worse_than_constant")  # which describe_failures says without figures
        problems += as_problems([finding for finding in clf.diagnosis_ if finding.kind not in known])
        summary = summarise(
            clf,
            X,
            data.y,
            data.groups,
            title=f"{plan.instances.stem} from {', '.join(source.file.stem for source in plan.sources)}",
            inputs=_as_sentences(inputs) | {"features made": len(clf.get_feature_names_out())},
            labels=data.labels,
            labelled_rows=data.labelled_rows,
            problems=problems,
        )
        write_atomic(run.summary, json.dumps(summary, indent=1).encode())
        run.finish(plan.as_dict(), inputs)
    problems += [Problem("warning", message) for message in describe_failures(summary)]
    return FitReport(run, summary, problems, resumed and plan.training.network is not None)


@contextmanager
def _options_named() -> Iterator[None]:
    """Name the option of the command line in errors about a parameter of the estimator."""
    try:
        yield
    except ValueError as error:
        match = re.match(r"(\w+)(=| must )", str(error))
        name = match and RENAMED.get(match[1], match[1])
        if match is None or name not in {**TRAINING, **NETWORK}:
            raise
        raise fail(f"--{name.replace('_', '-')}{str(error)[match.end(1) :]}") from error


def _describe_inputs(loaded: LoadedTables) -> dict[str, Any]:
    """Return where the data come from, for ``run.json``."""

    def known(**values: Any) -> dict[str, Any]:
        return {name: value for name, value in values.items() if value is not None}

    plan, columns = loaded.plan, loaded.columns
    observations = [
        {
            "file": table.table.file,
            "aggregate": table.columns.aggregate,
            "columns": list(table.columns.keys),
            "used": len(table.source_rows),
            "read": [read._asdict() for read in table.read],
            **known(weight=table.columns.weight, sampling=table.source.sampling and list(table.source.sampling)),
        }
        for table in loaded.observed
    ]
    shares = {"class shares": plan.class_shares and ", ".join(plan.class_shares)}
    return {
        "instances": loaded.instances.file,
        "rows": len(loaded.instances),
        **{name: getattr(columns, name) for name in ("id", "group", "label")},
        **known(subject=columns.subject, labelled=plan.labelled, **shares),
        "features": list(columns.features),
        "observations": observations,
        "left out": [str(problem) for problem in loaded.problems if problem.left_out],
    }


def _as_sentences(inputs: dict[str, Any]) -> dict[str, Any]:
    """Return the same for the report."""
    sentences, read = [], []
    for source in inputs["observations"]:
        sentence = f"{source['file']}: {source['aggregate']} by {', '.join(source['columns'])}"
        sentence += f", weighted by {source['weight']}" if "weight" in source else ""
        sentences.append(sentence + (f", sampled at {', '.join(source['sampling'])}" if "sampling" in source else ""))
        for column in source["read"]:
            cells = "1 cell" if column["cells"] == 1 else f"{column['cells']:,} cells"
            read.append(f"{column['column']}: {column['read_as']} ({cells})")
    return {**inputs, "observations": sentences, "columns read as": read}


def _name_classes(clf: Any, X: EncodedRows, loaded: LoadedTables, column: str, position: np.ndarray) -> None:
    texts = label_texts(loaded.instances, column)
    rows = np.flatnonzero(~is_missing(texts))
    if len(rows) == 0:
        raise fail("no row has a class to name the classes by", loaded.instances.file, None, column)
    try:
        clf.name_classes(X.take(position[rows]), np.array(texts.take(pa.array(rows)).to_pylist()))
    except ValueError as error:
        raise fail(str(error), loaded.instances.file, None, column) from error
