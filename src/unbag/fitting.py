"""From the estimator's parameters to a family of models, and the groups it is fitted to and judged by."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import torch
from sklearn.utils import check_random_state
from torch import Tensor

from unbag.checks import check_choice
from unbag.families import BoostedTrees, Classifiers, Family, Fitted, Networks, check_classifier, is_network
from unbag.families.base import are_few_labels
from unbag.families.choice import (
    AUTO,
    CANDIDATES,
    CLUSTERS,
    EXTRA_TREES,
    FROM_DISK,
    KERNEL,
    MATCH,
    TREES,
    architecture,
    check_processor,
    name_of,
)
from unbag.families.components import LINEAR_FIRST, MOST_COLUMNS, ComponentNetworks, is_wide
from unbag.families.cross_fit import Align, CrossFitted, cross_fit
from unbag.families.extra_trees import ExtraTrees
from unbag.families.folds import tell_of_each_other
from unbag.families.kernel import KernelLogistic
from unbag.families.starts import needs_guess
from unbag.families.trees import has_lightgbm
from unbag.fit_settings import MOST_ROUNDS, ROUNDS_WITHOUT_SCORE, as_int, raise_rate, read_settings
from unbag.launching import Launcher
from unbag.models import build
from unbag.objectives import match_proportions
from unbag.training import Objective, Observations, Plateau, Settings
from unbag.training.row_source import Rows, row_shape
from unbag.training.scaling import ScalingName

HOOKS = ("optimiser", "schedule", "stopping", "views")
"""Settings that training takes as they are, code of the caller's own."""

OF_FEW_LABELS: dict[str, type[Family]] = {EXTRA_TREES: ExtraTrees, KERNEL: KernelLogistic}
"""Candidates that have no parameters."""

# Progress of a network, as Plateau has it, beyond which more is not worth its time.
TOO_LITTLE = 5e-3

# Of so few groups none is spared to choose by, and more than so many rows and groups tell no better.
TOO_FEW_TO_SPLIT = 20
ENOUGH_ROWS, ENOUGH_GROUPS = 1 << 18, 200

# Of more groups, networks learn as much without clusters. Where nothing tells when to stop, networks that begin with
# clusters go on from these for so many looks.
GROUPS_OF_CLUSTERS, LOOKS_AFTER_CLUSTERS = 100, 5

# Every round of boosting has a tree for each class.
MOST_CLASSES_OF_TREES = 64

# Where groups are few, each is a large part of what can be learned, and fewer of them are spared at a time.
N_FOLDS, N_FOLDS_OF_FEW, FEW_GROUPS = 4, 8, 40
# Of what is trained to its end: as many as have brought the match of mean proportions there, and how.
LOOKS_TO_THE_END, TO_THE_END = 100, {"learning_rate": 1e-3, "weight_decay": 0.0}


@dataclass(frozen=True, eq=False)
class Prepared:
    """Everything that a fit needs, checked."""

    family: Family
    model: Any
    """What the family is made from, where it was left open."""
    X: Rows
    used: list[Observations]
    held_out: list[Observations]
    held_out_groups: list[list[int] | None]
    """The numbers of these groups in each set; None where none is held out."""
    seed: int
    time_limit: float | None

    def train(self) -> Fitted:
        """Train as the estimator was told to."""
        return self.family.fit(self.X, self.used, self.held_out, self.seed, self.time_limit)


@dataclass(frozen=True, eq=False)
class CrossPrepared:
    """Everything that a fit over folds needs, checked."""

    candidates: dict[str, Family]
    X: Tensor
    observations: list[Observations]
    n_folds: int
    seed: int
    choose: bool
    """Whether left-out groups choose when to stop, and among candidates."""
    time_limit: float | None

    def train(self, align: Align) -> CrossFitted:
        """Fit every candidate on all folds but one in turn."""
        names = ("n_folds", "seed", "choose", "time_limit")
        settings: dict[str, Any] = {name: getattr(self, name) for name in names}
        return cross_fit(self.candidates, self.X, self.observations, align, **settings)


