"""Settings of :class:`unbag.AggregateClassifier` that are rarely needed, in two groups."""

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

from sklearn.base import BaseEstimator


@dataclass(eq=False, repr=False)
class NetworkTraining(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """How a network is trained by Algorithm 1 of the paper, group by group.

    With ``training=None``, the default, networks learn by expectation-maximisation on all rows, which is faster and
    needs no settings. With an instance of this class, each step visits a batch of groups.

    Parameters
    ----------
    epochs
        Maximum number of passes over the groups.
    loss
        Loss of the unbiased risk: a name from :data:`unbag.losses.LOSSES`, or a function.
    warm_up
        Number of epochs that maximise the likelihood before the unbiased risk is minimised. ``"auto"`` is half of the
        epochs for pairs, triplets and ordinal comparisons, and 0 for other kinds.
    weights
        Whether label weights come from the ``"current"`` model or are ``"remembered"`` from the last epoch.
        ``"auto"`` remembers, except for bags and groups of more than 32.
    batch_size
        Groups per step.
    learning_rate, weight_decay
        Settings of Adam.
    patience
        Epochs without a better held-out score after which training stops; None trains to the end.
    optimiser, schedule, stopping, views
        Hooks of the training loop; see :func:`unbag.training.train`.
    devices, nodes
        Processes per machine, and machines, that train together (``pip install unbag[distributed]``).
    checkpoint
        Folder in which an interrupted fit is resumed when it is called again with the same data and settings.
    """

    epochs: int = 200
    _: KW_ONLY
    loss: Any = "cross_entropy"
    warm_up: int | str = "auto"
    weights: str = "auto"
    batch_size: int = 128
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    patience: int | None = 30
    optimiser: Any = None
    schedule: Any = None
    stopping: Any = None
    views: Any = None
    devices: int | str = "auto"
    nodes: int = 1
    checkpoint: str | Path | None = None


@dataclass(eq=False, repr=False)
class CrossFitting(BaseEstimator):  # type: ignore[misc]
    """How groups are held out to select, mix and calibrate models.

    Parameters
    ----------
    n_folds
        Number of folds; each group is held out once. ``"auto"`` is 4, or 8 with at most 40 groups. None holds out a
        single part of the groups.
    validation_fraction
        Share of the groups in that single part.
    n_restarts
        Number of models per learner and fold, from different random initialisations.
    """

    n_folds: int | str | None = "auto"
    _: KW_ONLY
    validation_fraction: float = 0.1
    n_restarts: int = 1


def refuse_parameters(parameters: Iterable[str]) -> None:
    """Raise an error for parameters of the estimator that do not exist, with the replacement of those that did."""
    for name in parameters:
        for argument, kind in (("training", NetworkTraining), ("validation", CrossFitting)):
            if name in kind().get_params():
                setting = f"{argument}=unbag.{kind.__name__}({name}=...)"
                raise TypeError(f"{name} is no longer a parameter of AggregateClassifier; use {setting}")
        if name == "ensemble":
            raise TypeError("ensemble is no longer a parameter of AggregateClassifier, which averages all good models")
        raise TypeError(f"AggregateClassifier got an unexpected keyword argument {name!r}")
