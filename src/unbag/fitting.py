"""From the estimator's parameters to a family of models, and the groups it is fitted to and judged by."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import torch
from sklearn.utils import check_random_state
from torch import Tensor

from unbag.checks import check_choice
from unbag.families import BoostedTrees, Classifiers, Family, Fitted, Networks, check_classifier, is_network
from unbag.families.choice import AUTO, CANDIDATES, FROM_DISK, TREES, check_processor, name_of
from unbag.families.cross_fit import Align, CrossFitted, cross_fit
from unbag.families.trees import has_lightgbm
from unbag.models import build
from unbag.symmetry import find_symmetry
from unbag.training import Objective, Observations, Settings
from unbag.training.row_source import Rows, row_shape
from unbag.training.scaling import ScalingName

HOOKS = ("optimiser", "schedule", "stopping", "views")
"""Settings that training takes as they are, code of the caller's own."""

# Of so few groups none is spared to choose by, and more than so many rows and groups tell no better.
TOO_FEW_TO_SPLIT = 20
ENOUGH_ROWS, ENOUGH_GROUPS = 1 << 18, 200

N_FOLDS = 4

# Progress is looked at after so many steps, or after all groups where these are more, and training ends when nothing
# has improved for so long.
LEAST_STEPS, MOST_STEPS = 20, 500
PATIENCE = 10
MOST_LOOKS = 300
# Without left-out groups nothing tells when to stop.
LOOKS_WITHOUT_SCORE = 10
ROUNDS_WITHOUT_SCORE = 50

ROWS_A_STEP = 1024
AVERAGING = 0.99
# Groups with more members than this are large.
LARGE = 32
# The rate, and what a weight loses at a step of that rate times itself.
LINEAR_RATES = (3e-2, 0.1)
RATES = (2e-3, 1.0)


@dataclass(frozen=True, eq=False)
class Prepared:
    """Everything that a fit needs, checked."""

    family: Family
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
    time_limit: float | None

    def train(self, align: Align) -> CrossFitted:
        """Fit every candidate on all folds but one in turn."""
        settings: dict[str, Any] = {"n_folds": self.n_folds, "seed": self.seed, "time_limit": self.time_limit}
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
    n_folds, model = _whole(choices["n_folds"]), choices["model"]
    automatic = isinstance(model, str) and model == AUTO
    if n_folds == AUTO:
        n_folds = N_FOLDS if automatic else None
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
    names = [name for name in CANDIDATES if name != TREES or (X.ndim == 2 and has_lightgbm())] if automatic else [model]
    if automatic and bool(X.isnan().any()):
        names = [name for name in names if name == TREES]
        if not names:
            raise ValueError("X holds NaN, which only trees of tables can read; leave out or fill in what is missing")
    candidates = {}
    for name in names:
        own = {**choices, "model": name}
        if own["scaling"] == AUTO:  # one for all folds, whose models are averaged
            own["scaling"] = "standard"
        if automatic and name == TREES:  # on the processor; interrupted, they begin anew, which is soon done
            own |= {"checkpoint": None, "device": "cpu", **dict.fromkeys(HOOKS)}
        called = name if isinstance(name, str) else getattr(name, "__name__", type(name).__name__)
        candidates[called] = _family(own, X, counting, can_choose=True)
    return CrossPrepared(candidates, X, counting, n_folds, seed, _time_limit(choices))


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
        return _networks(choices, X, observations, objective, can_choose=can_choose)
    return _in_rounds(choices, observations, can_choose=can_choose)


def _networks(
    choices: dict[str, Any],
    X: Rows,
    observations: Sequence[Observations],
    objective: Objective | None,
    *,
    can_choose: bool,
) -> Networks:
    shape = row_shape(X)
    make_net = build(choices["model"], shape, observations[0].n_classes)
    if choices["checkpoint"] is not None and not isinstance(choices["random_state"], Integral):
        raise ValueError(
            f"checkpoint needs a random_state that is a whole number, got {choices['random_state']!r}: otherwise no "
            "run can go on from where another was"
        )
    settings = read_settings(choices, observations, can_choose=can_choose)
    # Where all rows look alike at first, restarts end in different places: some begin with clusters.
    unnamed = find_symmetry([one.counting() for one in observations]) != "none"
    return Networks(
        make_net=make_net,
        settings=settings,
        guess=settings.steps is not None and len(shape) == 1 and objective is None and unnamed,
        scalings=_scalings(choices["scaling"], can_choose=can_choose and len(shape) == 1) * _restarts(choices),
        ensemble=choices["ensemble"],
        verbose=bool(choices["verbose"]),
        checkpoint=choices["checkpoint"],
        objective=objective,
        hooks={name: choices[name] for name in HOOKS},
    )


