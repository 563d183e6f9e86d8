"""Networks from rows to logits, by name or of the caller's own."""

from unbag.training.architectures.build import MODELS as MODELS
from unbag.training.architectures.build import MakeModel as MakeModel
from unbag.training.architectures.build import Model as Model
from unbag.training.architectures.build import build as build
from unbag.training.architectures.build import model_names as model_names
from unbag.training.architectures.linear import Linear as Linear
from unbag.training.architectures.mlp import MLP as MLP
from unbag.training.architectures.one_logit import OneLogit as OneLogit
from unbag.training.architectures.one_logit import n_outputs as n_outputs
from unbag.training.architectures.rbf import RBF as RBF
