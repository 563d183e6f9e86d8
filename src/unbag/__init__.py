"""Learn a classifier for single instances when only groups of them carry labels."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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
from unbag.findings import Finding as Finding
from unbag.findings import UnbagWarning as UnbagWarning
from unbag.groups import Groups as Groups
from unbag.risks import NegativeLogLikelihood as NegativeLogLikelihood
from unbag.risks import NoisyLikelihood as NoisyLikelihood
from unbag.risks import UnbiasedRisk as UnbiasedRisk
from unbag.targets import target as target
from unbag.version import __version__ as __version__

if TYPE_CHECKING:
    from unbag.estimator import AggregateClassifier as AggregateClassifier
    from unbag.fit_diagnosis import DivergenceWarning as DivergenceWarning
    from unbag.saving import load as load
    from unbag.tables.read_tables import read_tables as read_tables

__all__ = [
    "Aggregate",
    "AggregateClassifier",
    "AtLeast",
    "CountOf",
    "DivergenceWarning",
    "Evidence",
    "Finding",
    "FromFold",
    "FromFunction",
    "Groups",
    "ImpossibleObservation",
    "LabelProportions",
    "Majority",
    "MultipleInstance",
    "NegativeLogLikelihood",
    "Noisy",
    "NoisyLikelihood",
    "OrdinalRank",
    "OrdinalTriplet",
    "PairwiseSimilarity",
    "PossibleMembers",
    "PublishedCounts",
    "TripletComparison",
    "UnbagWarning",
    "UnbiasedRisk",
    "diagnose",
    "load",
    "read_tables",
    "target",
]


# These need scikit-learn, which takes about as long to import as everything else together: only when asked for.
_LATE = {
    "AggregateClassifier": "unbag.estimator",
    "DivergenceWarning": "unbag.fit_diagnosis",
    "load": "unbag.saving",
    "read_tables": "unbag.tables.read_tables",
}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LATE[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATE})