def _in_rounds(choices: dict[str, Any], observations: Sequence[Observations], *, can_choose: bool) -> Family:
    """Return trees or a classifier of scikit-learn, which look at few of the parameters."""
    model = choices["model"]
    check_processor(model, choices["device"])
    if choices["checkpoint"] is not None:
        raise ValueError(f"{name_of(model)} cannot go on from where it was interrupted; leave checkpoint= out")
    if given := [name for name in HOOKS if choices[name] is not None]:
        raise ValueError(f"{name_of(model)} is not trained by steps; leave {given[0]}= out, or take a network")
    settings = read_settings(choices, observations, can_choose=can_choose)
    shared: dict[str, Any] = {
        "rounds": settings.epochs if choices["epochs"] != AUTO else MOST_LOOKS if can_choose else ROUNDS_WITHOUT_SCORE,
        "patience": settings.patience if choices["patience"] != AUTO else 30,
        "n_restarts": _restarts(choices),
        "verbose": bool(choices["verbose"]),
    }
    if isinstance(model, str):
        return BoostedTrees(**shared)
    check_classifier(model)
    return Classifiers(model, **shared)


def read_settings(
    choices: dict[str, Any], observations: Sequence[Observations], *, can_choose: bool = True
) -> Settings:
    """Return the settings of the loop, with what is "auto" decided by the observations.

    Parameters
    ----------
    choices
        The estimator's parameters.
    observations
        What is learned from.
    can_choose
        Whether groups are left out by which progress can be told.
    """
    check_choice("method", choices["method"], (AUTO, "uum", "likelihood"))
    check_choice("weights", choices["weights"], (AUTO, "current", "remembered"))
    given = {name: _whole(choices[name]) for name in ("epochs", "warm_up", "batch_size", "patience")}
    by_progress = given["epochs"] == AUTO
    observations = [one.counting() for one in observations]
    aggregates = [one.aggregate for one in observations]
    epochs = (MOST_LOOKS if can_choose else LOOKS_WITHOUT_SCORE) if by_progress else given["epochs"]
    method, warm_up, weights = choices["method"], given["warm_up"], choices["weights"]
    for name in ("warm_up", "batch_size"):
        if given[name] != AUTO:
            Settings(**{name: given[name]})  # refused before anything is made of it, or where nothing is
    if method == AUTO:
        method = "likelihood" if by_progress and choices["loss"] == "cross_entropy" else "uum"
    if method == "likelihood":
        warm_up = epochs
    elif warm_up == AUTO:
        # Where a few rows are compared, or classes can be interchanged, weights that favour no class would teach
        # nothing at first.
        compared = any(one.size is not None for one in aggregates) or find_symmetry(observations) != "none"
        warm_up = (PATIENCE if by_progress else epochs // 2) if compared else 0
    if weights == AUTO:
        # A label says all there is to say of its row: there is nothing to remember. In large groups, what the model
        # said at the last visit is too old.
        labels = all(one.groups.max_size == 1 for one in observations)
        large = any(one.groups.max_size > LARGE for one in observations)
        now = labels or large or any(one.weights == "current" for one in aggregates)
        weights = "current" if now else "remembered"
    batch_size = given["batch_size"]
    if batch_size == AUTO:
        batch_size = rows_to_groups(observations) if by_progress else 128
    rates = LINEAR_RATES if choices["model"] in ("linear", "logistic") else RATES
    rate, decay = (
        usual if isinstance(given, str) and given == AUTO else given
        for given, usual in zip(
            (choices["learning_rate"], choices["weight_decay"]), rates if by_progress else (1e-3, 0.0), strict=True
        )
    )
    one_pass = math.ceil(max((len(one.groups) for one in observations), default=1) / max(int(batch_size), 1))
    return Settings(
        epochs=epochs,
        warm_up=warm_up,
        loss=choices["loss"],
        remember_from=0 if weights == "remembered" and warm_up != epochs else None,
        batch_size=batch_size,
        steps=min(max(LEAST_STEPS, one_pass), MOST_STEPS) if by_progress else None,
        learning_rate=rate,
        weight_decay=decay,
        decoupled=by_progress,
        averaging=AVERAGING if by_progress else 0.0,
        patience=(PATIENCE if by_progress else 30) if given["patience"] == AUTO else given["patience"],
    )


def rows_to_groups(observations: Sequence[Observations]) -> int:
    """Return how many groups of the set with the most groups have about as many rows as a step should have.

    Examples
    --------
    >>> from unbag import Groups, LabelProportions
    >>> counts = Observations(LabelProportions(), Groups.from_sizes([64] * 100), [[32, 32]] * 100, 2)
    >>> rows_to_groups([counts])
    16
    """
    most = max(observations, key=lambda one: len(one.groups), default=None)
    if most is None:
        return 1
    n = len(most.groups)
    return max(1, min(n, max(2, round(ROWS_A_STEP * n / len(most.groups.members)))))


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
    n = _whole(choices["n_restarts"])
    if not isinstance(n, int) or n < 1:
        raise ValueError(f"n_restarts must be a whole number of at least 1, got {n!r}")
    return n


def _whole(value: Any) -> Any:
    """Return a plain int for numpy's, as they come out of a grid of parameters."""
    return int(value) if isinstance(value, Integral) and not isinstance(value, bool) else value
