"""The command line: ``unbag --help``. One module for each command, or for a few that belong together."""

from __future__ import annotations

import atexit
import gc
import inspect
import re
from typing import Annotated

import typer

from unbag._utils.version import __version__
from unbag.cli import report, tables
from unbag.cli.shared import Command, Commands

app = typer.Typer(
    cls=Commands,
    help="Learn a classifier of individual rows from labels, counts or comparisons of groups of rows.",
    epilog="Example: unbag demo",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command, example in (
    (report.demo, "unbag demo --out unbag-demo"),
    (tables.check, "unbag check people.csv wards.csv"),
    (tables.fit, "unbag fit people.csv wards.csv --aggregate label_proportions --out run"),
    (report.report, "unbag report unbag-demo --out digits.html"),
    (tables.predict, "unbag predict run people.csv --out predicted.csv"),
    (tables.disaggregate, "unbag disaggregate run people.csv wards.csv --out labels.csv"),
    (tables.protect, "unbag protect wards.csv --epsilon 1 --out protected.csv"),
):
    text = re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.getdoc(command) or "")  # paragraphs fill the width of the terminal
    app.command(cls=Command, help=text, epilog=f"Example: {example}", rich_help_panel="Your data")(command)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"unbag {__version__}")
        raise typer.Exit


@app.callback()
def main(
    ctx: typer.Context,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Store the options that all commands share."""
    ctx.obj = debug
    atexit.register(gc.freeze)  # a last garbage collection would go over all of torch, which takes a third of a second
