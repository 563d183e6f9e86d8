"""Metrics of observed groups, scored by models that did not see their rows, and of labels that the fit did not use."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.metrics import accuracy_score, confusion_matrix, precision_recall_fscore_support
from torch import Tensor

from unbag.aggregates import Wording
from unbag.aggregates.base import Evidence
from unbag.data.histograms import histogram_of_sizes
from unbag.data.row_source import Rows
from unbag.estimators.class_names import match_classes, number_labels, read_labels
from unbag.published import MISSING, describe_statement, estimate
from unbag.training import Observations

MEMBERS_AT_ONCE = 65_536
MAX_LISTED = 15
MAX_MATRIX = 20
"""Number of classes up to which the confusion matrix is shown."""
MIN_VARIANCE = 0.01
"""Variance of a count at least: where a model is nearly certain, one wrong row is a few standard deviations."""
LABELS = Wording("Labels", "its label", "row", "rows")
SHARES, TENTHS = np.linspace(0, 1, 21), np.linspace(0, 1, 11)


@dataclass(frozen=True, eq=False)
class ScoredGroups:
    """A set of observations with the scores of its groups."""

    observations: Observations
    log_probs: Tensor  # (memberships, classes), before any observation is known
    folds: Tensor  # (memberships,), the fold whose models made the prediction; -1 for the models of all folds
    log_likelihood: Tensor  # (groups,)
    posterior: Tensor  # (memberships, classes)
    constant: Tensor  # (groups,), log-likelihood of the best constant prediction
    chosen: Tensor  # (chosen groups,), numbers of the groups that measures of quality use
    held_out: bool  # whether the chosen groups were held out; otherwise they are all groups


def find_held_out(observations: Observations, folds: Tensor) -> Tensor:
    """Return the numbers of the groups with a weight whose members are all predicted by models that did not see them.

    ``folds`` are those of memberships, -1 for the models of all folds.
    """
    n_seen = observations.groups.segments.sum((folds < 0).long())
    return ((n_seen == 0) & (observations.weights > 0)).nonzero().flatten()


def score_groups(clf: Any, rows: Rows, observations: Observations, folds: Tensor, constant: Tensor) -> ScoredGroups:
    """Score the groups of a set, each membership by the models of its fold, -1 for the models of all folds."""
    members = observations.groups.members
    log_probs = torch.empty(len(members), len(clf.classes_), dtype=torch.float64)
    for fold in folds.unique().tolist():
        inside = folds == fold
        distinct, place = members[inside].unique(return_inverse=True)
        log_probs[inside] = clf._predict_rows(rows, distinct, None if fold < 0 else fold)[place]
    held_out, evidence = find_held_out(observations, folds), compute_evidence(observations, log_probs)
    chosen = held_out if len(held_out) else observations.weights.nonzero().flatten()
    return ScoredGroups(observations, log_probs, folds, *evidence, constant, chosen, len(held_out) > 0)


def compute_evidence(observations: Observations, log_probs: Tensor) -> Evidence:
    """Compute likelihoods and posteriors from the log-probabilities of members, some groups at a time."""
    with torch.no_grad():
        parts = [
            observations.aggregate.checked_evidence(log_probs[entries], segments, observations.checked[which])
            for which, entries, segments in observations.groups.segments.runs(MEMBERS_AT_ONCE)
        ]
    return Evidence(*(torch.cat(values) for values in zip(*parts, strict=True)))


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
            **{"min": sizes.min(), "median": np.median(sizes), "max": sizes.max()},
            "histogram": histogram_of_sizes(sizes),
        },
        "weights": None if s.group_weights is None else [s.weights.min().item(), s.weights.max().item()],
        "judged": {
            **{"held_out": scored.held_out, "groups": len(scored.chosen)},
            "rows_also_trained_on": _share_of_seen_rows(scored),
        },
        "likelihood": _compare_likelihood(scored),
        "own_share": score_group_shares(s.take(scored.chosen)),
        "outcome": _compare_outcome(scored, classes),
        "confidence": _compare_confidence(scored),
        "worst": _list_worst(scored),
    }


def _share_of_seen_rows(scored: ScoredGroups) -> float:
    """Return the share of members of held-out groups whose rows the predicting models saw in other groups."""
    groups = scored.observations.groups
    n_rows = int(groups.members.max()) + 1
    low, high = (
        scored.folds.new_empty(n_rows).scatter_reduce_(0, groups.members, scored.folds, how, include_self=False)
        for how in ("amin", "amax")
    )
    return (low != high)[groups.members[groups.segments.take(scored.chosen)[0]]].double().mean().item()


def _compare_likelihood(scored: ScoredGroups) -> dict[str, Any]:
    """Compare with the constant prediction; impossible observations are counted, and left out of means."""
    weights = scored.observations.weights[scored.chosen].numpy()
    model, constant = (values[scored.chosen].numpy() for values in (scored.log_likelihood, scored.constant))
    possible = model > -np.inf
    means = [np.average(v[possible], weights=weights[possible]) if possible.any() else None for v in (model, constant)]
    return {
        **dict(zip(("model", "trivial"), means, strict=True)),
        "impossible": (~possible).sum(),
        "better": np.average((model > constant) & possible, weights=weights),
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
    mean = partial(np.average, axis=0, weights=chosen.weights.numpy())
    if chosen.aggregate.has_class_columns:
        observed, expected, variance = (v[scored.chosen].numpy() for v in _count(scored))  # (groups, classes)
        columns = {
            "observed": observed.sum(0),
            "expected": expected.sum(0),
            "error": mean(np.abs(observed - expected)),
            "trivial_error": mean(np.abs(observed - mean(observed))),
        }
        shown = slice(1, None) if len(classes) == 2 else slice(None)  # of two classes, the second implies the first
        members = np.broadcast_to(chosen.groups.sizes.numpy()[:, None], observed.shape)
        return {
            "form": "counts",
            "classes": [{"class": name} | {k: v[j] for k, v in columns.items()} for j, name in enumerate(classes)],
            "bins": reliability(*(values[:, shown].ravel() for values in (expected, observed, members, variance))),
        }
    likelihood = scored.log_likelihood[scored.chosen].exp().numpy()
    if not chosen.aggregate.is_binary(chosen.groups, chosen.n_classes):
        return {"form": "other"}
    yes = (chosen.z if chosen.z.ndim == 1 else chosen.z[:, 0]).bool().numpy()  # a further column is an error rate
    predicted = np.where(yes, likelihood, 1 - likelihood).clip(0, 1)  # rounding may exceed the range
    return {
        "form": "answers",
        "edges": TENTHS,
        "no": np.histogram(predicted[~yes], TENTHS)[0],
        "yes": np.histogram(predicted[yes], TENTHS)[0],
        "bins": reliability(predicted, yes),
        "right": mean((predicted > 0.5) == yes),
        "most_common": max(mean(yes), 1 - mean(yes)),
    }


def _count(scored: ScoredGroups) -> tuple[Tensor, Tensor, Tensor]:
    """Return observed and expected counts, and their variance if members are independent, ``(groups, classes)``."""
    s, probs = scored.observations, scored.log_probs.exp()
    counts, expected = s.checked.double(), s.groups.segments.sum(probs)
    if s.aggregate.outcome == "published_counts":
        counts, expected = estimate(counts), expected + counts[..., MISSING]
    return counts, expected, s.groups.segments.sum(probs * (1 - probs))


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
    s, worst, deviation, groups = scored.observations, scored.log_likelihood, None, []
    if s.aggregate.has_class_columns:
        counts, expected, variance = _count(scored)
        deviation = ((counts - expected).abs() / variance.clamp_min(MIN_VARIANCE).sqrt()).amax(1)
        worst = -deviation
    for number in scored.chosen[worst[scored.chosen].argsort(stable=True)[:MAX_LISTED]].tolist():
        observed: Any = s.z[number].tolist()
        if s.aggregate.outcome == "published_counts":
            observed = [describe_statement(statement) for statement in s.checked[number].tolist()]
        group = {
            "group": str(number if s.groups.ids is None else s.groups.ids[number]),
            "size": int(s.groups.sizes[number]),
            "observed": observed,
            "model": scored.log_likelihood[number].item(),
            "trivial": scored.constant[number].item(),
            "probability": scored.log_likelihood[number].exp().item(),
            "deviation": None if deviation is None else deviation[number].item(),
            "expected": None if deviation is None else [round(n, 1) for n in expected[number].tolist()],
        }
        groups.append(group)
    return groups


def compare_labels(
    clf: Any, X: Tensor, labels: Any, labelled_rows: Any, sets: Sequence[ScoredGroups]
) -> dict[str, Any]:
    """Compare predictions with labels, under the best of the permutations of classes that the observations allow.

    ``labelled_rows`` are the numbers of the rows with labels, None for all rows. Labelled members of groups are also
    compared given their observation.
    """
    names, numbers, rows = _read(clf, labels, labelled_rows, len(X))
    k, probs = len(names), clf._predict_rows(X, rows).exp()
    joint = torch.zeros(k, k, dtype=torch.float64).index_add_(0, numbers, probs).numpy()
    order, classes = match_classes(joint, clf.symmetry_), np.arange(k)
    confidence, guessed = probs[:, order].max(1)
    truth, predicted = numbers.numpy(), guessed.numpy()
    matrix = confusion_matrix(truth, predicted, labels=classes)  # (labels, predictions)
    bins = reliability(confidence.numpy().clip(0, 1), truth == predicted)
    precision, recall, *_ = precision_recall_fscore_support(truth, predicted, labels=classes, zero_division=np.nan)
    by_class = zip(names, matrix.sum(1), matrix.sum(0), recall, precision, strict=True)
    return {
        "rows": len(rows),
        "rows_in_groups": int(torch.isin(rows, torch.cat([s.observations.groups.members for s in sets])).sum()),
        "renamed": bool((order != classes).any()) or names != [str(name) for name in clf.classes_.tolist()],
        "classes": [dict(zip(("class", "rows", "called", "found", "correct"), row, strict=True)) for row in by_class],
        "accuracy": accuracy_score(truth, predicted),
        "most_common": matrix.sum(1).max() / len(rows),
        "known_observation": [_compare_given_observation(s, numbers, rows, order, len(X)) for s in sets],
        "calibration": bins,
        "calibration_error": sum(b["n"] * abs(b["predicted"] - b["happened"]) for b in bins) / len(rows),
        "confusion": matrix if k <= MAX_MATRIX else None,
    }


def _read(clf: Any, labels: Any, labelled_rows: Any, n_rows: int) -> tuple[list[str], Tensor, Tensor]:
    """Return the class names, the number of each label among them, and the labelled rows.

    Classes that the observations leave unnamed get the names of the labels, or a placeholder where there is none.
    """
    known = read_labels(labels)
    rows = torch.arange(n_rows) if labelled_rows is None else torch.as_tensor(np.asarray(labelled_rows)).long()
    if len(known) != len(rows):
        expected = f"{n_rows} rows of X" if labelled_rows is None else f"{len(rows)} labelled_rows"
        raise ValueError(f"labels has {len(known)} entries for {expected}; pass one for each")
    if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < n_rows:
        raise ValueError(
            f"labelled_rows must be row numbers from 0 to {n_rows - 1}, got {int(rows.min())} to {int(rows.max())}"
        )
    classes, distinct = clf.classes_, np.unique(known).tolist()
    if clf.symmetry_ in ("any", "reversal") and not {*distinct} <= {*classes.tolist()}:
        missing = len(classes) - len(distinct)
        if missing < 0 or (missing and clf.symmetry_ == "reversal"):
            raise ValueError(
                f"labels contain {len(distinct)} classes, {distinct[:10]}, but the classifier has {len(classes)}; name "
                "its classes with name_classes first"
            )
        classes = np.empty(len(classes), dtype=object)
        classes[:] = [*distinct, *(f"(no label, {place + 1})" for place in range(missing))]
    return [str(name) for name in classes.tolist()], number_labels(known, classes), rows


def _compare_given_observation(
    s: ScoredGroups, numbers: Tensor, rows: Tensor, order: np.ndarray, n_rows: int
) -> dict[str, Any] | None:
    """Return the accuracy on labelled members before and after the observation is known; None without such members."""
    truth = torch.full((n_rows,), -1).index_copy_(0, rows, numbers)[s.observations.groups.members]
    use = (truth >= 0) & ~s.posterior.isnan().any(1)
    if not bool(use.any()):
        return None
    before, after = (accuracy_score(truth[use], p[use][:, order].argmax(1)) for p in (s.log_probs, s.posterior))
    return {"memberships": int(use.sum()), "before": before, "after": after}
