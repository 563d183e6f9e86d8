"""Metrics of one set of observations: likelihood, observed against predicted values, confidence."""

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

MAX_POINTS = 1000
MAX_LISTED = 15

LABELS = Wording("Labels", "its label", "row", "rows")

SHARES = np.linspace(0, 1, 21)
TENTHS = np.linspace(0, 1, 11)


def describe_set(scored: ScoredGroups, classes: list[str]) -> dict[str, Any]:
    """Return what a report shows of a set."""
    s = scored.observations
    sizes = s.groups.sizes.numpy()
    are_labels = s.aggregate.outcome == "class_counts" and s.groups.max_size == 1
    return {
        "kind": "labels" if are_labels else s.aggregate.name,
        "wording": asdict(LABELS if are_labels else s.aggregate.wording),
        "aggregate": repr(s.aggregate),
        "groups": len(s.groups),
        "memberships": len(s.groups.members),
        "rows": len(s.groups.members.unique()),
        "sizes": {
            "min": int(sizes.min()),
            "median": float(np.median(sizes)),
            "max": int(sizes.max()),
            "histogram": histogram_of_sizes(sizes),
        },
        "weights": None if s.group_weights is None else [float(s.weights.min()), float(s.weights.max())],
        "judged": {
            "held_out": scored.held_out,
            "folds": int(scored.folds.max()) + 1 if scored.held_out else None,
            "groups": len(scored.chosen),
        },
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
    edges = span(gain, n_bins=min(20, 4 + len(gain) // 8))

    def mean(values: np.ndarray) -> float | None:
        return float(np.average(values[possible], weights=weights[possible])) if possible.any() else None

    return {
        "model": mean(model),
        "trivial": mean(constant),
        "impossible": int((~possible).sum()),
        "better": float(np.average((model > constant) & possible, weights=weights)),
        "edges": edges.tolist(),
        "counts": histogram(gain, edges),
    }


def score_group_shares(chosen: Observations) -> dict[str, Any] | None:
    """Score the prediction that gives every member the class shares of its own group; None where they are unknown.

    Only who knows the counts can make it. ``accuracy`` is that of the most frequent class of each group.
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
    return {"form": "other", "edges": TENTHS.tolist(), "counts": histogram(likelihood, TENTHS)}


def _compare_counts(chosen: Observations, probs: Tensor, classes: list[str]) -> dict[str, Any]:
    """Compare counts with those expected from the probabilities of the members, shape ``(memberships, classes)``."""
    segments = chosen.groups.segments
    checked, expected = chosen.checked.double(), segments.sum(probs)
    if chosen.aggregate.outcome == "published_counts":
        checked, expected = estimate(checked), expected + checked[..., MISSING]
    observed, expected = checked.numpy(), expected.numpy()  # (groups, classes)
    mean = partial(np.average, axis=0, weights=chosen.weights.numpy())
    error, constant_error = mean(np.abs(observed - expected)), mean(np.abs(observed - mean(observed)))
    sizes = np.rint(expected.sum(1, keepdims=True))
    drawn = evenly(len(observed), max(1, MAX_POINTS // len(classes)))
    points = np.stack([observed / sizes, expected / sizes], -1)[drawn].reshape(-1, 2)
    # Of two classes, the second implies the first.
    shown = slice(1, None) if len(classes) == 2 else slice(None)
    members = np.broadcast_to(segments.sizes.numpy()[:, None], observed.shape)
    variance = segments.sum(probs * (1 - probs)).numpy()
    return {
        "form": "counts",
        "classes": [
            {
                "class": name,
                "observed": float(observed[:, j].sum()),
                "expected": float(expected[:, j].sum()),
                "error": float(error[j]),
                "trivial_error": float(constant_error[j]),
            }
            for j, name in enumerate(classes)
        ],
        "points": points[evenly(len(points), MAX_POINTS)].round(4).tolist(),
        "groups_drawn": len(drawn),
        "bins": reliability(*(values[:, shown].ravel() for values in (expected, observed, members, variance))),
    }


def _compare_answers(chosen: Observations, likelihood: np.ndarray) -> dict[str, Any]:
    """Compare answers of yes or no with the predicted probability of yes."""
    yes = (chosen.z if chosen.z.ndim == 1 else chosen.z[:, 0]).bool().numpy()  # a further column is an error rate
    predicted = np.where(yes, likelihood, 1 - likelihood).clip(0, 1)  # rounding may exceed the range
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


def reliability(
    predicted: np.ndarray, observed: np.ndarray, members: np.ndarray | None = None, variance: np.ndarray | None = None
) -> list[dict[str, Any]]:
    """Compare predicted with observed shares, in tenths of the predicted ones.

    Parameters
    ----------
    predicted, observed
        Probabilities and outcomes, or expected and observed counts.
    members
        Numbers of members that are counted; None for single cases.
    variance
        Variances of the counts if the prediction is right and members are independent, which give each tenth a spread.

    Examples
    --------
    >>> reliability(np.array([0.95, 0.99, 0.12]), np.array([True, False, False]))[1]["happened"]
    0.5
    >>> reliability(np.full(2, 2.0), np.array([3.0, 1.0]), np.array([4, 4]), np.ones(2))
    [{'n': 2, 'predicted': 0.5, 'happened': 0.5, 'spread': 0.17677669529663687}]
    """
    members = np.ones(len(predicted)) if members is None else members
    tenth = np.minimum((predicted / members * 10).astype(np.int64), 9)
    bins: list[dict[str, Any]] = []
    for place in np.unique(tenth):
        inside = tenth == place
        total = members[inside].sum()
        shares = {"predicted": predicted[inside].sum() / total, "happened": observed[inside].sum() / total}
        if variance is not None:
            shares["spread"] = variance[inside].sum() ** 0.5 / total
        bins.append({"n": int(inside.sum()), **{name: float(share) for name, share in shares.items()}})
    return bins


def _compare_confidence(scored: ScoredGroups) -> dict[str, Any]:
    """Compare the probability of the most likely class before and after the observation is known."""
    defined = scored.posterior[~scored.posterior.isnan().any(1)]
    before, after = (probs.max(1).values.numpy().clip(0, 1) for probs in (scored.log_probs.exp(), defined))
    return {
        "edges": SHARES.tolist(),
        "before": histogram(before, SHARES),
        "after": histogram(after, SHARES),
        "mean_before": float(before.mean()),
        "mean_after": float(after.mean()) if len(after) else None,
        "without": len(scored.posterior) - len(defined),
    }


def _list_worst(scored: ScoredGroups) -> list[dict[str, Any]]:
    """List the groups with the lowest likelihood."""
    order = scored.log_likelihood[scored.chosen].argsort(stable=True)[:MAX_LISTED]
    values = {"model": scored.log_likelihood, "trivial": scored.constant}
    return [_describe_group(scored.observations, number, values) for number in scored.chosen[order].tolist()]


def _list_unsure(scored: ScoredGroups) -> list[dict[str, Any]]:
    """List the groups whose members have the lowest mean probability of their most likely class."""
    groups = scored.observations.groups
    before, after = (
        groups.segments.sum(probs.max(1).values.double()) / groups.sizes
        for probs in (scored.log_probs.exp(), scored.posterior)
    )
    order, values = before.argsort(stable=True)[:MAX_LISTED], {"before": before, "after": after}
    return [_describe_group(scored.observations, number, values) for number in order.tolist()]


def _describe_group(s: Observations, number: int, values: dict[str, Tensor]) -> dict[str, Any]:
    observed: Any = s.z[number].tolist()
    if s.aggregate.outcome == "published_counts":
        observed = [describe_statement(statement) for statement in s.checked[number].tolist()]
    return {
        "group": str(number if s.groups.ids is None else s.groups.ids[number]),
        "size": int(s.groups.sizes[number]),
        "observed": observed,
        **{name: of_groups[number].item() for name, of_groups in values.items()},
    }
