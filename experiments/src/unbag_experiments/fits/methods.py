"""Methods by name: what they learn from counts of groups, or from bags, they say of new rows, or of new bags."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
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
from unbag.learners.architectures import build
from unbag.training import Observations, fit_scaling
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
HELD_OUT, TOO_FEW_TO_SPLIT, AVERAGING = 0.1, 20, 0.99

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
    """Learn from counts of groups, and return what is said of new rows."""
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
    held_out: Observations | None = None
    groups_a_step = max(ROWS_A_STEP * len(seen.groups) // len(X), 1)
    if len(seen.groups) > TOO_FEW_TO_SPLIT:
        seen, held_out = seen.split(HELD_OUT, torch.Generator().manual_seed(seed))
    scaling, make_net = fit_scaling(X), build("mlp", X.shape[1:], seen.n_classes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = nn.Sequential(scaling, make_net())
    optimiser = torch.optim.Adam(model.parameters(), fused=True)
    average = copy.deepcopy(model)
    best, best_score, best_look = average, float("-inf"), 0
    for step, batch in enumerate(_draw(len(seen.groups), min(groups_a_step, len(seen.groups)), seed)):
        groups = seen.groups.take(batch)
        optimiser.zero_grad()
        MEAN_PROPORTION.objective(model(X[groups.members]), groups.segments, seen.checked[batch]).mean().backward()
        optimiser.step()
        share = 1 - min((step + 1) / (step + 10), AVERAGING)  # the first steps count for more
        for mean, weight in zip(average.parameters(), model.parameters(), strict=True):
            mean.data.lerp_(weight.data, share)
        look, ended = divmod(step + 1, STEPS_AT_ONCE)
        if held_out is None or ended:
            continue
        with torch.no_grad():
            outputs = average(X[held_out.groups.members])
        score = -MEAN_PROPORTION.objective(outputs, held_out.groups.segments, held_out.checked).double().mean().item()
        if score >= best_score:
            best_look, best_score = (best_look if score == best_score else look), score
            best = copy.deepcopy(average)
        if look - best_look >= PATIENCE:
            break
    return best.eval()


def _draw(n_groups: int, batch_size: int, seed: int) -> Iterator[Tensor]:
    """Yield the groups of each step; all are visited before one is again."""
    generator, waiting = torch.Generator().manual_seed(seed), torch.zeros(0, dtype=torch.int64)
    n_visits = STEPS_AT_ONCE * n_groups // math.ceil(n_groups / batch_size)  # of steps that are looked at together
    bounds = [n_visits * step // STEPS_AT_ONCE for step in range(STEPS_AT_ONCE + 1)]
    for _ in range(STEPS // STEPS_AT_ONCE):
        while len(waiting) < n_visits:
            waiting = torch.cat([waiting, torch.randperm(n_groups, generator=generator)])
        for first, end in pairwise(bounds):
            yield waiting[first:end]
        waiting = waiting[n_visits:]


def why_not(method: str) -> str | None:
    """Return why a method cannot be had here; None where it can."""
    try:
        if method == "trees":
            import lightgbm  # noqa: F401, PLC0415 (an optional dependency)
    except (ImportError, OSError) as error:  # OSError: where what LightGBM is linked with is not there
        return f"{method} cannot be had: {error}"
    return None


def rank_bags(
    method: str, X: np.ndarray, sizes: np.ndarray, y: np.ndarray, *, X_new: np.ndarray, new_sizes: np.ndarray, seed: int
) -> tuple[np.ndarray, float]:
    """Learn from bags with a label each; return a number for each new bag, and above which of them it is positive."""
    bags, new_bags = (Groups.from_sizes(torch.from_numpy(one)) for one in (sizes, new_sizes))
    if method == "default":
        classifier = AggregateClassifier("multiple_instance", random_state=seed).fit(X, y, groups=bags)
        return classifier.predict_groups(X_new, new_bags), 0.5
    statistics, new_statistics = (_pool(rows, own) for rows, own in ((X, bags), (X_new, new_bags)))
    if method == "forest":
        forest = RandomForestClassifier(500, random_state=seed).fit(statistics, y)
        return forest.predict_proba(new_statistics)[:, 1], 0.5
    machine = make_pipeline(StandardScaler(), SVC())
    folds = StratifiedKFold(3, shuffle=True, random_state=seed)  # files may hold like bags next to each other
    chosen = GridSearchCV(machine, {"svc__C": PENALTIES}, scoring="roc_auc", cv=folds).fit(statistics, y)
    return chosen.decision_function(new_statistics), 0.0


def _pool(rows: np.ndarray, bags: Groups) -> np.ndarray:
    """Return the mean, least and largest value of every column in each bag, (bags, 3 columns)."""
    members = bags.gather(torch.from_numpy(rows)).double()
    kinds = ("mean", "min", "max")
    return torch.cat([torch.segment_reduce(members, kind, lengths=bags.sizes) for kind in kinds], 1).float().numpy()
