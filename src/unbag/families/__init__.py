"""Families of models: what is fitted to observed groups, and gives log-probabilities of classes for rows."""

from unbag.families.base import Family as Family
from unbag.families.base import Fitted as Fitted
from unbag.families.base import Model as Model
from unbag.families.choice import is_network as is_network
from unbag.families.choice import takes_missing as takes_missing
from unbag.families.classifiers import Classifiers as Classifiers
from unbag.families.classifiers import check_classifier as check_classifier
from unbag.families.networks import Network as Network
from unbag.families.networks import Networks as Networks
from unbag.families.trees import BoostedTrees as BoostedTrees
from unbag.families.trees import Trees as Trees
