"""Networks from rows to logits, by name or of the caller's own."""

from unbag.models.build import MODELS as MODELS
from unbag.models.build import MakeModel as MakeModel
from unbag.models.build import Model as Model
from unbag.models.build import build as build
from unbag.models.build import model_names as model_names
from unbag.models.linear import Linear as Linear
from unbag.models.mlp import MLP as MLP
from unbag.models.one_logit import OneLogit as OneLogit
from unbag.models.one_logit import n_outputs as n_outputs
from unbag.models.rbf import RBF as RBF
