"""Options of the command line, made from :mod:`unbag.tables.options`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Annotated, Any, TypeVar

import typer

from unbag.tables.options import Plan, Source, Training, option_of, options_of, plain_type, words_of

OF_FILES = {**options_of(Source), **options_of(Plan)}
OPTIONS = {**OF_FILES, **options_of(Training)}
DEFAULTS = {field.name: field.default for kind in (Source, Plan, Training) for field in fields(kind)}

Command = TypeVar("Command", bound=Callable[..., None])


def takes(names: Iterable[str]) -> Callable[[Command], Command]:
    """Give a command options by name, in place of its ``**options``; those that are not given are None."""

    def decorate(command: Command) -> Command:
        own = inspect.signature(command, eval_str=True).parameters.values()
        first = [one for one in own if one.kind is one.POSITIONAL_OR_KEYWORD]
        last = [one for one in own if one.kind is one.KEYWORD_ONLY]
        made = [last[0].replace(name=name, default=None, annotation=_as_typer(name, OPTIONS[name])) for name in names]
        command.__signature__ = inspect.Signature([*first, *made, *last])  # type: ignore[attr-defined]
        return command

    return decorate


def given(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that were given, lists as lists."""
    return {
        name: split(value) if name in OPTIONS and plain_type(OPTIONS[name]) is tuple else value
        for name, value in options.items()
        if value is not None
    }


def split(names: str) -> list[str]:
    """Return what stands between commas.

    Examples
    --------
    >>> split("age, town")
    ['age', 'town']
    """
    return [name.strip() for name in names.split(",") if name.strip()]


def _as_typer(name: str, hint: Any) -> Any:
    option, kind, default = option_of(hint), plain_type(hint), DEFAULTS.get(name)
    assert option is not None
    flags = [f"--{name.replace('_', '-')}", *([option.flag] if option.flag else [])]
    shown = False if default in (None, ()) or kind is bool else str(default)
    words = words_of(hint)
    extra: dict[str, Any] = {"metavar": "<str,...>"} if kind is tuple else {}
    if words:
        extra = {"parser": partial(_read, kind, words), "metavar": f"<{'|'.join([kind.__name__, *words])}>"}
    info = typer.Option(
        *flags,
        help=f"{option.help}: {', '.join(option.choices)}." if option.choices else option.help,
        rich_help_panel=option.panel,
        show_default=shown,
        autocompletion=(lambda: list(option.choices)) if option.choices else None,
        **extra,
    )
    return Annotated[(str if kind is tuple else kind) | None, info]


def _read(kind: type, words: Sequence[str], text: Any) -> Any:
    """Return the number that was written, or the word in its place."""
    try:
        return text if text in words else kind(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is neither {' nor '.join([f'of type {kind.__name__}', *words])}") from None
