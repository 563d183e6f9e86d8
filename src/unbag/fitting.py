"""From the estimator's settings to trained replicas, and the choice among them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state
from torch import Tensor, nn

from unbag.checks import check_choice
from unbag.parts import join
from unbag.symmetry import find_symmetry
from unbag.training import (
    Bar,
    Checkpoint,
    Objective,
    Observations,
    Settings,
    Silent,
    Trained,
    held_out_likelihood,
    train,
)
from unbag.training.identity import digest
from unbag.training.scaling import How, Scaling, fit_scaling
from unbag.training.selection import take_rows

HOOKS = ("optimiser", "schedule", "stopping", "views")
"""Settings that training takes as they are, code of the caller's own."""

# Of so few groups none is spared to choose by.
TOO_FEW_TO_SPLIT = 20


@dataclass(frozen=True, eq=False)
class Fitted:
    """Trained replicas, and which of them is the best."""

    trained: Trained
    scalings: list[How]
    """Of each replica."""
    scores: list[float]
    """Log-likelihood per group of each replica: of held-out groups, or of all where none were held out."""

    @property
    def best(self) -> int:
        """The number of the best replica."""
        return int(np.nanargmax(self.scores))

    @property
    def like_best(self) -> list[int]:
        """The best replica and then all others with its scaling."""
        others = [r for r, how in enumerate(self.scalings) if how == self.scalings[self.best] and r != self.best]
        return [self.best, *others]


@dataclass(frozen=True, eq=False)
class Prepared:
    """Everything that a training run needs, checked."""

    choices: dict[str, Any]
    make_net: Callable[[], nn.Module]
    X: Tensor
    used: list[Observations]
    held_out: list[Observations]
    held_out_groups: list[list[int] | None]
    """The numbers of these groups in each set; None where none is held out."""
    settings: Settings
    scalings: list[How]
    """Of each replica."""
    seeds: list[int]
    objective: Objective | None

    def train(self) -> Fitted:
        """Train as the estimator was told to."""
        fitted = _fit_scalings(self.scalings, self.X, self.used)

        def make_model(how: How) -> nn.Module:
            return nn.Sequential(copy.deepcopy(fitted[how]), self.make_net())

        trained = train(
            [partial(make_model, how) for how in self.scalings],
            self.X,
            self.used,
            self.settings,
            seeds=self.seeds,
            score=held_out_likelihood(self.X, self.held_out) if self.held_out else None,
            checkpoint=self._checkpoint(),
            progress=Bar() if self.choices["verbose"] else Silent(),
            objective=self.objective,
            **self.hooks,
        )
        scores = trained.best_score
        if scores is None:
            scores = held_out_likelihood(self.X, self.used)(lambda rows: _logits(trained.models, rows)).tolist()
        return Fitted(trained, self.scalings, scores)

    @property
    def hooks(self) -> dict[str, Any]:
        """What the loop takes in place of its defaults."""
        return {name: self.choices[name] for name in HOOKS}

    def _checkpoint(self) -> Checkpoint | None:
        """Return a place for this run alone: a fold must not go on where another was."""
        if self.choices["checkpoint"] is None:
            return None
        run = {
            "settings": self.settings,
            "scaling": self.scalings,
            "seeds": self.seeds,
            "rows": self.X,
            "observations": [self.used, self.held_out],
            "model": self.make_net,
            "objective": self.objective,
            "hooks": self.hooks,
            "ensemble": self.choices["ensemble"],  # such fits are alike, but a search may run them side by side
        }
        parts = {name: digest(value, f"the {name}") for name, value in run.items()}
        return Checkpoint(Path(self.choices["checkpoint"]) / digest(parts)[:16], seconds=5.0)


def prepare(
    choices: dict[str, Any],
    make_net: Callable[[], nn.Module],
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
    make_net
        Returns a new model of scaled rows.
    X, observations
        What to learn from, on the device to train on.
    seed
        Of the split and of the first replica; further replicas have the numbers that follow.
    objective
        What is minimised in place of what the settings say; see :func:`unbag.training.train`.
    """
    parts = [split_groups(one, choices["validation_fraction"], seed) for one in observations]
    held_out = [one.take(which) for one, (_, which) in zip(observations, parts, strict=True) if which is not None]
    scalings = _scalings(choices["scaling"], can_choose=bool(held_out) and X.ndim == 2) * _restarts(choices)
    if choices["checkpoint"] is not None and not isinstance(choices["random_state"], Integral):
        raise ValueError(
            f"checkpoint needs a random_state that is a whole number, got {choices['random_state']!r}: otherwise no "
            "run can go on from where another was"
        )
    return Prepared(
        choices=choices,
        make_net=make_net,
        X=X,
        used=[one for one, _ in parts],
        held_out=held_out,
        held_out_groups=[None if which is None else which.tolist() for _, which in parts],
        settings=read_settings(choices, observations),
        scalings=scalings,
        seeds=[seed + replica for replica in range(len(scalings))],
        objective=objective,
    )


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


def _fit_scalings(hows: Sequence[How], X: Tensor, used: Sequence[Observations]) -> dict[How, Scaling]:
    trained_on = take_rows(X, torch.cat([one.groups.members for one in used]).unique())
    return {how: fit_scaling(trained_on, how) for how in hows}


def _restarts(choices: dict[str, Any]) -> int:
    n = _whole(choices["n_restarts"])
    if not isinstance(n, int) or n < 1:
        raise ValueError(f"n_restarts must be a whole number of at least 1, got {n!r}")
    return n


def _logits(models: Sequence[nn.Module], rows: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.stack([join((model(part) for part in rows.split(8192)), len(rows)) for model in models])


def _whole(value: Any) -> Any:
    """Return a plain int for numpy's, as they come out of a grid of parameters."""
    return int(value) if isinstance(value, Integral) and not isinstance(value, bool) else value
