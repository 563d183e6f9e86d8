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

from unbag._utils.checks import check_choice
from unbag.data.row_source import Rows, row_shape
from unbag.data.scaling import ScalingName
from unbag.families import BoostedTrees, Classifiers, Family, Fitted, Networks, check_classifier, is_network
from unbag.families.choice import AUTO, FROM_DISK, check_processor, name_of
from unbag.families.components import LINEAR_FIRST, ComponentNetworks, is_wide
from unbag.families.starts import needs_guess
from unbag.fit_settings import MOST_ROUNDS, as_int, raise_rate, read_settings
from unbag.training import LongAfterFall, Objective, Observations, Plateau, Settings
from unbag.training.architectures import build
from unbag.training.launching import Launcher

HOOKS = ("optimiser", "schedule", "stopping", "views")
"""Settings that training takes as they are, code of the caller's own."""

# Progress of a network, as Plateau has it, beyond which more is not worth its time.
TOO_LITTLE = 5e-3

# Of so few groups none is spared to choose by, and more than so many rows and groups tell no better.
TOO_FEW_TO_SPLIT = 20
ENOUGH_ROWS, ENOUGH_GROUPS = 1 << 18, 200

# Of what is trained to its end: for how many times as long as it took to match mean proportions, and how.
TIMES_THE_FALL, TO_THE_END = 8, {"learning_rate": 1e-3, "weight_decay": 0.0}


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
    short: bool = False
    """Whether the time is too short for more than a rough likelihood."""

    def train(self) -> Fitted:
        """Train as the estimator was told to."""
        used, held_out = (
            [one.for_short_training() if self.short else one.for_training() for one in sets]
            for sets in (self.used, self.held_out)
        )
        return self.family.fit(self.X, used, held_out, self.seed, self.time_limit)


def choose_for_disk(choices: dict[str, Any]) -> dict[str, Any]:
    """Return the estimator's parameters for rows on disk, where "auto" is a network and one split of the groups."""
    if choices["n_folds"] not in (AUTO, None):
        raise ValueError(f"rows on disk are fitted with one split; leave n_folds= out, got {choices['n_folds']!r}")
    automatic = isinstance(choices["model"], str) and choices["model"] == AUTO
    return {**choices, "n_folds": None, "model": FROM_DISK if automatic else choices["model"]}


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
        family=make_family(choices, X, observations, objective, can_choose=bool(held_out)),
        model=choices["model"],
        X=X,
        used=[one for one, _ in parts],
        held_out=held_out,
        held_out_groups=[None if which is None else which.tolist() for _, which in parts],
        seed=seed,
        time_limit=read_time_limit(choices),
    )


def read_time_limit(choices: dict[str, Any]) -> float | None:
    """Return the seconds that a fit may take; None where it takes as long as it takes."""
    limit = choices["time_limit"]
    if limit is not None and (
        isinstance(limit, bool) or not isinstance(limit, int | float) or not 0 < limit < math.inf
    ):
        raise ValueError(f"time_limit must be a positive number of seconds, or None, got {limit!r}")
    return None if limit is None else float(limit)


def make_family(
    choices: dict[str, Any],
    X: Rows,
    observations: Sequence[Observations],
    objective: Objective | None = None,
    *,
    can_choose: bool,
) -> Family:
    """Return the models that the estimator was told to fit, with their settings.

    Parameters
    ----------
    choices, X, observations, objective
        Those of :func:`prepare`.
    can_choose
        Whether groups are left out by which progress can be told.
    """
    if is_network(choices["model"]):
        shape, model = row_shape(X), choices["model"]
        if not (isinstance(model, str) and model in LINEAR_FIRST and is_wide(X)):
            return _networks(choices, shape, observations, objective, can_choose=can_choose)
        scaling = choose_scalings(choices["scaling"], can_choose=False)[0]
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
    to_the_end = automatic and most_groups(observations) <= TOO_FEW_TO_SPLIT
    if to_the_end:
        left_open: dict[str, Any] = {name: value for name, value in TO_THE_END.items() if choices[name] == AUTO}
        settings = replace(settings, patience=None, **left_open)
    with_guess = by_progress and len(shape) == 1 and objective is None and needs_guess(observations)
    return Networks(
        make_net=make_net,
        settings=settings,
        early_stopping=can_choose and not to_the_end,
        guess="comparisons" if with_guess else None,
        scalings=choose_scalings(choices["scaling"], can_choose=can_choose and len(shape) == 1) * _restarts(choices),
        ensemble=choices["ensemble"],
        verbose=bool(choices["verbose"]),
        checkpoint=choices["checkpoint"],
        objective=objective,
        hooks=_hooks(choices, settings, can_choose=can_choose, to_the_end=to_the_end),
        launcher=read_launcher(choices),
    )


def most_groups(observations: Sequence[Observations]) -> int:
    """Return the number of groups of the set that has most."""
    return max(len(one.groups) for one in observations)


def _hooks(choices: dict[str, Any], settings: Settings, *, can_choose: bool, to_the_end: bool) -> dict[str, Any]:
    hooks = {name: choices[name] for name in HOOKS}
    if settings.steps is None:
        return hooks
    if hooks["stopping"] is None and to_the_end:
        hooks["stopping"] = LongAfterFall(TIMES_THE_FALL)
    elif hooks["stopping"] is None and settings.patience is not None:
        hooks["stopping"] = Plateau(settings.patience, settings.patient_from, TOO_LITTLE)
    if can_choose and hooks["schedule"] is None and hooks["optimiser"] is None and choices["learning_rate"] == AUTO:
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
        "rounds": settings.epochs if choices["epochs"] != AUTO else MOST_ROUNDS,
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


def choose_scalings(scaling: str, *, can_choose: bool) -> list[ScalingName]:
    """Return the scalings of columns to fit with; several, if they are left open and left-out groups can choose."""
    check_choice("scaling", scaling, ("auto", "none", "standard", "table"))
    if scaling == "auto":
        return ["standard", "table"] if can_choose else ["standard"]
    return [scaling]  # type: ignore[list-item]  # it was checked


def _restarts(choices: dict[str, Any]) -> int:
    n = as_int(choices["n_restarts"])
    if not isinstance(n, int) or n < 1:
        raise ValueError(f"n_restarts must be a whole number of at least 1, got {n!r}")
    return n
