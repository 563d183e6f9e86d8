"""``unbag reproduce``: the paper's tables, run anew."""

from __future__ import annotations

import time
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from unbag.cli.shared import Command, CommandGroup, plain_errors
from unbag_experiments.cli.choices import choosing_from


class Commands(CommandGroup):
    """Commands of which ``run`` is meant where options come first; flags that became commands are refused."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the name of a command and what follows it."""
        for name in ("list", "render", "smoke"):
            if f"--{name}" in args:
                ctx.fail(f"--{name} has become a command: unbag reproduce {name}")
        if args and args[0].startswith("-") and args[0] not in ctx.help_option_names:
            args = ["run", *args]
        return super().parse_args(ctx, args)


OfPlan = choosing_from("unbag_experiments.plan")
app = typer.Typer(
    cls=Commands,
    help="Run the paper's experiments anew, and compare.",
    no_args_is_help=True,
)

Names = list[str] | None
Table = Annotated[Names, typer.Option(metavar="<str>", help="Only this table")]
DataSet = Annotated[Names, typer.Option(metavar="<str>", help="Only this data set")]
Method = Annotated[Names, typer.Option(metavar="<str>", help="Only this method")]
Problem = Annotated[Names, typer.Option(metavar="<str>", help="Only this kind of observation")]
Protocol = Annotated[Names, typer.Option(metavar="<str>", help="Only this protocol")]
Groups = Annotated[
    list[int] | None, typer.Option(metavar="<int>", help="Only this number of groups, where a table compares them.")
]
Trials = Annotated[
    int | None, typer.Option(min=1, help="Only the first trials of each cell.", show_default="all that are planned")
]
Epochs = Annotated[
    int | None,
    typer.Option(min=1, help="Epochs in place of the plan's, into results/epochs-N.", show_default="the plan's"),
]
Results = Annotated[
    Path | None, typer.Option(help="The folder of results; what it has is not run again.", show_default="results")
]


@app.command("list", cls=OfPlan, epilog="Example: unbag reproduce list --table mil")
def list_cells(  # noqa: PLR0917 (options are given by name)
    ctx: typer.Context,
    table: Table = None,
    dataset: DataSet = None,
    method: Method = None,
    problem: Problem = None,
    protocol: Protocol = None,
    groups: Groups = None,
    trials: Trials = None,
    epochs: Epochs = None,
    results: Results = None,
) -> None:
    """List the cells of the tables, the most important first, and how far they are.

    Options that choose cells, down to --groups, may be given several times.
    """
    with plain_errors(debug=ctx.obj):
        cells = _select(table, dataset, method, problem, protocol, groups, epochs)
        overview = import_module("unbag_experiments.overview")
        overview.show_list(cells, overview.folder_for(results, epochs), trials=trials)


@app.command(cls=OfPlan, epilog="Example: unbag reproduce run --table mil --dataset fox --budget 9m")
def run(  # noqa: PLR0917 (as above)
    ctx: typer.Context,
    table: Table = None,
    dataset: DataSet = None,
    method: Method = None,
    problem: Problem = None,
    protocol: Protocol = None,
    groups: Groups = None,
    trials: Trials = None,
    seed: Annotated[
        list[int] | None,
        typer.Option(metavar="<int>", min=0, help="The seed of a single trial of each cell."),
    ] = None,
    epochs: Epochs = None,
    device: Annotated[
        str | None, typer.Option(metavar="cpu|cuda", help="Where to train.", show_default="a GPU where there is one")
    ] = None,
    budget: Annotated[str | None, typer.Option(help="Stop with everything saved after so long: 90s, 9m, 1.5h.")] = None,
    results: Results = None,
) -> None:
    """Run what is missing of the tables, the most important first, and save every finished trial.

    A run that was stopped goes on where it was. Data sets are found in the folder that UNBAG_DATA names.

    Options that choose cells, down to --groups, and --seed may be given several times.
    """
    start = time.monotonic()  # waiting for torch is part of the budget
    with plain_errors(debug=ctx.obj):
        cells = _select(table, dataset, method, problem, protocol, groups, epochs)
        folder = import_module("unbag_experiments.overview").folder_for(results, epochs)
        options = {"trials": trials, "seeds": seed or (), "device": device, "budget": budget}
        _exit(import_module("unbag_experiments.commands").run(cells, folder, **options, start=start))


@app.command(cls=Command, epilog="Example: unbag reproduce render")
def render(ctx: typer.Context, results: Results = None) -> None:
    """Write the comparison with the paper to the folder docs."""
    with plain_errors(debug=ctx.obj):
        folder = import_module("unbag_experiments.overview").folder_for(results, None)
        import_module("unbag_experiments.render").write(folder, Path("docs"))


@app.command(cls=OfPlan, epilog="Example: unbag reproduce smoke --table similarity_noinit")
def smoke(  # noqa: PLR0917 (as above)
    ctx: typer.Context,
    table: Table = None,
    dataset: DataSet = None,
    method: Method = None,
    problem: Problem = None,
    protocol: Protocol = None,
    groups: Groups = None,
) -> None:
    """Run every cell for a moment, on tiny made-up data, and keep nothing.

    Options may be given several times.
    """
    with plain_errors(debug=ctx.obj):
        cells = _select(table, dataset, method, problem, protocol, groups)
        _exit(import_module("unbag_experiments.commands").run_smoke(cells))


def _select(  # noqa: PLR0917 (in the order of the options)
    tables: Names,
    names: Names,
    methods: Names,
    problems: Names,
    protocols: Names,
    groups: list[int] | None,
    epochs: int | None = None,
) -> Any:
    filters = {"tables": tables, "names": names, "methods": methods, "problems": problems, "protocols": protocols}
    chosen = {name: one or () for name, one in {**filters, "groups": groups}.items()}
    return import_module("unbag_experiments.plan").select(**chosen, epochs=epochs)


def _exit(summary: Any) -> None:
    if summary.failed:
        raise typer.Exit(1)
