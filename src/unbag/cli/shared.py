"""Shared by all commands: errors in one sentence, and no work whose result cannot be written."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from unbag._utils import plugins
from unbag._utils.terminal import Terminal, plain
from unbag.persistence.run_folder import RunError
from unbag.tables.options import REMOVED


@contextmanager
def plain_errors(debug: bool) -> Iterator[None]:
    """Turn an error into a sentence on stderr and exit code 2, unless the caller wants to see where it came from."""
    try:
        yield
    except typer.Exit:  # all was said
        raise
    except Exception as error:
        console = Terminal(stderr=True, soft_wrap=True, highlight=False)
        if debug:
            console.print(traceback.format_exc(), markup=False)
            raise typer.Exit(1) from error
        from unbag._utils.problems import TableError  # noqa: PLC0415 (only where something went wrong)

        console.print(f"[red]{plain(str(error) or type(error).__name__)}[/red]")
        if not isinstance(error, OSError | RunError | TableError):  # those say where they come from
            console.print("To see where this comes from, run: unbag --debug ...")
        raise typer.Exit(2) from error


def check_writable(path: Path) -> None:
    """Refuse a file that cannot be written before the work is done that should fill it."""
    folder = path.absolute().parent
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name a file in it, for example {path / 'engine.json'}")
    if not folder.is_dir():
        raise FileNotFoundError(f"the folder {folder} does not exist; make it first or name a file elsewhere")
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"the folder {folder} is read-only; name a file elsewhere")


class _Switches:
    """Show no type for options that take no value."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return arguments and options, those of help too."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for one in params:
            if getattr(one, "is_flag", False):
                one.metavar = ""
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
    """All commands: those of unbag, and those that installed packages add."""

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
        """Find the command that is to run; where it is part of a package that is not installed, name the package."""
        if args[0] in plugins.EXPERIMENTS[plugins.COMMANDS] and self.get_command(ctx, args[0]) is None:
            message = plugins.how_to_install(f"unbag {args[0]}")
            Terminal(stderr=True, soft_wrap=True, highlight=False).print(f"[red]{plain(message)}[/red]")
            raise typer.Exit(2)
        return super().resolve_command(ctx, args)


def choosing_from(plan: str) -> type[Command]:
    """Return a kind of command whose help ends options with what the plan in a module, slow to import, lets choose."""

    class Choosing(Command):
        def format_help(self, ctx: Any, formatter: Any) -> None:
            for name, choices in import_module(plan).choices().items():
                for option in (one for one in self.params if isinstance(one, TyperOption)):
                    if f"--{name}" in option.opts:
                        option.help = f"{str(option.help).partition(':')[0]}: {', '.join(choices)}."
            super().format_help(ctx, formatter)

    return Choosing
