"""Learn a classifier for single instances when only groups of them carry labels."""

from unbag.aggregates import Aggregate as Aggregate
from unbag.aggregates import AtLeast as AtLeast
from unbag.aggregates import CountOf as CountOf
from unbag.aggregates import Evidence as Evidence
from unbag.aggregates import FromFold as FromFold
from unbag.aggregates import FromFunction as FromFunction
from unbag.aggregates import LabelProportions as LabelProportions
from unbag.aggregates import Majority as Majority
from unbag.aggregates import MultipleInstance as MultipleInstance
from unbag.aggregates import OrdinalRank as OrdinalRank
from unbag.aggregates import OrdinalTriplet as OrdinalTriplet
from unbag.aggregates import PairwiseSimilarity as PairwiseSimilarity
from unbag.aggregates import TripletComparison as TripletComparison
from unbag.checks import ImpossibleObservation as ImpossibleObservation
from unbag.groups import Groups as Groups
from unbag.risks import NegativeLogLikelihood as NegativeLogLikelihood
from unbag.risks import UnbiasedRisk as UnbiasedRisk

__version__ = "0.1.0"
