"""Fit a classifier to the files of a plan, and keep it with its summary in a run folder."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from unbag._utils.files import write_atomic
from unbag._utils.findings import UnbagWarning
from unbag._utils.problems import Problem, fail
from unbag.data.columns import is_missing
from unbag.data.frames import EncodedRows
from unbag.persistence.run_folder import Run
from unbag.tables.checking import OF_COLUMNS, as_problems
from unbag.tables.disk import encode_in_memory, encode_on_disk
from unbag.tables.ids import label_texts
from unbag.tables.load import LoadedTables
from unbag.tables.options import Plan
from unbag.tables.read_tables import as_tables, read_plan


@dataclass(frozen=True)
class FitReport:
    """A finished run, its summary, and warnings and notes on it."""

    run: Run
    summary: dict[str, Any]
    problems: list[Problem]
    resumed: bool


def fit_tables(
    plan: Plan,
    run: Run,
    *,
    force: bool = False,
    verbose: bool = False,
    rows: Path | None = None,
    on_read: Callable[[LoadedTables], None] = lambda loaded: None,
) -> FitReport:
    r"""Fit a classifier to the files of a plan, and save it in the folder of a run.

    Parameters
    ----------
    plan
        Files, the meaning of their columns, and settings of training.
    run
        The folder; an unfinished run of the same plan is resumed where training has saved checkpoints.
    force
        Replace a finished run, or one of another plan.
    verbose
        Show a progress bar in a terminal.
    rows
        Folder for rows that stay on disk, if the plan has none; by default a folder beside the run.
    on_read
        Called when files were read, before training.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from unbag.tables.plan import make_plan
    >>> folder = Path(tempfile.mkdtemp())
    >>> rows = [f"{ward},{3 * (ward % 2) + place % 2}\n" for ward in range(8) for place in range(3)]
    >>> _ = (folder / "people.csv").write_text("ward,age\n" + "".join(rows))
    >>> counts = [f"{ward},{ward % 2},{3 - ward % 2}\n" for ward in range(8)]
    >>> _ = (folder / "wards.csv").write_text("ward,ill,well\n" + "".join(counts))
    >>> files = {"instances": folder / "people.csv", "groups": folder / "wards.csv"}
    >>> report = fit_tables(make_plan({**files, "model": "linear"}), Run(folder / "run"))
    >>> report.run.read()["status"], report.summary["data"]["rows"]
    ('finished', 24)
    """
    from unbag.estimators import AggregateClassifier  # noqa: PLC0415 (slow to import)
    from unbag.report import summarise  # noqa: PLC0415
    from unbag.report.overview import describe_failures  # noqa: PLC0415

    with run.opened(plan.as_dict(), force=force) as resumed:
        loaded, problems = read_plan(plan)
        if loaded.on_disk:
            X, loaded, position = encode_on_disk(loaded, plan.disk or rows or run.rows)
            problems.append(Problem("note", f"rows are read from {X.rows.paths[0].parent}", loaded.instances.file))
        else:
            X, position = encode_in_memory(loaded), np.arange(len(loaded.instances))
        data = as_tables(loaded, problems, X)
        inputs = describe_inputs(loaded)
        clf = AggregateClassifier(**data.parameters, **plan.training.parameters(run.checkpoint), verbose=int(verbose))
        on_read(loaded)
        with run.training(plan.as_dict(), inputs, resumed=resumed), warnings.catch_warnings():
            warnings.simplefilter("ignore", UnbagWarning)  # they are among the problems
            clf.fit(X, data.y, data.groups, subjects=data.subjects)
        if plan.names is not None:
            _name_classes(clf, X, loaded, plan.names, position)
        clf.set_params(verbose=0, **({} if clf.training is None else {"training__checkpoint": None}))
        clf.save(run.model, overwrite=True)
        known = {*OF_COLUMNS, *(finding.kind for findings in loaded.findings for finding in findings)}
        problems += as_problems([finding for finding in clf.diagnosis_ if finding.kind not in known])
        summary = summarise(
            clf,
            X,
            data.y,
            data.groups,
            title=f"{plan.instances.stem} from {', '.join(source.file.stem for source in plan.sources)}",
            inputs=_as_sentences(inputs) | {"features made": len(clf.get_feature_names_out())},
            labels=loaded.labels,
            labelled_rows=loaded.labelled_rows,
            problems=problems,
        )
        write_atomic(run.summary, json.dumps(summary, indent=1).encode())
        run.finish(plan.as_dict(), inputs)
    problems += [Problem("warning", message) for message in describe_failures(summary)]
    return FitReport(run, summary, problems, resumed and plan.training.network is not None)


def describe_inputs(loaded: LoadedTables) -> dict[str, Any]:
    """Return where the data come from, for ``run.json``."""
    plan, columns = loaded.plan, loaded.columns
    optional = {
        "subject": columns.subject,
        "labelled": plan.labelled,
        "class shares": plan.class_shares and ", ".join(plan.class_shares),
    }
    observations = [
        {
            "file": observed.table.file,
            "aggregate": observed.columns.aggregate,
            "columns": list(observed.columns.keys),
            "used": len(observed.source_rows),
            "read": [read._asdict() for read in observed.read],
            **({} if observed.columns.weight is None else {"weight": observed.columns.weight}),
            **({} if source.sampling is None else {"sampling": list(source.sampling)}),
        }
        for observed, source in zip(loaded.observed, plan.sources, strict=True)
    ]
    return {
        "instances": loaded.instances.file,
        "rows": len(loaded.instances),
        **{name: getattr(columns, name) for name in ("id", "group", "label")},
        **{name: value for name, value in optional.items() if value is not None},
        "features": list(columns.features),
        "observations": observations,
        "left out": [str(problem) for problem in loaded.problems if problem.left_out],
    }


def _as_sentences(inputs: dict[str, Any]) -> dict[str, Any]:
    """Return the same for the report."""
    sentences = [
        f"{source['file']}: {source['aggregate']} by {', '.join(source['columns'])}"
        + (f", weighted by {source['weight']}" if "weight" in source else "")
        + (f", selected by answer at {', '.join(source['sampling'])}" if "sampling" in source else "")
        for source in inputs["observations"]
    ]
    read = [
        f"{read['column']}: {read['read_as']} ({read['cells']:,} {'cell' if read['cells'] == 1 else 'cells'})"
        for source in inputs["observations"]
        for read in source["read"]
    ]
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
