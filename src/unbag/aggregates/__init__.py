"""Kinds of observations, one per file: definition, likelihood, validation and metadata."""

from unbag.aggregates.base import Aggregate as Aggregate
from unbag.aggregates.base import AnswerColumn as AnswerColumn
from unbag.aggregates.base import Evidence as Evidence
from unbag.aggregates.base import Wording as Wording
from unbag.aggregates.comparisons import PairwiseSimilarity as PairwiseSimilarity
from unbag.aggregates.comparisons import TripletComparison as TripletComparison
from unbag.aggregates.counting import AtLeast as AtLeast
from unbag.aggregates.counting import CountOf as CountOf
from unbag.aggregates.counting import Majority as Majority
from unbag.aggregates.counting import MultipleInstance as MultipleInstance
from unbag.aggregates.fold import FromFold as FromFold
from unbag.aggregates.fold import FromFunction as FromFunction
from unbag.aggregates.label_proportions import LabelProportions as LabelProportions
from unbag.aggregates.noisy import Noisy as Noisy
from unbag.aggregates.ordinal import OrdinalRank as OrdinalRank
from unbag.aggregates.ordinal import OrdinalTriplet as OrdinalTriplet
from unbag.aggregates.possible_members import PossibleMembers as PossibleMembers
from unbag.aggregates.published_counts import PublishedCounts as PublishedCounts
from unbag.aggregates.registry import AGGREGATES as AGGREGATES
from unbag.aggregates.registry import register_aggregate as register_aggregate
