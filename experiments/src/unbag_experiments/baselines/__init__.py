"""The methods of the experiments, behind one interface: UUM, what it is compared with, and the supervised ceiling."""

from importlib import import_module
from pkgutil import iter_modules

from unbag_experiments.baselines.base import Judged as Judged
from unbag_experiments.baselines.base import Method as Method
from unbag_experiments.baselines.base import Task as Task
from unbag_experiments.baselines.base import accuracy as accuracy


def find_methods() -> dict[str, Method]:
    """Return every method of this package by name; a new method is a new module that calls its instance ``METHOD``.

    Examples
    --------
    >>> find_methods()["contrastive"].title
    'Contrastive loss'
    """
    modules = [import_module(f"{__name__}.{one.name}") for one in iter_modules(__path__)]
    methods: dict[str, Method] = {}
    for method in (module.METHOD for module in modules if hasattr(module, "METHOD")):
        if method.name in methods:
            raise ValueError(f"two methods are called {method.name!r}: {methods[method.name]} and {method}; rename one")
        methods[method.name] = method
    return methods


METHODS = find_methods()
"""All methods by the name that tables and results call them."""
