"""The command line: ``unbag --help``."""

import atexit
import gc
from typing import Annotated

import typer

from unbag._utils.version import __version__
from unbag.cli import commands as commands
from unbag.cli.shared import app as app


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
