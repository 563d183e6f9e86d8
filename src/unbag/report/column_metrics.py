"""Metrics by column: permutation importance on left-out groups, and where predictions are least certain."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unbag.data.features import Feature
from unbag.data.histograms import evenly
from unbag.report.scored_groups import ScoredGroups, compute_log_likelihood
from unbag.training import Observations

MOST_COLUMNS = 30
# Members of sampled groups, and predictions for them over all columns and permutations.
MOST_MEMBERS = 10_000
MOST_PREDICTIONS = 500_000
MOST_PERMUTATIONS = 5
# Numbers that are read for these predictions, where there are many columns; each is permuted once all the same.
MOST_NUMBERS = 2**28
# Of the time limit of a fit, if it had one, at most.
SHARE_OF_TIME = 0.1

# Parts of the rows with low confidence: of so many rows at least, and so many are listed.
FEWEST_ROWS = 10
MOST_PARTS = 15
N_QUANTILES = 5

Encoded = tuple[Feature, slice]
"""A column of the table, and the columns of numbers that are made of it."""


def encoded_columns(clf: Any) -> list[Encoded]:
    """Return the columns of the table that a classifier was fitted to; none for images."""
    if len(clf.input_shape_) > 1:
        return []
    if clf.preparation_ is None:
        return [(Feature(str(name), "number"), slice(j, j + 1)) for j, name in enumerate(clf.get_feature_names_out())]
    columns, end = [], 0
    for one in clf.preparation_.features:
        start, end = end, end + len(one.encoded_names)
        columns.append((one, slice(start, end)))
    return columns


def most_correlated(rows: Tensor, columns: Sequence[Encoded], sets: Sequence[ScoredGroups]) -> list[Encoded]:
    """Return the columns whose values correlate most with any predicted probability, where there are many."""
    if len(columns) <= MOST_COLUMNS:
        return list(columns)
    members, probs = _sampled_members(sets)
    values = rows[members].double()
    values = values.where(values.isfinite(), values.nanmean(0).nan_to_num())
    centred, others = values - values.mean(0), probs - probs.mean(0)
    scale = centred.square().sum(0)[:, None] * others.square().sum(0)
    strength = ((centred.T @ others).square() / scale).nan_to_num(0).amax(1)  # (encoded columns,)
    strongest = np.maximum.reduceat(strength.numpy(), [encoded.start for _, encoded in columns])
    return [columns[place] for place in sorted(np.argsort(-strongest, kind="stable")[:MOST_COLUMNS])]


def permutation_importance(
    clf: Any, rows: Tensor, columns: Sequence[Encoded], sets: Sequence[ScoredGroups]
) -> dict[str, Any] | None:
    """Return how much log-likelihood per group is lost when the values of a column are permuted among rows.

    No label is needed. Groups are judged by models that have not seen them, where there are such. Of many groups an
    even sample is taken; those that the model rules out are left out. Each permutation is one for all columns.

    Parameters
    ----------
    clf
        A fitted classifier.
    rows
        All rows, as numbers.
    columns
        Those to permute, all numbers that are made of one together.
    sets
        What was observed.

    Returns
    -------
    dict or None
        Of each column ``drop``, the mean over groups by their weights, and ``error``, its standard error over groups;
        None where there is no column, or groups are too large, or the time limit of the fit too short.
    """
    sample, folds = _sample(sets)
    members = torch.cat([one.groups.members for one in sample] or [torch.empty(0, dtype=torch.int64)])
    if not len(columns) or not 0 < len(members) * len(columns) <= 4 * MOST_PREDICTIONS:
        return None
    most = min(MOST_PREDICTIONS, MOST_NUMBERS // rows.shape[1])
    n_permutations = min(max(most // (len(members) * len(columns)), 1), MOST_PERMUTATIONS)

    def explain(values: Tensor) -> list[Tensor]:
        log_probs = torch.empty(len(members), len(clf.classes_), dtype=torch.float64)
        for fold in folds.unique().tolist():
            own = folds == fold
            log_probs[own] = clf._predict_rows(values[own], fold=None if fold < 0 else fold)
        parts = log_probs.split([len(one.groups.members) for one in sample])
        return [compute_log_likelihood(one, part) for one, part in zip(sample, parts, strict=True)]

    given, begun = rows[members], time.monotonic()
    before = explain(given)
    if clf.time_limit is not None:
        looks = SHARE_OF_TIME * clf.time_limit / (time.monotonic() - begun)
        n_permutations = min(n_permutations, int(looks / len(columns)))
    if not n_permutations:
        return None
    distinct, places = members.unique(return_inverse=True)
    generator = np.random.default_rng(0)
    donors = [distinct[generator.permutation(len(distinct))][places] for _ in range(n_permutations)]
    importances = []
    for feature, encoded in columns:
        drops = [torch.zeros_like(own) for own in before]
        values = rows[:, encoded]
        for donor in donors:
            given[:, encoded] = values[donor]
            after = explain(given)
            drops = [drop + (one - two) / len(donors) for drop, one, two in zip(drops, before, after, strict=True)]
        given[:, encoded] = values[members]
        drop, error = _mean_and_error(sample, drops)
        importances.append({"column": feature.name, "drop": drop, "error": error})
    return {
        "columns": sorted(importances, key=lambda one: -one["drop"]),
        "groups": sum(len(one.groups) for one in sample),
        "rows": len(distinct),
        "permutations": n_permutations,
        "held_out": all(one.held_out for one in sets),
    }


def _sample(sets: Sequence[ScoredGroups]) -> tuple[list[Observations], Tensor]:
    """Return an even sample of the groups judged on, and for each member the fold whose models judge it, or -1."""
    total = sum(int(one.observations.groups.sizes[one.chosen].sum()) for one in sets)
    sample, folds = [], [torch.empty(0, dtype=torch.int64)]
    for one in sets:
        n = len(one.chosen)
        which = one.chosen[evenly(n, max(2, n * MOST_MEMBERS // max(total, 1)))]
        which = which[one.log_likelihood[which] > -torch.inf]
        if len(which):
            sample.append(one.observations.take(which))
            folds.append(one.folds[one.observations.groups.segments.take(which)[0]])
    return sample, torch.cat(folds)


def _mean_and_error(sample: Sequence[Observations], values: Sequence[Tensor]) -> tuple[float, float]:
    """Return the mean of a value per group, sets by their weights, and its standard error over groups."""
    mean, variance, total = 0.0, 0.0, sum(one.weight for one in sample)
    for one, own in zip(sample, values, strict=True):
        centre, n = one.mean(own), len(own)
        mean += one.weight / total * float(centre)
        scatter = (one.weights * (own - centre)).square().sum() * n / max(n - 1, 1)
        variance += (one.weight / total) ** 2 * float(scatter / one.weights.sum() ** 2)
    return mean, variance**0.5


def least_confident(rows: Tensor, columns: Sequence[Encoded], sets: Sequence[ScoredGroups]) -> list[dict[str, Any]]:
    """Return the values and ranges of columns for whose rows the most likely class is least likely on average."""
    members, probs = _sampled_members(sets)
    confidence = probs.max(1).values.numpy()
    fewest = max(FEWEST_ROWS, len(members) // 50)
    parts = [
        {"column": feature.name, **part, "members": int(inside.sum()), "confidence": float(confidence[inside].mean())}
        for feature, encoded in columns
        for part, inside in _parts(feature, rows[:, encoded][members].numpy())
        if fewest <= inside.sum() < len(members)
    ]
    return sorted(parts, key=lambda one: one["confidence"])[:MOST_PARTS]


def _sampled_members(sets: Sequence[ScoredGroups]) -> tuple[Tensor, Tensor]:
    """Return an even sample of the members of all groups, by row number, and their class probabilities."""
    members = torch.cat([one.observations.groups.members for one in sets])
    some = torch.from_numpy(evenly(len(members), 10 * MOST_MEMBERS))
    return members[some], torch.cat([one.log_probs for one in sets])[some].exp()


def _parts(feature: Feature, values: np.ndarray) -> Iterator[tuple[dict[str, Any], np.ndarray]]:
    """Yield the categories of a column, or ranges of its values between quantiles, and which rows are in each."""
    if feature.kind == "category":
        for j, name in enumerate(feature.values):
            yield {"value": "missing" if name is None else name}, values[:, j] == 1
        return
    own = values[:, 0]
    missing = np.isnan(own)
    yield {"value": "missing"}, missing
    if feature.kind == "boolean":
        for name, number in (("false", 0), ("true", 1)):
            yield {"value": name}, (own == number) & ~missing
    elif not missing.all():
        edges = np.unique(np.quantile(own[~missing], np.linspace(0, 1, N_QUANTILES + 1), method="nearest"))
        for low, high in pairwise(edges):
            inside = (own >= low) & ((own < high) | (high == edges[-1])) & ~missing
            yield {"from": _plain(feature, low), "to": _plain(feature, high)}, inside


def _plain(feature: Feature, value: float) -> float | str:
    return str(np.datetime64(int(value), "D")) if feature.kind == "date" else float(value)
