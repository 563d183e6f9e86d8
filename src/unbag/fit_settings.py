"""Settings of training from the estimator's parameters, with what is "auto" decided by the observations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from unbag._utils.checks import check_choice
from unbag.families.choice import AUTO
from unbag.families.starts import needs_guess
from unbag.training import Observations, Settings

# Progress is looked at after so many steps, or after all groups where these are more, and training ends when nothing
# has improved for so long.
LEAST_STEPS, MOST_STEPS = 20, 500
PATIENCE = 10
MOST_LOOKS, MOST_ROUNDS = 200, 300

ROWS_A_STEP = 1024
AVERAGING = 0.99
# Groups with more members than this are large.
LARGE = 32
# The rate, and what a weight loses at a step of that rate times itself.
LINEAR_RATES = (3e-2, 0.1)
RATES = (2e-3, 1.0)
# The looks, counted from 0, over which the rate rises.
RISE = (8, 16)


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
    given = {name: as_int(choices[name]) for name in ("epochs", "warm_up", "batch_size", "patience")}
    by_progress = given["epochs"] == AUTO
    observations = [one.counting() for one in observations]
    aggregates = [one.aggregate for one in observations]
    epochs = MOST_LOOKS if by_progress else given["epochs"]
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
        warm_up = (PATIENCE if by_progress else epochs // 2) if needs_guess(observations) else 0
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
    rate, decay = rates if by_progress else (1e-3, 0.0)
    one_pass = math.ceil(max((len(one.groups) for one in observations), default=1) / max(int(batch_size), 1))
    return Settings(
        epochs=epochs,
        warm_up=warm_up,
        loss=choices["loss"],
        remember_from=0 if weights == "remembered" and warm_up != epochs else None,
        batch_size=batch_size,
        steps=min(max(LEAST_STEPS, one_pass), MOST_STEPS) if by_progress else None,
        learning_rate=_unless_auto(choices["learning_rate"], rate),
        weight_decay=_unless_auto(choices["weight_decay"], decay),
        decoupled=by_progress,
        averaging=AVERAGING if by_progress else 0.0,
        patience=_unless_auto(given["patience"], PATIENCE if by_progress else 30),
    )


def raise_rate(optimiser: Optimizer) -> LRScheduler:
    """Return the schedule of what is still learning after some looks: three times the rate, whose average is as good.

    What is learned in fewer looks is learned at the first rate: there, larger steps would miss the best one.
    """
    begin, end = RISE
    return LambdaLR(optimiser, lambda look: 1 + 2 * min(max(look - begin, 0) / (end - begin), 1))


def _unless_auto(value: Any, usual: Any) -> Any:
    return usual if isinstance(value, str) and value == AUTO else value


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


def as_int(value: Any) -> Any:
    """Return a plain int for numpy's, as they come out of a grid of parameters."""
    return int(value) if isinstance(value, Integral) and not isinstance(value, bool) else value
