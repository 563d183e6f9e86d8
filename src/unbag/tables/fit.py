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
import torch

from unbag._utils.files import write_atomic
from unbag._utils.findings import UnbagWarning
from unbag._utils.problems import Problem, fail
from unbag.data.columns import Table, is_missing
from unbag.data.frames import adopt_preparation
from unbag.persistence.run_folder import Run
from unbag.tables.checking import as_problems, examine_rows
from unbag.tables.disk import PreparedRows, prepare_on_disk
from unbag.tables.ids import label_texts
from unbag.tables.load import Gathered
from unbag.tables.observations import Observed
from unbag.tables.options import Plan, Source
from unbag.tables.read_tables import as_tables, read_plan


@dataclass(frozen=True)
class Learned:
    """A finished run, in short."""

    run: Run
    summary: dict[str, Any]
    problems: list[Problem]
    """Warnings and notes; there are no errors in a run."""
    resumed: bool


def fit_tables(
    plan: Plan,
    run: Run,
    *,
    force: bool = False,
    verbose: bool = False,
    rows: Path | None = None,
    say_read: Callable[[Gathered], None] = lambda gathered: None,
) -> Learned:
    r"""Learn from the files of a plan, and keep everything in the folder of a run.

    An interrupted call leaves an unfinished run, and the same call goes on with it. With ``force``, a finished run, or
    one of another plan, is replaced. ``rows`` is a folder for rows that stay on disk, where the plan names none.
    ``say_read`` is told how the files were read, before training.

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
    >>> plan = make_plan({**files, "model": "linear", "epochs": 2})
    >>> learned = fit_tables(plan, Run(folder / "run"))
    >>> learned.run.read()["status"], learned.summary["data"]["rows"]
    ('finished', 24)
    """
    with run.opened(plan.as_dict(), force=force) as resumed:
        from unbag.estimators import AggregateClassifier  # noqa: PLC0415 (slow to import)
        from unbag.learners.choice import is_network  # noqa: PLC0415
        from unbag.report import summarise  # noqa: PLC0415
        from unbag.report.overview import describe_failures  # noqa: PLC0415

        gathered, looked, problems = read_plan(plan)
        of_rows = examine_rows(gathered, looked)
        del looked
        on_disk: PreparedRows | None = None
        if gathered.on_disk:
            on_disk = prepare_on_disk(gathered, plan.disk or rows or run.rows)
            gathered = on_disk.gathered
            problems.append(Problem("note", f"rows are read from {on_disk.folder}", gathered.instances.file))
            if plan.training.model == "auto":
                message = "rows are on disk: --model auto is a network, mlp; trees and mixtures need them in memory"
                problems.append(Problem("note", message))
        data = as_tables(gathered, problems, on_disk.rows if on_disk else None)
        inputs = describe_inputs(gathered)
        X, y, groups = data.X, data.y, data.groups
        clf = AggregateClassifier(
            **data.parameters,
            verbose=int(verbose),
            checkpoint=run.checkpoint if is_network(plan.training.model) else None,  # others begin anew
            **plan.training.parameters,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnbagWarning)  # they are among the problems already
            findings = [*(finding for one in gathered.findings for finding in one), *of_rows]
            # What is refused here leaves the folder as it was.
            train = clf._prepare_fit(X, y, groups, findings=findings)
            run.start(plan.as_dict(), inputs, resumed=resumed)
            say_read(gathered)
            before = len(clf.diagnosis_)
            train()
        if plan.names is not None:
            _name_classes(clf, X, gathered.instances, plan.names, on_disk.position if on_disk else None)
        if on_disk:
            adopt_preparation(clf, on_disk.preparation)
        clf.set_params(checkpoint=None, verbose=0)
        clf.save(run.model, overwrite=True)
        summary = summarise(
            clf,
            X,
            y,
            groups,
            title=f"{plan.instances.stem} from {', '.join(one.file.stem for one in plan.sources)}",
            inputs=_in_words(inputs) | {"features made": len(clf.get_feature_names_out())},
            labels=gathered.labels,
            labelled_rows=gathered.labelled_rows,
            problems=problems,
        )
        write_atomic(run.summary, json.dumps(summary, indent=1).encode())
        run.finish(plan.as_dict(), inputs)
        problems += as_problems([*of_rows, *clf.diagnosis_[before:]])
        problems += [Problem("warning", message) for message in describe_failures(summary)]
    return Learned(run, summary, problems, resumed and is_network(plan.training.model))


def describe_inputs(gathered: Gathered) -> dict[str, Any]:
    """Return where the data come from, for people and for later commands."""
    return {
        "instances": gathered.instances.file,
        "rows": len(gathered.instances),
        "id": gathered.columns.id,
        "group": gathered.columns.group,
        "label": gathered.columns.label,
        **({} if gathered.columns.subject is None else {"subject": gathered.columns.subject}),
        **({} if gathered.plan.labelled is None else {"labelled": gathered.plan.labelled}),
        **({} if gathered.plan.class_shares is None else {"class shares": ", ".join(gathered.plan.class_shares)}),
        "features": list(gathered.columns.features),
        "observations": [_describe_source(*one) for one in zip(gathered.observed, gathered.plan.sources, strict=True)],
        "left out": [str(one) for one in gathered.problems if one.left_out],
    }


def _describe_source(one: Observed, source: Source) -> dict[str, Any]:
    sampling = {} if source.sampling is None else {"sampling": list(source.sampling)}
    weight = {} if one.columns.weight is None else {"weight": one.columns.weight}
    return {
        "file": one.table.file,
        "aggregate": one.columns.aggregate,
        "columns": list(one.columns.keys),
        "used": len(one.source_rows),
        "read": [read._asdict() for read in one.read],
        **weight,
        **sampling,
    }


def _in_words(inputs: dict[str, Any]) -> dict[str, Any]:
    """Return the same for people alone."""
    sentences = [
        f"{one['file']}: {one['aggregate']} by {', '.join(one['columns'])}"
        + (f", weighted by {one['weight']}" if "weight" in one else "")
        + (f", chosen by answer at {', '.join(one['sampling'])}" if "sampling" in one else "")
        for one in inputs["observations"]
    ]
    read = [
        f"{read['column']}: {read['read_as']} ({read['cells']:,} {'cell' if read['cells'] == 1 else 'cells'})"
        for one in inputs["observations"]
        for read in one["read"]
    ]
    return {**inputs, "observations": sentences, "columns read as": read}


def _name_classes(clf: Any, X: Any, table: Table, column: str, position: np.ndarray | None) -> None:
    texts = label_texts(table, column)
    rows = np.flatnonzero(~is_missing(texts))
    if len(rows) == 0:
        raise fail("no row has a class to name the classes by", table.file, None, column)
    places = rows if position is None else position[rows]
    some = X.take(pa.array(rows)) if isinstance(X, pa.Table) else X.gather(torch.from_numpy(places))
    try:
        clf.name_classes(some, np.array(texts.take(pa.array(rows)).to_pylist()))
    except ValueError as error:
        raise fail(str(error), table.file, None, column) from error
