"""``unbag bench``: how fast unbag is on this machine, and how good its default fits are."""

from __future__ import annotations

import json
import platform
import time
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table

from unbag._utils.environment import date, versions
from unbag._utils.files import write_atomic
from unbag._utils.terminal import Terminal, plain
from unbag.cli.shared import Command, CommandGroup, check_writable, plain_errors
from unbag_experiments.cli.choices import choosing_from

app = typer.Typer(
    cls=CommandGroup,
    help="Measure how fast unbag is on this machine, and how good its default fits are.",
    no_args_is_help=True,
)

Names = list[str] | None
JsonFile = Annotated[Path | None, typer.Option("--json", help="Also write the results to this file.")]
Threads = Annotated[int, typer.Option(min=1, help="How many threads torch may use.")]
Quick = Annotated[bool, typer.Option("--quick", help="Fewer repetitions: a rough answer within a minute.")]


@app.command(cls=Command, epilog="Example: unbag bench engine --quick --json engine.json")
def engine(ctx: typer.Context, json_file: JsonFile = None, threads: Threads = 1, quick: Quick = False) -> None:
    """Time likelihoods and posteriors against the obvious ways to compute them."""
    _bench("engine", ctx.obj, json_file, threads, quick)


@app.command(cls=Command, epilog="Example: unbag bench training --quick")
def training(ctx: typer.Context, json_file: JsonFile = None, threads: Threads = 1, quick: Quick = False) -> None:
    """Time training steps against plain supervised ones, and replicas against single models."""
    _bench("training", ctx.obj, json_file, threads, quick)


Sets = Annotated[Names, typer.Option("--set", metavar="<str>", help="Only this set")]
Sizes = Annotated[list[int] | None, typer.Option("--size", metavar="<int>", help="Only groups of this size")]
Methods = Annotated[Names, typer.Option("--method", metavar="<str>", help="Only this method")]
Final = Annotated[bool, typer.Option("--final", help="Also the sets that are looked at once, when all is done.")]
Budget = Annotated[str | None, typer.Option(help="Begin nothing that would end after so long: 90s, 9m, 1.5h.")]
Jobs = Annotated[int, typer.Option(min=1, help="How many processes run fits at a time, each on one thread.")]
Results = Annotated[Path, typer.Option(help="The folder of results; what it has is not run again.")]


@app.command(
    cls=choosing_from("unbag_experiments.fits.plan"), epilog="Example: unbag bench fits --set vehicle --budget 9m"
)
def fits(  # noqa: PLR0917 (options are given by name)
    ctx: typer.Context,
    names: Sets = None,
    size: Sizes = None,
    method: Methods = None,
    draws: Annotated[
        int | None,
        typer.Option(
            min=1,
            show_default="3",
            help="How often to draw the rows and groups of tables.",
        ),
    ] = None,
    final: Annotated[bool, typer.Option("--final", help="Also the tables by which nothing is chosen.")] = False,
    budget: Budget = None,
    results: Results = Path("results"),
    threads: Threads = 1,
    jobs: Jobs = 1,
    summary: Annotated[bool, typer.Option("--summary", help="Print what the folder has; run nothing.")] = False,
    render: Annotated[
        bool, typer.Option("--render", help="Write what the folder has to docs/defaults.md; run nothing.")
    ] = False,
) -> None:
    """Fit tables by default and by single methods, and save how accurate and how fast each fit is.

    Several processes may share the folder of results. Data sets are found in the folder that UNBAG_DATA names.

    --set, --size and --method may be given several times. --method release is the default fit of an earlier version,
    whose package is in the folder that UNBAG_RELEASE names.
    """
    if summary:
        with plain_errors(debug=ctx.obj):
            lines = import_module("unbag_experiments.fits.runner").read(results)
            typer.echo(import_module("unbag_experiments.fits.page").summarise(lines))
        return
    chosen = {"sets": names or (), "sizes": size or (), "methods": method or (), "draws": draws, "final": final}
    _fill("fits", ctx.obj, chosen, results, budget, threads, render, jobs)


