"""The data sets of the experiments: found in the folder that UNBAG_DATA names, or downloaded.

One function for each, ``datasets.mnist()``, and all of them by name, ``datasets.load("mnist")``. A data set is declared
in a module of ``datasets.sets``; a new module there is a new data set here.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules

from unbag._utils.checks import check_choice
from unbag_experiments.datasets import sets
from unbag_experiments.datasets.base import Content as Content
from unbag_experiments.datasets.base import Dataset as Dataset
from unbag_experiments.datasets.base import Layout as Layout
from unbag_experiments.datasets.base import Recipe as Recipe
from unbag_experiments.datasets.download import Remote as Remote


def _find_recipes() -> dict[str, Recipe]:
    modules = [import_module(f"{sets.__name__}.{one.name}") for one in iter_modules(sets.__path__)]
    return {recipe.name: recipe for module in modules for recipe in module.DATASETS}


RECIPES = _find_recipes()
NAMES = tuple(sorted(RECIPES))


def load(name: str) -> Dataset:
    """Load a data set by its name.

    Its files are looked for in the folder that the environment variable UNBAG_DATA names, or else in a cache in the
    home folder: as its authors publish them, or in unbag's own prepared form. What is missing is downloaded into that
    folder, where the authors' files have a known checksum.

    Returns
    -------
    Dataset
        Features, labels of rows or of bags, names of the classes, the official split, the source and its licence.
    """
    return RECIPES[check_choice("name", name, NAMES)].load()


def _function(recipe: Recipe) -> Callable[[], Dataset]:
    def function() -> Dataset:
        return recipe.load()

    function.__name__ = function.__qualname__ = recipe.name.replace("-", "_")
    function.__doc__ = f"Load {recipe.title}.\n\nSource: {recipe.citation}, {recipe.home}\nLicence: {recipe.licence}"
    return function


_FUNCTIONS = {function.__name__: function for function in map(_function, RECIPES.values())}


def __getattr__(name: str) -> Callable[[], Dataset]:
    if name not in _FUNCTIONS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _FUNCTIONS[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *_FUNCTIONS})
