"""Shared by all commands: errors in one sentence, and checks that results can be written."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from unbag._utils import plugins
from unbag._utils.terminal import Terminal, plain
from unbag.persistence.run_folder import RunError
from unbag.tables.options import REMOVED

RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a finished run.")]


@contextmanager
def plain_errors(debug: bool) -> Iterator[None]:
    """Print an error as a sentence on stderr and exit with code 2; with ``debug``, print its traceback."""
    try:
        yield
    except typer.Exit:
        raise
    except Exception as error:
        from unbag._utils.problems import TableError  # noqa: PLC0415 (only where something went wrong)

        if debug:
            Terminal(stderr=True, soft_wrap=True, highlight=False).print(traceback.format_exc(), markup=False)
            raise typer.Exit(1) from error
        print_error(str(error) or type(error).__name__)
        if not isinstance(error, OSError | RunError | TableError):  # those say where they come from
            Terminal(stderr=True).print("To see where this comes from, run: unbag --debug ...", highlight=False)
        raise typer.Exit(2) from error


def print_error(message: str) -> None:
    """Print a sentence on stderr in red."""
    Terminal(stderr=True, soft_wrap=True, highlight=False).print(f"[red]{plain(message)}[/red]")


def check_writable(path: Path) -> None:
    """Raise an error for a file that cannot be written, before its content is computed."""
    folder = path.absolute().parent
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name a file in it")
    if not folder.is_dir():
        raise FileNotFoundError(f"the folder {folder} does not exist; create it, or name a file elsewhere")
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"the folder {folder} is read-only; name a file elsewhere")


class _Switches:
    """Commands whose help shows no type for options without a value."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return arguments and options, those of help too."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if getattr(param, "is_flag", False):
                param.metavar = ""
        return params


class Command(_Switches, TyperCommand):
    """A command of unbag."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command line; for an option of an earlier version, name what replaces it."""
        for word in args:
            option = word.partition("=")[0]
            if option.startswith("--") and (advice := REMOVED.get(option[2:].replace("-", "_"))):
                raise typer.BadParameter(f"{option} was removed: {advice}", ctx)
        return super().parse_args(ctx, args)


class CommandGroup(_Switches, TyperGroup):
    """Commands of unbag below one name."""


class Commands(CommandGroup):
    """All commands: those of unbag, and plug-ins of installed packages."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands, those of unbag first."""
        return [*super().list_commands(ctx), *plugins.names(plugins.COMMANDS)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command by its name, or None."""
        if cmd_name in self.commands or cmd_name not in plugins.names(plugins.COMMANDS):
            return super().get_command(ctx, cmd_name)
        command = typer.main.get_command(plugins.load(plugins.COMMANDS, cmd_name))
        command.name, command.rich_help_panel = cmd_name, "Plug-ins"  # type: ignore[attr-defined]
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find a command; an error names the package that it is part of, if that is not installed."""
        if args[0] in plugins.EXPERIMENTS[plugins.COMMANDS] and self.get_command(ctx, args[0]) is None:
            print_error(plugins.how_to_install(f"unbag {args[0]}"))
            raise typer.Exit(2)
        return super().resolve_command(ctx, args)
