"""``unbag reproduce``: the paper's tables, run anew."""

from __future__ import annotations

import time
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from unbag.cli.shared import plain_errors

Names = list[str] | None


def reproduce(  # noqa: PLR0917 (options are given by name)
    ctx: typer.Context,
    table: Annotated[Names, typer.Option(help="Only this table; may be given several times, as the next five.")] = None,
    dataset: Annotated[Names, typer.Option(help="Only this data set.")] = None,
    method: Annotated[Names, typer.Option(help="Only this method.")] = None,
    problem: Annotated[Names, typer.Option(help="Only this kind of observation.")] = None,
    protocol: Annotated[Names, typer.Option(help="Only this protocol, such as paper or groups_of_64.")] = None,
    groups: Annotated[
        list[int] | None, typer.Option(help="Only this number of groups, where a table compares them.")
    ] = None,
    trials: Annotated[
        int | None, typer.Option(min=1, help="Only the first trials of each cell; if not given, all that are planned.")
    ] = None,
    seed: Annotated[
        list[int] | None,
        typer.Option(min=0, help="The seed of a single trial of each cell; may be given several times."),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(min=1, help="Epochs in place of the plan's; if --results is not given, into results/epochs-N."),
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; if not given, a GPU where there is one.")] = None,
    budget: Annotated[str | None, typer.Option(help="Stop with everything saved after so long: 90s, 9m, 1.5h.")] = None,
    results: Annotated[
        Path | None, typer.Option(help="The folder of results, if not results; what it has is not run again.")
    ] = None,
    smoke: Annotated[bool, typer.Option("--smoke", help="Run every cell for a moment, on tiny made-up data.")] = False,
    list_only: Annotated[bool, typer.Option("--list", help="List the cells and how far they are; run none.")] = False,
    render: Annotated[
        bool, typer.Option("--render", help="Write the comparison with the paper to the folder docs; run nothing.")
    ] = False,
) -> None:
    """Run what is missing of the paper's tables, the most important first, and save every finished trial.

    A run that was stopped goes on where it was. Data sets are found in the folder that UNBAG_DATA names.
    """
    start = time.monotonic()  # waiting for torch is part of the budget
    with plain_errors(debug=ctx.obj):
        overview = import_module("unbag.experiments.overview")
        folder = overview.folder_for(results, epochs)
        if render:
            import_module("unbag.experiments.render").write(folder, Path("docs"))
            return
        cells = import_module("unbag.experiments.plan").select(
            tables=table or (),
            names=dataset or (),
            methods=method or (),
            problems=problem or (),
            protocols=protocol or (),
            groups=groups or (),
            epochs=epochs,
        )
        if list_only:
            overview.show_list(cells, folder, trials=trials)
            return
        commands = import_module("unbag.experiments.commands")
        if smoke:
            _exit(commands.run_smoke(cells))
        else:
            asked = {"trials": trials, "seeds": seed or (), "device": device, "budget": budget}
            _exit(commands.run(cells, folder, **asked, start=start))


def _exit(summary: Any) -> None:
    if summary.failed:
        raise typer.Exit(1)
