"""The summary of a run, from the folder that holds it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from unbag.files import read_regular
from unbag.report.page import check_format
from unbag.tables.runs import SUMMARY, Run


def read_summary(run: Path) -> dict[str, Any]:
    """Return the summary of a finished run, or say why there is none to be had."""
    if not run.exists():
        raise FileNotFoundError(f"{run} does not exist; give the folder of a run, as unbag fit --out has written it")
    if not run.is_dir():
        raise NotADirectoryError(f"{run} is a file; give the folder of a run, as unbag fit --out has written it")
    of_fit = Run(run)
    content = of_fit.read_finished() if of_fit.head.exists() else None  # unbag demo leaves a summary alone
    if not (run / SUMMARY).exists():
        raise FileNotFoundError(
            f"{run} is no run of unbag: {SUMMARY} is missing; give a folder as unbag fit --out has written it"
        )
    summary = _read(run / SUMMARY)
    try:
        check_format(summary)
    except ValueError as error:
        raise ValueError(f"{run / SUMMARY}: {error}") from error
    if content is not None:
        of_fit.check_files(content)
    return summary


def files_read(run: Path) -> list[Path]:
    """Return the files of a run that a report must not be written over."""
    of_fit = Run(run)
    return of_fit.inputs if of_fit.head.exists() else [of_fit.summary]


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(read_regular(path))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {error}; make it again with unbag fit --force") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} is not as unbag writes it; make it again with unbag fit --force")
    return content
