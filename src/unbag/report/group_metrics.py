"""Metrics of one set of observations: likelihood, observed against predicted values, confidence."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unbag.aggregates import Wording
from unbag.data.histograms import histogram_of_sizes
from unbag.published import MISSING, describe_statement, estimate
from unbag.report.scored_groups import ScoredGroups
from unbag.training import Observations

MAX_LISTED = 15
MIN_VARIANCE = 0.01
"""Variance of a count at least: where a model is nearly certain, one wrong row is a few standard deviations."""
LABELS = Wording("Labels", "its label", "row", "rows")
SHARES, TENTHS = np.linspace(0, 1, 21), np.linspace(0, 1, 11)


def describe_set(scored: ScoredGroups, classes: list[str]) -> dict[str, Any]:
    """Return what a report shows of a set."""
    s = scored.observations
    sizes = s.groups.sizes.numpy()
    spread = {"min": sizes.min(), "median": np.median(sizes), "max": sizes.max()}
    judged = {"held_out": scored.held_out, "groups": len(scored.chosen)}
    are_labels = s.aggregate.outcome == "class_counts" and s.groups.max_size == 1
    return {
        "kind": "labels" if are_labels else s.aggregate.name,
        "wording": asdict(LABELS if are_labels else s.aggregate.wording),
        "aggregate": repr(s.aggregate),
        "groups": len(s.groups),
        "memberships": len(s.groups.members),
        "rows": len(s.groups.members.unique()),
        "sizes": spread | {"histogram": histogram_of_sizes(sizes)},
        "weights": None if s.group_weights is None else [s.weights.min().item(), s.weights.max().item()],
        "judged": judged | {"rows_also_trained_on": scored.share_of_seen_rows()},
        "likelihood": _compare_likelihood(scored),
        "own_share": score_group_shares(s.take(scored.chosen)),
        "outcome": _compare_outcome(scored, classes),
        "confidence": _compare_confidence(scored),
        "worst": _list_worst(scored),
        "unsure": _list_unsure(scored),
    }


def _compare_likelihood(scored: ScoredGroups) -> dict[str, Any]:
    """Compare with the constant prediction; impossible observations are counted, and left out of means."""
    model, constant = (values[scored.chosen].numpy() for values in (scored.log_likelihood, scored.constant))
    weights, possible = scored.observations.weights[scored.chosen].numpy(), model > -np.inf
    gain = (model - constant)[possible]
    counts, edges = np.histogram(gain, min(20, 4 + len(gain) // 8))
    means = [np.average(v[possible], weights=weights[possible]) if possible.any() else None for v in (model, constant)]
    return {
        **dict(zip(("model", "trivial"), means, strict=True)),
        "impossible": (~possible).sum(),
        "better": np.average((model > constant) & possible, weights=weights),
        "edges": edges,
        "counts": counts,
    }


def score_group_shares(chosen: Observations) -> dict[str, Any] | None:
    """Score the prediction of the class shares of its group for every member; None where they are not observed.

    ``accuracy`` is that of the most frequent class of each group.
    """
    if chosen.aggregate.outcome != "class_counts" or chosen.groups.max_size == 1:
        return None
    counts, sizes = chosen.checked.double(), chosen.groups.sizes.double()
    ways = torch.lgamma(sizes + 1) - torch.lgamma(counts + 1).sum(1)
    log_likelihood = ways + torch.special.xlogy(counts, counts / sizes[:, None]).sum(1)
    correct = chosen.weights @ counts.max(1).values / (chosen.weights @ sizes)
    return {"log_likelihood": chosen.mean(log_likelihood).item(), "accuracy": correct.item()}


def _compare_outcome(scored: ScoredGroups, classes: list[str]) -> dict[str, Any]:
    chosen = scored.observations.take(scored.chosen)
    if chosen.aggregate.has_class_columns:
        members, _ = scored.observations.groups.segments.take(scored.chosen)
        return _compare_counts(chosen, scored.log_probs[members].exp(), classes)
    likelihood = scored.log_likelihood[scored.chosen].exp().numpy()
    if chosen.aggregate.is_binary(chosen.groups, chosen.n_classes):
        return _compare_answers(chosen, likelihood)
    return {"form": "other", "edges": TENTHS, "counts": np.histogram(likelihood, TENTHS)[0]}


def _compare_counts(chosen: Observations, probs: Tensor, classes: list[str]) -> dict[str, Any]:
    """Compare counts with those expected from the probabilities of the members, shape ``(memberships, classes)``."""
    segments = chosen.groups.segments
    counts, sums = chosen.checked.double(), segments.sum(probs)
    if chosen.aggregate.outcome == "published_counts":
        counts, sums = estimate(counts), sums + counts[..., MISSING]
    observed, expected = counts.numpy(), sums.numpy()  # (groups, classes)
    mean = partial(np.average, axis=0, weights=chosen.weights.numpy())
    columns = {
        "observed": observed.sum(0),
        "expected": expected.sum(0),
        "error": mean(np.abs(observed - expected)),
        "trivial_error": mean(np.abs(observed - mean(observed))),
    }
    shown = slice(1, None) if len(classes) == 2 else slice(None)  # of two classes, the second implies the first
    members = np.broadcast_to(segments.sizes.numpy()[:, None], observed.shape)
    variance = segments.sum(probs * (1 - probs)).numpy()
    return {
        "form": "counts",
        "classes": [{"class": name} | {key: v[j] for key, v in columns.items()} for j, name in enumerate(classes)],
        "bins": reliability(*(values[:, shown].ravel() for values in (expected, observed, members, variance))),
    }


def _compare_answers(chosen: Observations, likelihood: np.ndarray) -> dict[str, Any]:
    """Compare answers of yes or no with the predicted probability of yes."""
    yes = (chosen.z if chosen.z.ndim == 1 else chosen.z[:, 0]).bool().numpy()  # a further column is an error rate
    predicted = np.where(yes, likelihood, 1 - likelihood).clip(0, 1)  # rounding may exceed the range
    mean = partial(np.average, weights=chosen.weights.numpy())
    return {
        "form": "answers",
        "edges": TENTHS,
        "no": np.histogram(predicted[~yes], TENTHS)[0],
        "yes": np.histogram(predicted[yes], TENTHS)[0],
        "bins": reliability(predicted, yes),
        "right": mean((predicted > 0.5) == yes),
        "most_common": max(mean(yes), 1 - mean(yes)),
    }


def reliability(
    predicted: np.ndarray, observed: np.ndarray, members: np.ndarray | None = None, variance: np.ndarray | None = None
) -> list[dict[str, Any]]:
    """Compare predicted with observed shares, in tenths of the predicted ones.

    Of expected and observed counts, ``members`` are the numbers of members that are counted. ``variance`` of the counts
    gives each tenth the standard deviation of its share, as ``spread``.

    Examples
    --------
    >>> reliability(np.array([0.95, 0.99, 0.12]), np.array([True, False, False]))[1]["happened"]
    0.5
    """
    members = np.ones(len(predicted)) if members is None else members
    tenth, bins = np.minimum((predicted / members * 10).astype(np.int64), 9), []
    for place in np.unique(tenth):
        inside = tenth == place
        total = members[inside].sum()
        b = {"predicted": predicted[inside].sum() / total, "happened": observed[inside].sum() / total}
        if variance is not None:
            b["spread"] = variance[inside].sum() ** 0.5 / total
        bins.append({"n": int(inside.sum()), **{name: float(share) for name, share in b.items()}})
    return bins


def _compare_confidence(scored: ScoredGroups) -> dict[str, Any]:
    """Compare the probability of the most likely class before and after the observation is known."""
    defined = scored.posterior[~scored.posterior.isnan().any(1)]
    before, after = (probs.max(1).values.numpy().clip(0, 1) for probs in (scored.log_probs.exp(), defined))
    return {
        "edges": SHARES,
        "before": np.histogram(before, SHARES)[0],
        "after": np.histogram(after, SHARES)[0],
        "mean_before": before.mean(),
        "mean_after": after.mean() if len(after) else None,
        "without": len(scored.posterior) - len(defined),
    }


def _list_worst(scored: ScoredGroups) -> list[dict[str, Any]]:
    """List the groups whose counts differ most from the expected ones, or those with the lowest likelihood.

    Counts are compared by the largest difference of a class, in standard deviations of independent members.
    """
    s, chosen, deviation, expected = scored.observations, scored.chosen, None, None
    if s.aggregate.has_class_columns:
        probs = scored.log_probs.exp()
        expected, counts = s.groups.segments.sum(probs), s.checked.double()
        if s.aggregate.outcome == "published_counts":
            expected, counts = expected + counts[..., MISSING], estimate(counts)
        variance = s.groups.segments.sum(probs * (1 - probs)).clamp_min(MIN_VARIANCE)
        deviation = ((counts - expected).abs() / variance.sqrt()).amax(1)
    order = (scored.log_likelihood if deviation is None else -deviation)[chosen].argsort(stable=True)[:MAX_LISTED]
    groups = []
    for number in chosen[order].tolist():
        values = {"model": scored.log_likelihood, "trivial": scored.constant}
        group = _describe_group(s, number, values) | {"probability": scored.log_likelihood[number].exp().item()}
        group["deviation"] = None if deviation is None else deviation[number].item()
        group["expected"] = None if expected is None else [round(n, 1) for n in expected[number].tolist()]
        groups.append(group)
    return groups


def _list_unsure(scored: ScoredGroups) -> list[dict[str, Any]]:
    """List the groups whose members have the lowest mean probability of their most likely class."""
    groups, probs = scored.observations.groups, {"before": scored.log_probs.exp(), "after": scored.posterior}
    means = {name: groups.segments.sum(p.max(1).values.double()) / groups.sizes for name, p in probs.items()}
    order = means["before"].argsort(stable=True)[:MAX_LISTED]
    return [_describe_group(scored.observations, number, means) for number in order.tolist()]


def _describe_group(s: Observations, number: int, values: dict[str, Tensor]) -> dict[str, Any]:
    observed: Any = s.z[number].tolist()
    if s.aggregate.outcome == "published_counts":
        observed = [describe_statement(statement) for statement in s.checked[number].tolist()]
    group = str(number if s.groups.ids is None else s.groups.ids[number])
    described = {"group": group, "size": int(s.groups.sizes[number]), "observed": observed}
    return described | {name: of_groups[number].item() for name, of_groups in values.items()}
