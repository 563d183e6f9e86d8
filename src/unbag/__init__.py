"""Predict single rows from aggregated data: totals, group labels, bag labels or comparisons."""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from unbag._utils.plugins import PUBLIC_MODULES, MovedModules
from unbag._utils.version import __version__ as __version__

if TYPE_CHECKING:
    from unbag._utils.checks import ImpossibleObservation as ImpossibleObservation
    from unbag._utils.findings import Finding as Finding
    from unbag._utils.findings import UnbagWarning as UnbagWarning
    from unbag.aggregates import Aggregate as Aggregate
    from unbag.aggregates import AtLeast as AtLeast
    from unbag.aggregates import CountOf as CountOf
    from unbag.aggregates import Evidence as Evidence
    from unbag.aggregates import FromFold as FromFold
    from unbag.aggregates import FromFunction as FromFunction
    from unbag.aggregates import LabelProportions as LabelProportions
    from unbag.aggregates import Majority as Majority
    from unbag.aggregates import MultipleInstance as MultipleInstance
    from unbag.aggregates import Noisy as Noisy
    from unbag.aggregates import OrdinalRank as OrdinalRank
    from unbag.aggregates import OrdinalTriplet as OrdinalTriplet
    from unbag.aggregates import PairwiseSimilarity as PairwiseSimilarity
    from unbag.aggregates import PossibleMembers as PossibleMembers
    from unbag.aggregates import PublishedCounts as PublishedCounts
    from unbag.aggregates import TripletComparison as TripletComparison
    from unbag.data.groups import Groups as Groups
    from unbag.data.targets import target as target
    from unbag.diagnostics.diagnosis import diagnose as diagnose
    from unbag.diagnostics.fitted import DivergenceWarning as DivergenceWarning
    from unbag.estimators import AggregateClassifier as AggregateClassifier
    from unbag.estimators import CrossFitting as CrossFitting
    from unbag.estimators import NetworkTraining as NetworkTraining
    from unbag.objectives.risks import NegativeLogLikelihood as NegativeLogLikelihood
    from unbag.objectives.risks import NoisyLikelihood as NoisyLikelihood
    from unbag.objectives.risks import UnbiasedRisk as UnbiasedRisk
    from unbag.persistence.saved_models import load as load
    from unbag.tables.bags import read_bags as read_bags
    from unbag.tables.fit import read_tables as read_tables

# torch and scikit-learn take seconds to import: only when something is asked for that needs them.
_NAMES = {
    "_utils.checks": "ImpossibleObservation",
    "_utils.findings": "Finding UnbagWarning",
    "aggregates": "Aggregate AtLeast CountOf Evidence FromFold FromFunction LabelProportions Majority MultipleInstance "
    "Noisy OrdinalRank OrdinalTriplet PairwiseSimilarity PossibleMembers PublishedCounts TripletComparison",
    "data.groups": "Groups",
    "data.targets": "target",
    "diagnostics.diagnosis": "diagnose",
    "diagnostics.fitted": "DivergenceWarning",
    "estimators": "AggregateClassifier CrossFitting NetworkTraining",
    "objectives.risks": "NegativeLogLikelihood NoisyLikelihood UnbiasedRisk",
    "persistence.saved_models": "load",
    "tables.bags": "read_bags",
    "tables.fit": "read_tables",
}
_MODULES = {name: f"unbag.{module}" for module, names in _NAMES.items() for name in names.split()}
__all__ = list(_MODULES)
sys.meta_path.append(MovedModules)  # the last finder: only asked for modules that do not exist


def __getattr__(name: str) -> Any:
    """Import what a public name, or the name of a module, stands for."""
    if name in _MODULES:
        value = globals()[name] = getattr(import_module(_MODULES[name]), name)
        return value
    module = PUBLIC_MODULES.get(name, f"{__name__}.{name}")
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module or "unbag-experiments" in str(error):
            raise
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
