"""Read tables of instances and of observations, fit, and write predictions: the engine of the command line."""

from importlib import import_module
from typing import Any

_MODULES = {
    "TableError": "unbag._utils.problems",
    "Tables": "unbag.tables.fit",
    "check_tables": "unbag.tables.checking",
    "disaggregate_table": "unbag.tables.predict",
    "fit_tables": "unbag.tables.fit",
    "make_plan": "unbag.tables.plan",
    "predict_groups_table": "unbag.tables.predict",
    "predict_table": "unbag.tables.predict",
    "read_config": "unbag.tables.plan",
    "read_table": "unbag.tables.files",
}
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: the command line shows its help without numpy and torch."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
