"""Methods by name: what they learn from counts of groups, or from bags, they say of new rows, or of new bags."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from torch import Tensor, nn

from unbag import AggregateClassifier, Groups, LabelProportions
from unbag.data.pooling import pool
from unbag.families.trees import import_lightgbm
from unbag.training import Observations, Predict, Score, Settings, fit_scaling, train
from unbag.training.architectures import build
from unbag_experiments.baselines.mean_proportion import METHOD as MEAN_PROPORTION

ESTIMATORS: dict[str, dict[str, Any]] = {
    "default": {},
    "linear": {"model": "linear"},
    "network": {"model": "mlp"},
    "trees": {"model": "trees"},
    "all_labels": {"model": "mlp"},  # of groups of one
}
"""Methods of tables that are the estimator, and what it is told."""

# The match of mean proportions: as many steps as it can use, of as many rows as serve it, and the best of its states by
# held-out groups where a tenth of the groups is more than two.
STEPS, STEPS_AT_ONCE, ROWS_A_STEP, PATIENCE = 5000, 50, 512, 20
HELD_OUT, TOO_FEW_TO_SPLIT = 0.1, 20

PENALTIES = (0.1, 1.0, 10.0, 100.0)
"""Of the SVM on bag statistics, which chooses among them by three folds of its own."""


@dataclass(frozen=True, eq=False)
class Learned:
    """What a method says of new rows, and of itself."""

    probs: np.ndarray
    """Of each class, (rows, classes)."""
    estimate: Any = None
    """``estimated_accuracy_`` of the estimator, where it has one."""


def learn(method: str, X: np.ndarray, ids: np.ndarray, counts: np.ndarray, X_new: np.ndarray, *, seed: int) -> Learned:
    """Learn from counts of groups, and return what is said of new rows.

    Parameters
    ----------
    method
        One of `ESTIMATORS`, or ``"mean_proportions"``.
    X
        Rows to learn from.
    ids
        The group of each, from 0.
    counts
        How many members of each group are of each class, (groups, classes).
    X_new
        Rows to predict.
    seed
        Of all random numbers.
    """
    groups = Groups.from_ids(torch.from_numpy(ids))
    if method == "mean_proportions":
        rows, z = torch.from_numpy(X), torch.from_numpy(counts)
        model = match_mean_proportions(rows, Observations(LabelProportions(), groups, z, counts.shape[1]), seed)
        with torch.no_grad():
            return Learned(model(torch.from_numpy(X_new)).double().softmax(-1).numpy())
    classifier = AggregateClassifier(**ESTIMATORS[method], random_state=seed).fit(X, counts, groups=groups)
    return Learned(classifier.predict_proba(X_new), getattr(classifier, "estimated_accuracy_", None))


def match_mean_proportions(X: Tensor, seen: Observations, seed: int) -> nn.Module:
    """Train the network of the estimator to match the mean prediction of each group with its proportions.

    Weights are averaged over steps; of more than a few groups, a tenth is held out, and the weights are kept under
    which the mean predictions of these come nearest to their proportions.
    """
    score: Score | None = None
    groups_a_step = max(ROWS_A_STEP * len(seen.groups) // len(X), 1)
    if len(seen.groups) > TOO_FEW_TO_SPLIT:
        seen, held_out = seen.split(HELD_OUT, torch.Generator().manual_seed(seed))
        members, segments = X[held_out.groups.members], held_out.groups.segments

        def nearness(predict: Predict) -> Tensor:
            objectives = [MEAN_PROPORTION.objective(own, segments, held_out.checked) for own in predict(members)]
            return -torch.stack(objectives).double().mean(1)

        score = nearness

    scaling, make_net = fit_scaling(X), build("mlp", X.shape[1:], seen.n_classes)
    settings = Settings(
        epochs=STEPS // STEPS_AT_ONCE,
        steps=STEPS_AT_ONCE,
        batch_size=min(groups_a_step, len(seen.groups)),
        averaging=0.99,
        patience=PATIENCE if score else None,
    )
    trained = train(
        lambda: nn.Sequential(scaling, make_net()),
        X,
        [seen],
        settings,
        seeds=[seed],
        score=score,
        objective=MEAN_PROPORTION.objective,
    )
    return trained.models[0]


def why_not(method: str) -> str | None:
    """Return why a method cannot be had here; None where it can."""
    try:
        if method == "trees":
            import_lightgbm()
    except (ImportError, OSError) as error:  # OSError: where what LightGBM is linked with is not there
        return f"{method} cannot be had: {error}"
    return None


def rank_bags(
    method: str, X: np.ndarray, sizes: np.ndarray, y: np.ndarray, *, X_new: np.ndarray, new_sizes: np.ndarray, seed: int
) -> tuple[np.ndarray, float]:
    """Learn from bags with a label each; return a number for each new bag, and above which of them it is positive.

    Parameters
    ----------
    method
        ``"default"``, or ``"forest"`` or ``"svm"`` on the statistics of bags.
    X, sizes
        Rows, one bag after the other, and how many each bag has.
    y
        Labels of the bags, 0 or 1.
    X_new, new_sizes
        Bags to rank.
    seed
        Of all random numbers.
    """
    bags, new_bags = (Groups.from_sizes(torch.from_numpy(one)) for one in (sizes, new_sizes))
    if method == "default":
        classifier = AggregateClassifier("multiple_instance", random_state=seed).fit(X, y, groups=bags)
        return classifier.predict_groups(X_new, new_bags), 0.5
    statistics, new_statistics = (
        pool(torch.from_numpy(rows), own).numpy() for rows, own in ((X, bags), (X_new, new_bags))
    )
    if method == "forest":
        forest = RandomForestClassifier(500, random_state=seed).fit(statistics, y)
        return forest.predict_proba(new_statistics)[:, 1], 0.5
    machine = make_pipeline(StandardScaler(), SVC())
    folds = StratifiedKFold(3, shuffle=True, random_state=seed)  # files may hold like bags next to each other
    chosen = GridSearchCV(machine, {"svc__C": PENALTIES}, scoring="roc_auc", cv=folds).fit(statistics, y)
    return chosen.decision_function(new_statistics), 0.0
