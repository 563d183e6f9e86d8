"""Commands, models and checks of other installed packages, and modules that have another name or have moved."""

from functools import cache
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any

COMMANDS, MODELS, CHECKS = "unbag.commands", "unbag.models", "unbag.checks"
"""Groups of entry points, each with a name and a value: a :class:`typer.Typer`; a function from the shape of a row and
the number of classes to a module; a function that :func:`unbag.diagnostics.register_check` registers."""

EXPERIMENTS = {COMMANDS: ("bench", "reproduce"), MODELS: ("densenet", "lenet")}
"""Names that the package unbag-experiments adds; errors mention it where it is not installed."""

PUBLIC_MODULES = {
    "losses": "unbag.objectives.losses",
    "metrics": "unbag.estimators.metrics",
    "models": "unbag.learners.architectures",
}
"""Public names of modules, and where they are."""

_MOVED = ("baselines", "benchmarks", "datasets", "experiments")


@cache  # a search through all installed packages
def names(group: str) -> tuple[str, ...]:
    """Return the names that installed packages add to a group."""
    return tuple(sorted({entry.name for entry in entry_points(group=group)}))


def load(group: str, name: str) -> Any:
    """Import what an installed package adds to a group under a name; None where there is nothing of that name."""
    found: EntryPoint | None = next(iter(entry_points(group=group, name=name)), None)
    return None if found is None else found.load()


def how_to_install(name: str) -> str:
    """Return the sentence of an error about something that another package adds."""
    return f"{name} is part of the package unbag-experiments; install it with: pip install unbag-experiments"


class _Alias:
    """Loader that returns a module with another name."""

    def __init__(self, target: str) -> None:
        self._target = target

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(self._target)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import system has set that of the alias


class MovedModules:
    """Finder of public modules; for those that were part of unbag until 0.2.0, it raises an error with the new name."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Return how to import a module, None, or raise an error for a module that has moved."""
        package, _, module = name.partition(".")
        if package == "unbag" and module in PUBLIC_MODULES:
            return ModuleSpec(name, _Alias(PUBLIC_MODULES[module]))  # type: ignore[arg-type]  # has both methods
        if package == "unbag" and module in _MOVED:
            new = "unbag_experiments" + (f".{module}" if module != "experiments" else "")
            raise ModuleNotFoundError(f"{how_to_install(name)}, and import {new}", name=name)
        return None
