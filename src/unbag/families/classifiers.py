"""Classifiers of scikit-learn, fitted by expectation-maximisation: to all classes of a row, by their posteriors."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import has_fit_parameter
from torch import Tensor

from unbag.families.base import Fitted
from unbag.families.rounds import Start, constant_logits, fit_rounds
from unbag.families.row_evidence import RowEvidence
from unbag.families.starts import guess_classes, is_unnamed, needs_guess
from unbag.families.trees import as_table
from unbag.training import Observations

MOST_ROUNDS = 20
"""Fits of the classifier at most: where expectation-maximisation needs more, it hardly moves."""
PATIENCE = 4

SMOOTHING = 1e-3
"""The share of probability that is spread evenly: a classifier that rules a class out may be wrong."""


def check_classifier(model: Any) -> None:
    """Refuse an estimator that cannot learn from weighted labels, or gives no probabilities."""
    name = type(model).__name__
    if not hasattr(model, "predict_proba"):
        raise TypeError(f"model must give probabilities, but {name} has no predict_proba; take another classifier")
    last = model.steps[-1][1] if isinstance(model, Pipeline) else model
    if not has_fit_parameter(last, "sample_weight"):
        raise TypeError(
            f"model must learn from weighted rows, but fit of {type(last).__name__} takes no sample_weight; take "
            "another classifier, such as LogisticRegression or HistGradientBoostingClassifier"
        )


class WeightedClassifier:
    """A classifier that was fitted to weighted labels.

    Parameters
    ----------
    classifier
        Fitted, with the numbers of the classes as labels.
    n_classes
        How many classes there are; the classifier may have met fewer.
    """

    n_parameters = None

    def __init__(self, classifier: Any, n_classes: int) -> None:
        self.classifier, self.n_classes = classifier, n_classes

    def log_probs(self, X: Tensor) -> Tensor:
        """Return the log-probability of each class for each row, ``(n, classes)``, in float64 on the CPU."""
        probs = np.zeros((len(X), self.n_classes))
        probs[:, self.classifier.classes_] = self.classifier.predict_proba(as_table(X))
        return ((1 - SMOOTHING) * torch.from_numpy(probs) + SMOOTHING / self.n_classes).log()


@dataclass(frozen=True)
class Classifiers:
    """One classifier of scikit-learn, from different seeds where it has a ``random_state``.

    Parameters
    ----------
    classifier
        Learns from rows with a ``sample_weight``, and has ``predict_proba``; it is cloned for every fit.
    rounds, patience
        Of expectation-maximisation, at most.
    n_restarts
        How many replicas.
    verbose
        Show a progress bar in a terminal.
    """

    classifier: Any
    rounds: int = MOST_ROUNDS
    patience: int | None = PATIENCE
    n_restarts: int = 1
    verbose: bool = False

    def fit(
        self,
        X: Tensor,
        used: Sequence[Observations],
        held_out: Sequence[Observations],
        seed: int,
        time_limit: float | None = None,
        *,
        goal: float | None = None,
    ) -> Fitted:
        """Fit again and again to every class of each row, weighted by its posterior under the fit before."""
        evidence = RowEvidence(used)
        rows, start = X[evidence.rows], constant_logits(used)
        held = X[RowEvidence(held_out).rows] if held_out else None
        deadline = float("inf") if time_limit is None else time.monotonic() + time_limit / 2

        def starts(seed: int) -> list[Start]:
            firsts = [] if is_unnamed(used) else [start.expand(len(rows), -1)]
            if needs_guess(used):
                firsts += [one.log() for one in guess_classes(as_table(X), used, held_out, seed, deadline=deadline)]
            given = {"classifier": self._make(seed), "rows": rows, "held": held, "evidence": evidence}
            return [partial(_ExpectationMaximisation, first, **given) for first in firsts]

        return fit_rounds(
            starts,
            X,
            used,
            held_out,
            [seed + replica for replica in range(self.n_restarts)],
            most=min(self.rounds, MOST_ROUNDS),
            patience=PATIENCE if self.patience is None else min(self.patience, PATIENCE),
            time_limit=time_limit,
            goal=goal,
            verbose=self.verbose,
        )

    def _make(self, seed: int) -> Any:
        """Return a new classifier; what would draw different random numbers each time gets the seed."""
        model = clone(self.classifier)
        given = model.get_params(deep=True)
        drawing = [name for name in given if name.split("__")[-1] == "random_state" and given[name] is None]
        return model.set_params(**dict.fromkeys(drawing, seed))


class _ExpectationMaximisation:
    """A classifier in the making."""

    starting = False

    def __init__(
        self,
        first: Tensor,
        ready: float,  # it is at once
        *,
        classifier: Any,
        rows: Tensor,
        held: Tensor | None,
        evidence: RowEvidence,
    ) -> None:
        self.classifier, self.rows, self.held, self.evidence = classifier, rows, held, evidence
        self.logits = first
        self.models: list[WeightedClassifier] = []

    def learn(self) -> float | None:
        log_likelihood, posterior = self.evidence.infer(self.logits)
        # Rows of mean weight one, so that a classifier's own regularisation means what it says.
        weights = (posterior / self.evidence.row_weights.mean()).numpy()
        rows, labels = weights.nonzero()
        model, weights = clone(self.classifier), weights[rows, labels]
        prefix = f"{model.steps[-1][0]}__" if isinstance(model, Pipeline) else ""
        model.fit(as_table(self.rows)[rows], labels, **{f"{prefix}sample_weight": weights})
        self.models.append(WeightedClassifier(model, self.logits.shape[1]))
        self.logits = self.models[-1].log_probs(self.rows)
        return -log_likelihood

    def held_out_logits(self) -> Tensor | None:
        return None if self.held is None else self.models[-1].log_probs(self.held)

    def model(self, n_rounds: int) -> WeightedClassifier:
        return self.models[n_rounds - 1]
