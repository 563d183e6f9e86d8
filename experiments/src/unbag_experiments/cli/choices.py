"""Commands whose help lists what a plan offers to choose from."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from typer.core import TyperOption

from unbag.cli.shared import Command


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
