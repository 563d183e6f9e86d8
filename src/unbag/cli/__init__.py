"""The command line: ``unbag --help``. One module for each command, or for a few that belong together."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from unbag.cli import bench

# torch, and whatever needs it, is imported inside the commands, so that --help does not wait for it.

app = typer.Typer(
    help="Learn a classifier for single instances when only groups of them carry labels.",
    epilog="Example: unbag bench engine --quick",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(bench.app, name="bench")


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