def choose_for_disk(choices: dict[str, Any]) -> dict[str, Any]:
    """Return the estimator's parameters for rows on disk, where "auto" is a network and one split of the groups."""
    if choices["n_folds"] not in (AUTO, None):
        raise ValueError(f"rows on disk are fitted with one split; leave n_folds= out, got {choices['n_folds']!r}")
    automatic = isinstance(choices["model"], str) and choices["model"] == AUTO
    return {**choices, "n_folds": None, "model": FROM_DISK if automatic else choices["model"]}


def prepare_folds(
    choices: dict[str, Any], X: Any, observations: Sequence[Observations], seed: int
) -> CrossPrepared | None:
    """Check all that the estimator was told of a fit over folds; None where there is one split of the groups.

    Parameters are those of :func:`prepare`.
    """
    if not 0 <= choices["validation_fraction"] < 1:
        given = choices["validation_fraction"]
        raise ValueError(f"validation_fraction must be at least 0 and less than 1, got {given!r}")
    n_folds, model = as_int(choices["n_folds"]), choices["model"]
    automatic = isinstance(model, str) and model == AUTO
    if n_folds == AUTO:
        n_folds = (N_FOLDS_OF_FEW if _most_groups(observations) <= FEW_GROUPS else N_FOLDS) if automatic else None
    if n_folds is None:
        if automatic:
            raise ValueError('model="auto" chooses by left-out groups: give n_folds of at least 2, or name a model')
        return None
    if not isinstance(n_folds, int) or n_folds < 2:
        raise ValueError(f"n_folds must be a whole number of at least 2, or None, got {n_folds!r}")
    counting = [one.counting() for one in observations]
    if all(len(one.groups) == 1 for one in counting):
        raise ValueError(
            "a single group cannot be left out to choose by; name a model and give n_folds=None, or collect more groups"
        )
    names = _candidates(X, counting, by_progress=choices["epochs"] == AUTO) if automatic else [model]
    choose = not automatic or choices["epochs"] != AUTO or choices["patience"] != AUTO or tell_of_each_other(counting)
    if automatic and bool(X.isnan().any()):
        names, choose = [name for name in names if name == TREES], True
        if not names:
            raise ValueError("X holds NaN, which only trees of tables can read; leave out or fill in what is missing")
    elif not choose:
        of_few = ("linear", CLUSTERS) if CLUSTERS in names else ("linear", "mlp", MATCH)  # trees must be stopped
        names = [name for name in names if name in of_few]
    candidates = {}
    for name in names:
        own = {**choices, "model": architecture(name) if automatic else name}
        if automatic and name == TREES:  # on the processor; interrupted, they begin anew, which is soon done
            own |= {"checkpoint": None, "device": "cpu", "devices": 1, "nodes": 1, **dict.fromkeys(HOOKS)}
        called = name if isinstance(name, str) else getattr(name, "__name__", type(name).__name__)
        objective = match_proportions if automatic and name == MATCH else None
        made = OF_FEW_LABELS.get(name) if automatic else None
        candidates[called] = _family(own, X, counting, objective, can_choose=choose) if made is None else made()
        if automatic and name == CLUSTERS:
            candidates[called] = _from_clusters(candidates[called], can_choose=choose)
    return CrossPrepared(candidates, X, counting, n_folds, seed, choose, _time_limit(choices))


def _candidates(X: Tensor, observations: Sequence[Observations], *, by_progress: bool) -> list[str]:
    """Return the models that an automatic one chooses from; with a number of epochs, all begin at random."""
    counted = all(one.aggregate.outcome == "class_counts" for one in observations)
    if is_wide(X) and X.shape[1] > MOST_COLUMNS:
        return [CANDIDATES[0]]
    grouped = counted and any(one.groups.max_size > 1 for one in observations)
    few = are_few_labels(X, observations)
    fit = {
        TREES: X.ndim == 2 and has_lightgbm() and observations[0].n_classes <= MOST_CLASSES_OF_TREES,
        EXTRA_TREES: few and has_lightgbm(),
        KERNEL: few,
        MATCH: grouped,
        CLUSTERS: by_progress and grouped and not is_wide(X) and _most_groups(observations) <= GROUPS_OF_CLUSTERS,
    }
    return [name for name in CANDIDATES if fit.get(name, True)]


