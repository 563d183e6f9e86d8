"""Classifiers of scikit-learn by expectation-maximisation: fitted to every class of a row, by its posterior."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, clone
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.validation import has_fit_parameter
from torch import Tensor

from unbag.data.row_source import Rows, fill_missing, find_missing
from unbag.learners.base import Unprepared, map_rows, register_model, split_rows
from unbag.learners.problem import Problem

SMOOTHING = 1e-3
"""Share of probability that is spread evenly, as a classifier that rules out a class may be wrong."""


def validate_classifier(model: BaseEstimator) -> None:
    """Refuse an estimator that has no probabilities, or does not accept weighted rows."""
    name = type(model).__name__
    if not hasattr(model, "predict_proba"):
        raise TypeError(f"model must predict probabilities, but {name} has no predict_proba; use another classifier")
    last = model.steps[-1][1] if isinstance(model, Pipeline) else model
    if not has_fit_parameter(last, "sample_weight"):
        raise TypeError(
            f"model must accept weighted rows, but fit of {type(last).__name__} has no sample_weight; use another "
            "classifier, such as LogisticRegression or HistGradientBoostingClassifier"
        )


@register_model
@dataclass(frozen=True, eq=False)
class ClassifierModel:
    """A classifier that was fitted to weighted labels, and may have met fewer than all classes."""

    kind = "classifier"
    classifier: Any
    missing: Tensor | None  # columns with missing values, which the classifier cannot read; None where it can
    n_outputs: int

    def outputs(self, X: Rows) -> Tensor:
        """Return the smoothed log-probabilities of rows."""
        return map_rows(self._log_probs, X)

    def _log_probs(self, X: Tensor) -> Tensor:
        probs = np.zeros((len(X), self.n_outputs))
        probs[:, self.classifier.classes_] = self.classifier.predict_proba(_as_table(X, self.missing))
        return ((1 - SMOOTHING) * torch.from_numpy(probs) + SMOOTHING / self.n_outputs).log()

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Raise an error: a classifier of another library has no state that can be read without running its code."""
        raise ValueError(
            f"a classifier such as {type(self.classifier).__name__} cannot be saved without pickle, which can run any "
            'code when it is read; fit with model="auto", "trees" or a network, or pickle the estimator yourself'
        )


@dataclass(frozen=True)
class Classifiers(Unprepared):
    """A step of the path is an E-step, and a fit of the classifier to all classes of a row by its posterior."""

    classifier: Any  # cloned for every fit
    n_steps: int = 20  # at most

    @property
    def name(self) -> str:
        """Return the name of the class of the classifier."""
        return type(self.classifier).__name__

    def path(self, problem: Problem, start: Tensor, seed: int) -> Iterator[ClassifierModel]:
        """Yield the classifier after each M-step."""
        missing = None if get_tags(self.classifier).input_tags.allow_nan else find_missing(split_rows(problem.X))
        table = np.concatenate([_as_table(part, missing) for part in split_rows(problem.X)])
        classifier, outputs = self._with_seed(seed), start
        for _ in range(self.n_steps):
            # Weights have mean one, so that the classifier's regularisation keeps its meaning.
            targets = problem.targets(outputs)
            weights = (targets / targets.sum(1).mean()).numpy()
            rows, classes = weights.nonzero()
            fitted = clone(classifier)
            prefix = f"{fitted.steps[-1][0]}__" if isinstance(fitted, Pipeline) else ""
            fitted.fit(table[rows], classes, **{f"{prefix}sample_weight": weights[rows, classes]})
            model = ClassifierModel(fitted, missing, problem.labels.n_outputs)
            outputs = model.outputs(problem.X)
            yield model

    def _with_seed(self, seed: int) -> Any:
        """Return a new classifier with a seed wherever it would draw different random numbers each time."""
        classifier = clone(self.classifier)
        parameters = classifier.get_params(deep=True)
        drawing = [n for n, value in parameters.items() if n.split("__")[-1] == "random_state" and value is None]
        return classifier.set_params(**dict.fromkeys(drawing, seed))


def _as_table(X: Tensor, missing: Tensor | None) -> np.ndarray:
    return (X if missing is None else fill_missing(X, missing)).flatten(1).numpy(force=True)