@app.command(
    cls=choosing_from("unbag_experiments.published.plan"), epilog="Example: unbag bench published --final --budget 25m"
)
def published(  # noqa: PLR0917 (options are given by name)
    ctx: typer.Context,
    names: Sets = None,
    size: Sizes = None,
    method: Methods = None,
    draws: Annotated[int, typer.Option(min=1, help="How often to draw rows, groups and noise.")] = 5,
    final: Final = False,
    budget: Budget = None,
    results: Results = Path("results"),
    threads: Threads = 1,
    render: Annotated[
        bool, typer.Option("--render", help="Write what the folder has to docs/published.md; run nothing.")
    ] = False,
) -> None:
    """Learn from exact, rounded, suppressed and noisy counts, by their likelihood, after repair and by matched shares.

    Several processes may share the folder of results. Data sets are found in the folder that UNBAG_DATA names.

    --set, --size and --method may be given several times.
    """
    chosen = {"sets": names or (), "sizes": size or (), "methods": method or (), "draws": draws, "final": final}
    _fill("published", ctx.obj, chosen, results, budget, threads, render)


def _fill(  # noqa: PLR0917 (what the options of two commands say)
    table: str,
    debug: bool,
    chosen: dict[str, Any],
    results: Path,
    budget: str | None,
    threads: int,
    render: bool,
    jobs: int = 1,
) -> None:
    start = time.monotonic()  # waiting for torch is part of the budget
    with plain_errors(debug=debug):
        if render:
            import_module(f"unbag_experiments.{table}.page").write(results, Path("docs"))
            return
        cells = import_module(f"unbag_experiments.{table}.plan").select(**chosen)
        runner = import_module(f"unbag_experiments.{table}.runner")
        if jobs > 1:
            ended = runner.fill_in_processes(cells, results, jobs=jobs, budget=budget, start=start)
        else:
            import_module("torch").set_num_threads(threads)
            progress = Terminal(highlight=False, markup=False, soft_wrap=True)
            ended = runner.fill(cells, results, budget=budget, start=start, tell=progress.print)
        if ended["failed"]:
            raise typer.Exit(1)


def _bench(name: str, debug: bool, json_file: Path | None, threads: int, quick: bool) -> None:
    with plain_errors(debug=debug):
        if json_file is not None:
            check_writable(json_file)
        benchmark = import_module(f"unbag_experiments.benchmarks.{name}")
        progress = Terminal(stderr=True, style="dim", highlight=False, markup=False)
        results = benchmark.run(threads=threads, quick=quick, report=progress.print)
        _show(results, threads)
        if json_file is not None:
            made_by = {
                "date": date(),
                "versions": versions(),
                "machine": platform.machine(),
                "threads": threads,
                "quick": quick,
            }
            report = json.dumps({**made_by, "results": results}, indent=2)
            write_atomic(json_file, f"{report}\n".encode())


def _show(results: list[dict[str, Any]], threads: int) -> None:
    """Print the table, and below it the notes, which would make its rows hard to follow."""
    title = f"median milliseconds on {threads} {'thread' if threads == 1 else 'threads'}"
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1))
    table.add_column("case")
    for heading in ("unbag", "other", "ratio"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("target", max_width=18)
    table.add_column("met", no_wrap=True)
    for row in results:
        table.add_row(
            plain(row["case"]) + (f"\n[dim]  against {plain(row['reference'])}" if row["reference"] else ""),
            _short(row["unbag_ms"]),
            _short(row["reference_ms"]),
            _short(row["ratio"]),
            _short(row["target"]),
            {True: "[green]yes", False: "[red]no", None: ""}[row["met"]],
        )
    console = Terminal()
    console.print(table)
    for row in results:
        if row["note"]:
            console.print(f"[bold]{plain(row['case'])}[/bold]: {plain(row['note'])}", highlight=False)


def _short(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.3g}" if isinstance(value, float) else plain(str(value))
