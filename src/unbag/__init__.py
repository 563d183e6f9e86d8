"""Learn a classifier for single instances when only groups of them carry labels."""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from unbag.plugins import MovedModules
from unbag.version import __version__ as __version__

if TYPE_CHECKING:
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
    from unbag.checks import ImpossibleObservation as ImpossibleObservation
    from unbag.diagnosis import diagnose as diagnose
    from unbag.estimator import AggregateClassifier as AggregateClassifier
    from unbag.findings import Finding as Finding
    from unbag.findings import UnbagWarning as UnbagWarning
    from unbag.fit_diagnosis import DivergenceWarning as DivergenceWarning
    from unbag.groups import Groups as Groups
    from unbag.risks import NegativeLogLikelihood as NegativeLogLikelihood
    from unbag.risks import NoisyLikelihood as NoisyLikelihood
    from unbag.risks import UnbiasedRisk as UnbiasedRisk
    from unbag.saving import load as load
    from unbag.tables.read_tables import read_tables as read_tables
    from unbag.targets import target as target

# torch and scikit-learn take seconds to import: only when something is asked for that needs them.
_MODULES = {
    "Aggregate": "unbag.aggregates",
    "AggregateClassifier": "unbag.estimator",
    "AtLeast": "unbag.aggregates",
    "CountOf": "unbag.aggregates",
    "DivergenceWarning": "unbag.fit_diagnosis",
    "Evidence": "unbag.aggregates",
    "Finding": "unbag.findings",
    "FromFold": "unbag.aggregates",
    "FromFunction": "unbag.aggregates",
    "Groups": "unbag.groups",
    "ImpossibleObservation": "unbag.checks",
    "LabelProportions": "unbag.aggregates",
    "Majority": "unbag.aggregates",
    "MultipleInstance": "unbag.aggregates",
    "NegativeLogLikelihood": "unbag.risks",
    "Noisy": "unbag.aggregates",
    "NoisyLikelihood": "unbag.risks",
    "OrdinalRank": "unbag.aggregates",
    "OrdinalTriplet": "unbag.aggregates",
    "PairwiseSimilarity": "unbag.aggregates",
    "PossibleMembers": "unbag.aggregates",
    "PublishedCounts": "unbag.aggregates",
    "TripletComparison": "unbag.aggregates",
    "UnbagWarning": "unbag.findings",
    "UnbiasedRisk": "unbag.risks",
    "diagnose": "unbag.diagnosis",
    "load": "unbag.saving",
    "read_tables": "unbag.tables.read_tables",
    "target": "unbag.targets",
}
__all__ = list(_MODULES)
sys.meta_path.append(MovedModules)  # the last finder: only asked for modules that do not exist


def __getattr__(name: str) -> Any:
    """Import what a public name, or the name of a module, stands for."""
    if name in _MODULES:
        value = globals()[name] = getattr(import_module(_MODULES[name]), name)
        return value
    module = f"{__name__}.{name}"
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module or "unbag-experiments" in str(error):
            raise
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
