"""Shared by all commands: registration, options, errors in one sentence, and checks that results can be written."""

import inspect
import os
import re
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial, wraps
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from unbag._utils import plugins
from unbag._utils.terminal import Terminal, plain
from unbag.persistence.run_folder import RunError
from unbag.tables.options import REMOVED, NetworkOptions, Option, Plan, Source, Training, options_of

FILE_OPTIONS = {**options_of(Source), **options_of(Plan)}
OPTIONS = {**FILE_OPTIONS, **options_of(Training), **options_of(NetworkOptions)}

Function = TypeVar("Function", bound=Callable[..., None])


@contextmanager
def plain_errors(debug: bool) -> Iterator[None]:
    """Print an error as a sentence on stderr and exit with code 2; with ``debug``, print its traceback."""
    try:
        yield
    except (typer.Exit, typer.BadParameter):
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


def command(example: str, options: Mapping[str, Option] = MappingProxyType({})) -> Callable[[Function], Function]:
    """Register a command of :data:`app`, whose errors are printed as sentences.

    It receives ``options`` as ``**options``, None where one was not passed.
    """

    def register(function: Function) -> Function:
        @wraps(function)
        def run(ctx: typer.Context, **arguments: Any) -> None:
            with plain_errors(debug=ctx.obj):
                function(**arguments)

        parameters = inspect.signature(function, eval_str=True).parameters.values()
        first = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        last = [p for p in parameters if p.kind is p.KEYWORD_ONLY]
        made = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_as_typer(name, option))
            for name, option in options.items()
        ]
        context = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
        run.__signature__ = inspect.Signature([context, *first, *made, *last])  # type: ignore[attr-defined]
        text = re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.getdoc(function) or "")  # paragraphs fill the terminal
        app.command(cls=Command, help=text, epilog=f"Example: {example}", rich_help_panel="Your data")(run)
        return function

    return register


def select_options(*names: str) -> dict[str, Option]:
    """Return some options by name."""
    return {name: OPTIONS[name] for name in names}


def passed(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that were passed; those with several values as lists."""
    return {
        name: split(value) if name in OPTIONS and OPTIONS[name].type is tuple else value
        for name, value in options.items()
        if value is not None
    }


def split(names: str) -> list[str]:
    """Split text at commas."""
    return [name.strip() for name in names.split(",") if name.strip()]


def _as_typer(name: str, option: Option) -> Any:
    kind = option.type
    extra: dict[str, Any] = {"metavar": "<str,...>"} if kind is tuple else {}
    if option.words:
        extra = {"parser": partial(_parse, option), "metavar": f"<{'|'.join([kind.__name__, *option.words])}>"}
    help = f"{option.help}: {', '.join(option.choices)}." if option.choices else option.help
    if option.default not in (None, ()) and kind is not bool:
        help += f" Default: {option.default}."
    info = typer.Option(
        f"--{name.replace('_', '-')}",
        *([option.flag] if option.flag else []),
        help=help,
        rich_help_panel=option.panel,
        show_default=False,
        autocompletion=(lambda: list(option.choices)) if option.choices else None,
        **extra,
    )
    return Annotated[(str if kind is tuple else kind) | None, info]


def _parse(option: Option, text: Any) -> Any:
    """Return a number, or a word that may replace it."""
    try:
        return text if text in option.words else option.type(text)
    except ValueError:
        kinds = " nor ".join([f"of type {option.type.__name__}", *option.words])
        raise typer.BadParameter(f"{text!r} is neither {kinds}") from None


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


app = typer.Typer(
    cls=Commands,
    help="Learn a classifier of individual rows from labels, counts or comparisons of groups of rows.",
    epilog="Example: unbag demo",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
