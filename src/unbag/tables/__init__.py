"""Read tables of instances and of observations, fit, and write predictions: the engine of the command line."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unbag._utils.problems import TableError as TableError
    from unbag.tables.checking import check_tables as check_tables
    from unbag.tables.files import read_table as read_table
    from unbag.tables.fit import Tables as Tables
    from unbag.tables.fit import fit_tables as fit_tables
    from unbag.tables.plan import make_plan as make_plan
    from unbag.tables.plan import read_config as read_config
    from unbag.tables.predict import disaggregate_table as disaggregate_table
    from unbag.tables.predict import predict_groups_table as predict_groups_table
    from unbag.tables.predict import predict_table as predict_table

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
