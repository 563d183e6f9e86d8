"""The command line: ``unbag --help``. One module for each command, or for a few that belong together."""

from __future__ import annotations

import atexit
import gc
from importlib.metadata import version
from typing import Annotated

import typer

from unbag.cli import bench, protect, report, reproduce, tables

app = typer.Typer(
    help="Learn a classifier for single instances when only groups of them carry labels.",
    epilog="Example: unbag demo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command(epilog="Example: unbag demo --out unbag-demo")(report.demo)
app.command(epilog="Example: unbag report unbag-demo --out digits.html")(report.report)
app.command(epilog="Example: unbag check people.csv wards.csv")(tables.check)
app.command(epilog="Example: unbag fit people.csv wards.csv --aggregate label_proportions --out run")(tables.fit)
app.command(epilog="Example: unbag predict run people.csv --out predicted.csv")(tables.predict)
app.command(epilog="Example: unbag disaggregate run people.csv wards.csv --out labels.csv")(tables.disaggregate)
app.command(epilog="Example: unbag protect wards.csv --epsilon 1 --out protected.csv")(protect.protect)
app.add_typer(bench.app, name="bench")
app.command(epilog="Example: unbag reproduce --table mil --dataset fox --budget 9m")(reproduce.reproduce)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"unbag {version('unbag')}")
        raise typer.Exit


@app.callback()
def main(
    ctx: typer.Context,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and stop.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where in the code an error comes from.")] = False,
) -> None:
    """Keep what all commands share."""
    ctx.obj = debug
    atexit.register(gc.freeze)  # a last garbage collection would go over all of torch, which takes a third of a second
