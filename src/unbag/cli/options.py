"""Options of the commands, made from the models in :mod:`unbag.tables.options`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, TypeVar

import typer

from unbag.tables.options import NetworkOptions, Option, Plan, Protection, Source, Training, options_of

FILE_OPTIONS = {**options_of(Source), **options_of(Plan)}
OPTIONS = {**FILE_OPTIONS, **options_of(Training), **options_of(NetworkOptions)}

PROTECTION = options_of(Protection)

Command = TypeVar("Command", bound=Callable[..., None])


def with_options(options: Mapping[str, Option]) -> Callable[[Command], Command]:
    """Add options to the signature of a command, which receives them as ``**options``; None if not passed."""

    def decorate(command: Command) -> Command:
        parameters = inspect.signature(command, eval_str=True).parameters.values()
        first = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        last = [p for p in parameters if p.kind is p.KEYWORD_ONLY]
        made = [
            last[0].replace(name=name, default=None, annotation=_as_typer(name, option))
            for name, option in options.items()
        ]
        command.__signature__ = inspect.Signature([*first, *made, *last])  # type: ignore[attr-defined]
        return command

    return decorate


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