def prepare(
    choices: dict[str, Any],
    X: Rows,
    observations: Sequence[Observations],
    seed: int,
    *,
    objective: Objective | None = None,
) -> Prepared:
    """Check all that the estimator was told, and decide what was left open.

    Parameters
    ----------
    choices
        The estimator's parameters.
    X, observations
        What to learn from, on the device to train on.
    seed
        Of the split and of the first replica; further replicas have the numbers that follow.
    objective
        What is minimised in place of what the settings say, by networks; see :func:`unbag.training.train`.
    """
    parts = [split_groups(one, choices["validation_fraction"], seed) for one in observations]
    held_out = [one.take(which) for one, (_, which) in zip(observations, parts, strict=True) if which is not None]
    return Prepared(
        family=_family(choices, X, observations, objective, can_choose=bool(held_out)),
        model=choices["model"],
        X=X,
        used=[one for one, _ in parts],
        held_out=held_out,
        held_out_groups=[None if which is None else which.tolist() for _, which in parts],
        seed=seed,
        time_limit=_time_limit(choices),
    )


def _time_limit(choices: dict[str, Any]) -> float | None:
    limit = choices["time_limit"]
    if limit is not None and (
        isinstance(limit, bool) or not isinstance(limit, int | float) or not 0 < limit < math.inf
    ):
        raise ValueError(f"time_limit must be a positive number of seconds, or None, got {limit!r}")
    return None if limit is None else float(limit)


def _family(
    choices: dict[str, Any],
    X: Rows,
    observations: Sequence[Observations],
    objective: Objective | None = None,
    *,
    can_choose: bool,
) -> Family:
    if is_network(choices["model"]):
        shape, model = row_shape(X), choices["model"]
        if not (isinstance(model, str) and model in LINEAR_FIRST and is_wide(X)):
            return _networks(choices, shape, observations, objective, can_choose=can_choose)
        scaling = _scalings(choices["scaling"], can_choose=False)[0]
        own = {**choices, "scaling": "table"}
        return ComponentNetworks(
            lambda n: _networks(own, (n,), observations, objective, can_choose=can_choose),
            build(model, shape, observations[0].n_classes),
            scaling,
        )
    return _in_rounds(choices, observations, can_choose=can_choose)


def _networks(
    choices: dict[str, Any],
    shape: tuple[int, ...],
    observations: Sequence[Observations],
    objective: Objective | None,
    *,
    can_choose: bool,
) -> Networks:
    make_net = build(choices["model"], shape, observations[0].n_classes)
    if choices["checkpoint"] is not None and not isinstance(choices["random_state"], Integral):
        raise ValueError(
            f"checkpoint needs a random_state that is a whole number, got {choices['random_state']!r}: otherwise no "
            "run can go on from where another was"
        )
    settings = read_settings(choices, observations, can_choose=can_choose)
    # The match of mean proportions still improves when the likelihood of a few left-out groups has long had its best.
    by_progress = settings.steps is not None
    automatic = objective is not None and by_progress and choices["patience"] == AUTO
    to_the_end = automatic and _most_groups(observations) <= TOO_FEW_TO_SPLIT
    if to_the_end:
        left_open: dict[str, Any] = {name: value for name, value in TO_THE_END.items() if choices[name] == AUTO}
        settings = replace(settings, epochs=LOOKS_TO_THE_END, patience=None, **left_open)
    with_guess = by_progress and len(shape) == 1 and objective is None and needs_guess(observations)
    return Networks(
        make_net=make_net,
        settings=settings,
        early_stopping=can_choose and not to_the_end,
        guess="comparisons" if with_guess else None,
        scalings=_scalings(choices["scaling"], can_choose=can_choose and len(shape) == 1) * _restarts(choices),
        ensemble=choices["ensemble"],
        verbose=bool(choices["verbose"]),
        checkpoint=choices["checkpoint"],
        objective=objective,
        hooks=_hooks(choices, settings, can_choose=can_choose),
        launcher=read_launcher(choices),
    )


