"""scikit-learn estimators, and the single place where their defaults are decided."""

from unbag.estimators.classifier import AggregateClassifier as AggregateClassifier
from unbag.estimators.settings import CrossFitting as CrossFitting
from unbag.estimators.settings import NetworkTraining as NetworkTraining
