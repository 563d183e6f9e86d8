"""Checks of data before a fit and of models after it; see :mod:`unbag.diagnostics.registry`."""

from unbag.diagnostics import fitted as fitted
from unbag.diagnostics import leakage as leakage
from unbag.diagnostics import observations as observations
from unbag.diagnostics import rows as rows
from unbag.diagnostics import sampling as sampling
from unbag.diagnostics.diagnosis import diagnose as diagnose
from unbag.diagnostics.diagnosis import diagnose_rows as diagnose_rows
from unbag.diagnostics.registry import Context as Context
from unbag.diagnostics.registry import raise_if_fatal as raise_if_fatal
from unbag.diagnostics.registry import register_check as register_check
from unbag.diagnostics.registry import run_checks as run_checks
from unbag.diagnostics.registry import unregister_check as unregister_check
