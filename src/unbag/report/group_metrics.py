"""Metrics of one set of observations: how well it is explained, and what was observed beside what is predicted."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unbag.aggregates import Wording
from unbag.data.histograms import evenly, histogram, histogram_of_sizes, span
from unbag.published import MISSING, describe_statement, estimate
from unbag.report.scored_groups import ScoredGroups
from unbag.training import Observations

# What is drawn or listed one by one stays this small, however many groups there are.
MOST_POINTS = 1000
MOST_LISTED = 15

LABELS = Wording("Labels", "its label", "row", "rows")

SHARES = np.linspace(0, 1, 21)
TENTHS = np.linspace(0, 1, 11)


def describe_set(judged: ScoredGroups, classes: list[str]) -> dict[str, Any]:
    """Return everything about one set that a report shows."""
    one = judged.observations
    sizes = one.groups.sizes.numpy()
    plain_labels = one.aggregate.outcome == "class_counts" and one.groups.max_size == 1
    return {
        "kind": "labels" if plain_labels else one.aggregate.name,
        "wording": asdict(LABELS if plain_labels else one.aggregate.wording),
        "aggregate": repr(one.aggregate),
        "groups": len(one.groups),
        "memberships": len(one.groups.members),
        "rows": len(one.groups.members.unique()),
        "sizes": {
            "min": int(sizes.min()),
            "median": float(np.median(sizes)),
            "max": int(sizes.max()),
            "histogram": histogram_of_sizes(sizes),
        },
        "weights": None if one.group_weights is None else [float(one.weights.min()), float(one.weights.max())],
        "judged": _judged_on(judged),
        "likelihood": _likelihood(judged),
        "own_share": own_share(one.take(judged.chosen)),
        "outcome": _outcome(judged, classes),
        "confidence": _confidence(judged),
        "worst": _worst(judged),
        "unsure": _unsure(judged),
    }


def _judged_on(judged: ScoredGroups) -> dict[str, Any]:
    n_folds = int(judged.folds.max()) + 1 if judged.held_out else None
    return {"held_out": judged.held_out, "folds": n_folds, "groups": len(judged.chosen)}


def _likelihood(judged: ScoredGroups) -> dict[str, Any]:
    """Compare with the trivial predictor; a group that the model rules out is counted, and in no mean."""
    model, trivial = judged.log_likelihood[judged.chosen].numpy(), judged.constant[judged.chosen].numpy()
    weights, possible = judged.observations.weights[judged.chosen].numpy(), model > -np.inf
    gain = (model - trivial)[possible]
    edges = span(gain, n_bins=min(20, 4 + len(gain) // 8))
    return {
        "model": float(np.average(model[possible], weights=weights[possible])) if possible.any() else None,
        "trivial": float(np.average(trivial[possible], weights=weights[possible])) if possible.any() else None,
        "impossible": int((~possible).sum()),
        "better": float(np.average((model > trivial) & possible, weights=weights)),
        "edges": edges.tolist(),
        "counts": histogram(gain, edges),
    }


def own_share(chosen: Observations) -> dict[str, Any] | None:
    """Say of counts how good it would be to give every member the shares of its own group, which only counts tell.

    ``accuracy`` is that of calling every member by the most frequent class of its group.
    """
    if chosen.aggregate.outcome != "class_counts" or chosen.groups.max_size == 1:
        return None
    counts, sizes = chosen.checked.double(), chosen.groups.sizes.double()
    ways = torch.lgamma(sizes + 1) - torch.lgamma(counts + 1).sum(1)
    log_likelihood = ways + torch.special.xlogy(counts, counts / sizes[:, None]).sum(1)
    right = chosen.weights @ counts.max(1).values / (chosen.weights @ sizes)
    return {"log_likelihood": chosen.mean(log_likelihood).item(), "accuracy": right.item()}


def _outcome(judged: ScoredGroups, classes: list[str]) -> dict[str, Any]:
    chosen = judged.observations.take(judged.chosen)
    if chosen.aggregate.outcome in ("class_counts", "published_counts"):
        members, _ = judged.observations.groups.segments.take(judged.chosen)
        return _counts(chosen, judged.log_probs[members], classes)
    if chosen.aggregate.is_binary(chosen.groups, chosen.n_classes):
        return _answers(judged, chosen)
    seen = judged.log_likelihood[judged.chosen].exp().numpy()
    return {"form": "other", "edges": TENTHS.tolist(), "counts": histogram(seen, TENTHS)}


def _counts(chosen: Observations, log_probs: Tensor, classes: list[str]) -> dict[str, Any]:
    """Compare counts with those the model expects when it sees the rows alone, from log-probabilities of members."""
    groups = chosen.groups
    probs = log_probs.exp()
    checked, of_rows = chosen.checked.double(), groups.segments.sum(probs)
    is_published = chosen.aggregate.outcome == "published_counts"
    observed = (estimate(checked) if is_published else checked).numpy()  # (groups, k)
    expected = (of_rows + checked[..., MISSING] if is_published else of_rows).numpy()
    variance = groups.segments.sum(probs * (1 - probs)).numpy()
    mean = partial(np.average, axis=0, weights=chosen.weights.numpy())
    typical = mean(observed)
    rows = [
        {
            "class": name,
            "observed": float(observed[:, j].sum()),
            "expected": float(expected[:, j].sum()),
            "error": float(mean(np.abs(observed[:, j] - expected[:, j]))),
            "trivial_error": float(mean(np.abs(observed[:, j] - typical[j]))),
        }
        for j, name in enumerate(classes)
    ]
    sizes = np.rint(expected.sum(1, keepdims=True))
    drawn = evenly(len(groups), max(1, MOST_POINTS // len(classes)))
    points = np.stack([observed / sizes, expected / sizes], -1)[drawn].reshape(-1, 2)  # (drawn groups * k, 2)
    return {
        "form": "counts",
        "classes": rows,
        "points": points[evenly(len(points), MOST_POINTS)].round(4).tolist(),
        "groups_drawn": len(drawn),
        "bins": _calibration(observed, expected, variance, groups.sizes.numpy()),
    }


def _calibration(
    observed: np.ndarray, expected: np.ndarray, variance: np.ndarray, sizes: np.ndarray
) -> list[dict[str, Any]]:
    """Compare expected with observed shares, by tenths of the expected ones, with the spread that chance gives them.

    Of two classes the second tells all. Members are taken as independent, and so are classes.

    Examples
    --------
    >>> counts, half = np.array([[1.0, 3.0], [3.0, 1.0]]), np.full((2, 2), 2.0)
    >>> _calibration(counts, half, half / 4, np.array([4, 4]))
    [{'n': 2, 'predicted': 0.5, 'happened': 0.5, 'spread': 0.125}]
    """
    shown = slice(1, None) if observed.shape[1] == 2 else slice(None)
    members = np.broadcast_to(sizes[:, None], observed[:, shown].shape).ravel()
    seen, predicted, chance = (one[:, shown].ravel() for one in (observed, expected, variance))
    tenth = np.minimum((predicted / members * 10).astype(np.int64), 9)
    return [
        {
            "n": int(own.sum()),
            "predicted": float(predicted[own].sum() / members[own].sum()),
            "happened": float(seen[own].sum() / members[own].sum()),
            "spread": float(chance[own].sum() ** 0.5 / members[own].sum()),
        }
        for own in (tenth == one for one in np.unique(tenth))
    ]


def _answers(judged: ScoredGroups, chosen: Observations) -> dict[str, Any]:
    """Compare answers of yes or no with the probability of yes."""
    likely = judged.log_likelihood[judged.chosen].exp().numpy()
    yes = (chosen.z if chosen.z.ndim == 1 else chosen.z[:, 0]).bool().numpy()  # beside a rate of wrong answers
    predicted = np.where(yes, likely, 1 - likely).clip(0, 1)  # of yes; rounding may leave the range by a hair
    mean = partial(np.average, weights=chosen.weights.numpy())
    return {
        "form": "answers",
        "edges": TENTHS.tolist(),
        "no": histogram(predicted[~yes], TENTHS),
        "yes": histogram(predicted[yes], TENTHS),
        "bins": reliability(predicted, yes),
        "right": float(mean((predicted > 0.5) == yes)),
        "most_common": float(max(mean(yes), 1 - mean(yes))),
    }


def reliability(predicted: np.ndarray, happened: np.ndarray) -> list[dict[str, Any]]:
    """Return for each tenth of the range how often what was predicted with such a probability happened.

    Examples
    --------
    >>> reliability(np.array([0.95, 0.99, 0.12]), np.array([True, False, False]))[1]["happened"]
    0.5
    """
    place = np.minimum((predicted * 10).astype(np.int64), 9)
    return [
        {
            "n": int((place == tenth).sum()),
            "predicted": float(predicted[place == tenth].mean()),
            "happened": float(happened[place == tenth].mean()),
        }
        for tenth in np.unique(place)
    ]


def _confidence(judged: ScoredGroups) -> dict[str, Any]:
    """Compare how sure the model is of each member before and after the observation of its group is known."""
    certain = judged.posterior[~judged.posterior.isnan().any(1)]
    before = judged.log_probs.exp().max(1).values.numpy()
    after = certain.max(1).values.numpy().clip(0, 1)
    return {
        "edges": SHARES.tolist(),
        "before": histogram(before.clip(0, 1), SHARES),
        "after": histogram(after, SHARES),
        "mean_before": float(before.mean()),
        "mean_after": float(after.mean()) if len(after) else None,
        "without": len(judged.posterior) - len(certain),
    }


def _worst(judged: ScoredGroups) -> list[dict[str, Any]]:
    """List the groups whose observations the model finds least likely, beside what a constant prediction says."""
    order = judged.log_likelihood[judged.chosen].argsort(stable=True)
    return [
        {
            **_describe_group(judged.observations, number),
            "model": judged.log_likelihood[number].item(),
            "trivial": judged.constant[number].item(),
        }
        for number in judged.chosen[order[:MOST_LISTED]].tolist()
    ]


def _unsure(judged: ScoredGroups) -> list[dict[str, Any]]:
    """List the groups whose members have the lowest mean probability of their most likely class."""
    groups = judged.observations.groups
    before, after = (
        groups.segments.sum(probs.max(1).values.double()) / groups.sizes
        for probs in (judged.log_probs.exp(), judged.posterior)
    )
    return [
        {**_describe_group(judged.observations, number), "before": before[number].item(), "after": after[number].item()}
        for number in before.argsort(stable=True)[:MOST_LISTED].tolist()
    ]


def _describe_group(one: Observations, number: int) -> dict[str, Any]:
    return {
        "group": str(number if one.groups.ids is None else one.groups.ids[number]),
        "size": int(one.groups.sizes[number]),
        "observed": _say_observed(one, number),
    }


def _say_observed(one: Observations, number: int) -> Any:
    if one.aggregate.outcome == "published_counts":
        return [describe_statement(statement) for statement in one.checked[number].tolist()]
    return one.z[number].tolist()
