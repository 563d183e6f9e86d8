"""Learners: each yields a path of models, and knows nothing of folds, time limits and other learners."""

from unbag.learners.algorithm import Algorithm as Algorithm
from unbag.learners.base import MODELS as MODELS
from unbag.learners.base import Learner as Learner
from unbag.learners.base import Model as Model
from unbag.learners.base import register_learner as register_learner
from unbag.learners.base import register_model as register_model
from unbag.learners.boosting import Boosting as Boosting
from unbag.learners.classifiers import Classifiers as Classifiers
from unbag.learners.clusters import Clusters as Clusters
from unbag.learners.clusters import ClusterShares as ClusterShares
from unbag.learners.features import Columns as Columns
from unbag.learners.features import Fourier as Fourier
from unbag.learners.features import LastColumns as LastColumns
from unbag.learners.linear import Linear as Linear
from unbag.learners.network import Architecture as Architecture
from unbag.learners.network import Matching as Matching
from unbag.learners.network import Network as Network
from unbag.learners.problem import Evidence as Evidence
from unbag.learners.problem import Problem as Problem
from unbag.learners.problem import Split as Split
from unbag.learners.problem import Watch as Watch
from unbag.learners.top_share import TopShare as TopShare
