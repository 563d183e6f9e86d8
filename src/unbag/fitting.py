"""From the estimator's parameters to a family of models, and the groups it is fitted to and judged by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import torch
from sklearn.utils import check_random_state
from torch import Tensor

from unbag.checks import check_choice
from unbag.families import BoostedTrees, Classifiers, Family, Fitted, Networks, check_classifier, is_network
from unbag.families.choice import check_processor, name_of
from unbag.models import build
from unbag.symmetry import find_symmetry
from unbag.training import Objective, Observations, Settings
from unbag.training.scaling import How

# Of so few groups none is spared to choose by.
TOO_FEW_TO_SPLIT = 20


@dataclass(frozen=True, eq=False)
class Prepared:
    """Everything that a fit needs, checked."""

    family: Family
    X: Tensor
    used: list[Observations]
    held_out: list[Observations]
    held_out_groups: list[list[int] | None]
    """The numbers of these groups in each set; None where none is held out."""
    seed: int

    def train(self) -> Fitted:
        """Train as the estimator was told to."""
        return self.family.fit(self.X, self.used, self.held_out, self.seed)


def prepare(
    choices: dict[str, Any],
    X: Tensor,
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
    family: Family
    if is_network(choices["model"]):
        family = _networks(choices, X, observations, objective, can_choose=bool(held_out) and X.ndim == 2)
    else:
        family = _in_rounds(choices, observations)
    return Prepared(
        family=family,
        X=X,
        used=[one for one, _ in parts],
        held_out=held_out,
        held_out_groups=[None if which is None else which.tolist() for _, which in parts],
        seed=seed,
    )


def _networks(
    choices: dict[str, Any],
    X: Tensor,
    observations: Sequence[Observations],
    objective: Objective | None,
    *,
    can_choose: bool,
) -> Networks:
    make_net = build(choices["model"], X.shape[1:], observations[0].n_classes)
    if choices["checkpoint"] is not None and not isinstance(choices["random_state"], Integral):
        raise ValueError(
            f"checkpoint needs a random_state that is a whole number, got {choices['random_state']!r}: otherwise no "
            "run can go on from where another was"
        )
    return Networks(
        make_net=make_net,
        settings=read_settings(choices, observations),
        scalings=_scalings(choices["scaling"], can_choose=can_choose) * _restarts(choices),
        ensemble=choices["ensemble"],
        verbose=bool(choices["verbose"]),
        checkpoint=choices["checkpoint"],
        objective=objective,
    )


def _in_rounds(choices: dict[str, Any], observations: Sequence[Observations]) -> Family:
    """Return trees or a classifier of scikit-learn, which look at few of the parameters."""
    model = choices["model"]
    check_processor(model, choices["device"])
    if choices["checkpoint"] is not None:
        raise ValueError(f"{name_of(model)} cannot go on from where it was interrupted; leave checkpoint= out")
    settings = read_settings(choices, observations)
    shared: dict[str, Any] = {
        "rounds": settings.epochs,
        "patience": settings.patience,
        "n_restarts": _restarts(choices),
        "verbose": bool(choices["verbose"]),
    }
    if isinstance(model, str):
        return BoostedTrees(**shared)
    check_classifier(model)
    return Classifiers(model, **shared)


def read_settings(choices: dict[str, Any], observations: Sequence[Observations]) -> Settings:
    """Return the settings of the loop, with what is "auto" decided by the kinds of observations."""
    check_choice("method", choices["method"], ("uum", "likelihood"))
    check_choice("weights", choices["weights"], ("auto", "current", "remembered"))
    epochs, warm_up, weights = _whole(choices["epochs"]), _whole(choices["warm_up"]), choices["weights"]
    observations = [one.counting() for one in observations]
    aggregates = [one.aggregate for one in observations]
    if choices["method"] == "likelihood":
        warm_up = epochs
    elif warm_up == "auto":
        # Where a few rows are compared, or classes can be interchanged, weights that favour no class would teach
        # nothing at first.
        compared = any(one.size is not None for one in aggregates) or find_symmetry(observations) != "none"
        warm_up = epochs // 2 if compared else 0
    if weights == "auto":
        # A label says all there is to say of its row: there is nothing to remember.
        labels = all(one.groups.max_size == 1 for one in observations)
        weights = "current" if labels or any(one.weights == "current" for one in aggregates) else "remembered"
    return Settings(
        epochs=epochs,
        warm_up=warm_up,
        loss=choices["loss"],
        remember_from=0 if weights == "remembered" and warm_up != epochs else None,
        batch_size=_whole(choices["batch_size"]),
        learning_rate=choices["learning_rate"],
        weight_decay=choices["weight_decay"],
        patience=_whole(choices["patience"]),
    )


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
    if not 0 <= share < 1:
        raise ValueError(f"validation_fraction must be at least 0 and less than 1, got {share!r}")
    counting = one.counting()
    if share == 0 or len(counting.groups) <= TOO_FEW_TO_SPLIT:
        return counting, None
    kept, held_out = one.split_numbers(share, torch.Generator().manual_seed(seed))
    return one.take(kept), held_out


def _scalings(scaling: str, *, can_choose: bool) -> list[How]:
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
