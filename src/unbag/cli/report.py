"""``unbag report``, the page of a run, and ``unbag demo``, a run to start with."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from unbag._utils.files import raise_if_input, write_atomic
from unbag._utils.terminal import Terminal, visible
from unbag.cli.shared import RunFolder, check_writable, plain_errors
from unbag.cli.tables_shown import make_table
from unbag.persistence.run_folder import REPORT, SUMMARY, Run

OutFile = Annotated[
    Path | None, typer.Option("--out", help="Where to write the page.", show_default=f"{REPORT} in the folder")
]
OutFolder = Annotated[Path, typer.Option("--out", help="The folder to write the report to.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the groups and of the models.")]


def report(ctx: typer.Context, run: RunFolder, out: OutFile = None) -> None:
    """Make one HTML page of a run: its data, quality and limitations."""
    with plain_errors(debug=ctx.obj):
        from unbag._utils.problems import failing  # noqa: PLC0415 (numpy is slow to import)
        from unbag.report import check_format  # noqa: PLC0415

        folder = Run(run)
        out = folder.report if out is None else out
        summary = folder.read_summary()
        with failing(str(folder.summary)):
            check_format(summary)
        raise_if_input(out, folder.inputs)
        _write_page(summary, out)


def demo(ctx: typer.Context, out: OutFolder = Path("unbag-demo"), seed: Seed = 0) -> None:
    """Learn to read digits from counts in groups of six, and compare with other methods, in a minute or two."""
    with plain_errors(debug=ctx.obj):
        _check_folder(out)
        progress = Terminal(stderr=True, highlight=False, markup=False)
        with progress.status("starting"):
            from unbag.cli.demo import run  # noqa: PLC0415
        folder = Run(out)
        summary = run(seed, report=progress.print)
        rows = [(row["method"], f"{row['accuracy']:.1%}", f"{row['seconds']:.0f}") for row in summary["comparison"]]
        title = "Accuracy on new images, which no method has used"
        Terminal().print(make_table(("method", "accuracy", "seconds"), rows, title=title))
        write_atomic(folder.summary, f"{json.dumps(summary, allow_nan=False)}\n".encode())
        _write_page(summary, folder.report)


def _check_folder(folder: Path) -> None:
    """Make the folder; raise an error if it contains anything but the results of an earlier demonstration."""
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file; name a folder with --out")
    others = {path.name for path in folder.iterdir()} if folder.exists() else set()
    if SUMMARY in others:
        from unbag.cli.demo import TITLE  # noqa: PLC0415 (torch is slow to import)

        with suppress(ValueError, KeyError, TypeError):
            if json.loads((folder / SUMMARY).read_bytes())["title"] == TITLE:
                others -= {SUMMARY, REPORT}
    if others:
        raise FileExistsError(f"{folder} has other files, such as {min(others)}; name another folder with --out")
    folder.mkdir(parents=True, exist_ok=True)
    check_writable(Run(folder).report)


def _write_page(summary: dict[str, Any], path: Path) -> None:
    from unbag.report import render  # noqa: PLC0415

    check_writable(path)
    write_atomic(path, render(summary).encode())
    Terminal(soft_wrap=True).print(f"The report is in {visible(path.absolute())}", highlight=False, markup=False)
