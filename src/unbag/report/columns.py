"""Importance of columns: permutation on held-out groups."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unbag.data.features import Feature
from unbag.data.histograms import evenly
from unbag.report.metrics import ScoredGroups, compute_evidence

MAX_COLUMNS = 30
MAX_MEMBERS = 10_000  # of the groups on which importance is measured
MAX_PREDICTIONS = 500_000  # of importance, over all columns and permutations; with a time limit, a tenth
MAX_NUMBERS = 2**28  # that these predictions read; with many columns, each is permuted at least once
MAX_PERMUTATIONS = 5
MIN_LOG_LIKELIHOOD = -1e6  # of observations that become impossible when a column is permuted

Encoded = tuple[Feature, slice]
"""A column of the table, and the numeric columns that encode it."""


def encoded_columns(clf: Any) -> list[Encoded]:
    """Return the columns of the table that a classifier was fitted to; none for images."""
    if len(clf.input_shape_) > 1:
        return []
    if clf.preparation_ is None:
        return [(Feature(str(name), "number"), slice(j, j + 1)) for j, name in enumerate(clf.get_feature_names_out())]
    features = clf.preparation_.features
    ends = np.cumsum([len(f.encoded_names) for f in features]).tolist()
    return [(f, slice(end - len(f.encoded_names), end)) for f, end in zip(features, ends, strict=True)]


def most_correlated(rows: Tensor, columns: Sequence[Encoded], sets: Sequence[ScoredGroups]) -> list[Encoded]:
    """Return the columns that correlate most with any predicted probability, where there are many."""
    if len(columns) <= MAX_COLUMNS:
        return list(columns)
    members = torch.cat([s.observations.groups.members for s in sets])
    some = torch.from_numpy(evenly(len(members), 10 * MAX_MEMBERS))
    members, probs = members[some], torch.cat([s.log_probs for s in sets])[some].exp()
    values = rows[members].double()
    values = values.where(values.isfinite(), values.nanmean(0).nan_to_num())
    centred, predicted = values - values.mean(0), probs - probs.mean(0)
    scale = centred.square().sum(0)[:, None] * predicted.square().sum(0)
    strength = ((centred.T @ predicted).square() / scale).nan_to_num(0).amax(1)  # (encoded columns,)
    strongest = np.maximum.reduceat(strength.numpy(), [encoded.start for _, encoded in columns])
    return [columns[place] for place in sorted(np.argsort(-strongest, kind="stable")[:MAX_COLUMNS])]


def permutation_importance(
    clf: Any, rows: Tensor, columns: Sequence[Encoded], sets: Sequence[ScoredGroups]
) -> dict[str, Any] | None:
    """Compute how much log-likelihood per group is lost when the values of a column are permuted among rows.

    Held-out groups are predicted by models that did not see them. All columns share the same permutations, and all
    numeric columns that encode a column are permuted together. Of many groups, an even sample is used. Return None
    without columns, with groups that are too large, or with a time limit that is too short.
    """
    sample, parts = [], []
    total = sum(int(s.observations.groups.sizes[s.chosen].sum()) for s in sets)
    for s in sets:
        n = len(s.chosen)
        which = s.chosen[evenly(n, max(2, n * MAX_MEMBERS // max(total, 1)))]
        which = which[s.log_likelihood[which] > -torch.inf]
        if len(which):
            sample.append(s.observations.take(which))
            parts.append(s.folds[s.observations.groups.segments.take(which)[0]])
    members = torch.cat([s.groups.members for s in sample] or [torch.empty(0, dtype=torch.int64)])
    cost = len(members) * len(columns)
    affordable = MAX_PREDICTIONS if clf.time_limit is None else MAX_PREDICTIONS // 10
    if not 0 < cost <= 4 * affordable:
        return None
    n_permutations = min(max(min(affordable, MAX_NUMBERS // rows.shape[1]) // cost, 1), MAX_PERMUTATIONS)
    folds = torch.cat(parts)

    def score(values: Tensor) -> Tensor:
        log_probs = torch.empty(len(members), len(clf.classes_), dtype=torch.float64)
        for fold in folds.unique().tolist():
            inside = folds == fold
            log_probs[inside] = clf._predict_rows(values[inside], fold=None if fold < 0 else fold)
        parts = log_probs.split([len(s.groups.members) for s in sample])
        scores = [compute_evidence(s, part).log_likelihood for s, part in zip(sample, parts, strict=True)]
        return torch.cat(scores).clamp_min(MIN_LOG_LIKELIHOOD)

    weights = torch.cat([s.weight * s.weights / s.weights.sum() for s in sample])
    weights, n = weights / weights.sum(), len(weights)
    distinct, places = members.unique(return_inverse=True)
    generator = np.random.default_rng(0)
    donors = [distinct[generator.permutation(len(distinct))][places] for _ in range(n_permutations)]
    permuted = rows[members]
    before, importances = score(permuted), []
    for feature, encoded in columns:
        values, drops = rows[:, encoded], torch.zeros(n, dtype=torch.float64)
        for donor in donors:
            permuted[:, encoded] = values[donor]
            drops += (before - score(permuted)) / len(donors)
        permuted[:, encoded] = values[members]
        drop = weights @ drops
        error = ((weights * (drops - drop)).square().sum() * n / max(n - 1, 1)).sqrt()
        importances.append({"column": feature.name, "drop": float(drop), "error": float(error)})
    return {
        "columns": sorted(importances, key=lambda column: -column["drop"]),
        "groups": n,
        "rows": len(distinct),
        "permutations": n_permutations,
        "held_out": all(s.held_out for s in sets),
    }