def _from_clusters(networks: Family, *, can_choose: bool) -> Networks:
    """Let networks begin with clusters, and learn for long only where left-out groups tell when to stop."""
    assert isinstance(networks, Networks)
    settings = networks.settings
    if not can_choose:
        settings = replace(settings, epochs=LOOKS_AFTER_CLUSTERS, warm_up=LOOKS_AFTER_CLUSTERS)
    return replace(networks, guess="counts", settings=settings)


def _most_groups(observations: Sequence[Observations]) -> int:
    return max(len(one.groups) for one in observations)


def _hooks(choices: dict[str, Any], settings: Settings, *, can_choose: bool) -> dict[str, Any]:
    hooks = {name: choices[name] for name in HOOKS}
    if not can_choose or settings.steps is None:
        return hooks
    if hooks["stopping"] is None and settings.patience is not None:
        hooks["stopping"] = Plateau(settings.patience, settings.patient_from, TOO_LITTLE)
    if hooks["schedule"] is None and hooks["optimiser"] is None and choices["learning_rate"] == AUTO:
        hooks["schedule"] = raise_rate
    return hooks


def read_launcher(choices: dict[str, Any]) -> Launcher:
    """Return how the processes are started that the parameters of the estimator ask for."""
    return Launcher(as_int(choices["devices"]), as_int(choices["nodes"]), choices["device"])


def _in_rounds(choices: dict[str, Any], observations: Sequence[Observations], *, can_choose: bool) -> Family:
    """Return trees or a classifier of scikit-learn, which look at few of the parameters."""
    model = choices["model"]
    check_processor(model, choices["device"])
    if read_launcher(choices).several:
        raise ValueError(f"{name_of(model)} is fitted in one process: start no others, or take a network")
    if choices["checkpoint"] is not None:
        raise ValueError(f"{name_of(model)} cannot go on from where it was interrupted; leave checkpoint= out")
    if given := [name for name in HOOKS if choices[name] is not None]:
        raise ValueError(f"{name_of(model)} is not trained by steps; leave {given[0]}= out, or take a network")
    settings = read_settings(choices, observations, can_choose=can_choose)
    shared: dict[str, Any] = {
        "rounds": settings.epochs if choices["epochs"] != AUTO else MOST_ROUNDS if can_choose else ROUNDS_WITHOUT_SCORE,
        "patience": settings.patience if choices["patience"] != AUTO else 30,
        "n_restarts": _restarts(choices),
        "verbose": bool(choices["verbose"]),
    }
    if isinstance(model, str):
        return BoostedTrees(**shared)
    check_classifier(model)
    return Classifiers(model, **shared)


def first_seed(random_state: Any) -> int:
    """Return the seed that a fit starts from; for a whole number it is the same every time.

    Examples
    --------
    >>> first_seed(0) == first_seed(0) != first_seed(1)
    True
    """
    return int(check_random_state(random_state).randint(2**31 - 1))


def split_groups(one: Observations, share: float, seed: int) -> tuple[Observations, Tensor | None]:
    """Return the groups to train on, and the numbers of those held out, if any."""
    counting = one.counting()
    if share == 0 or len(counting.groups) <= TOO_FEW_TO_SPLIT:
        return counting, None
    share = min(share, max(ENOUGH_ROWS / len(counting.groups.members), ENOUGH_GROUPS / len(counting.groups)))
    kept, held_out = one.split_indices(share, torch.Generator().manual_seed(seed))
    return one.take(kept), held_out


def _scalings(scaling: str, *, can_choose: bool) -> list[ScalingName]:
    check_choice("scaling", scaling, ("auto", "none", "standard", "table"))
    if scaling == "auto":
        return ["standard", "table"] if can_choose else ["standard"]
    return [scaling]  # type: ignore[list-item]  # it was checked


def _restarts(choices: dict[str, Any]) -> int:
    n = as_int(choices["n_restarts"])
    if not isinstance(n, int) or n < 1:
        raise ValueError(f"n_restarts must be a whole number of at least 1, got {n!r}")
    return n
