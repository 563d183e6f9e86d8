"""The single place where "auto" values are resolved and thresholds are defined."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from sklearn.base import BaseEstimator
from torch import Tensor

from unbag._utils.checks import check_choice
from unbag.ensemble import Schedule
from unbag.estimators.settings import CrossFitting
from unbag.learners import Learner, Problem
from unbag.learners.boosting import Boosting, has_lightgbm
from unbag.learners.choice import is_network, name_of
from unbag.learners.clusters import Clusters
from unbag.learners.features import Columns, Fourier
from unbag.learners.linear import Linear
from unbag.learners.network import Architecture, Network
from unbag.learners.starts import ClusterShares


@dataclass(frozen=True)
class Thresholds:
    """Numbers that decide how a fit proceeds, each with its measured effect.

    Tests and experiments replace them by an argument of :func:`resolve`.
    """

    n_folds: int = 4
    n_folds_of_few_groups: int = 8
    """With few groups, each is a large part of what can be learned, and fewer are held out at a time."""
    few_groups: int = 40
    """Up to this number of groups, folds are more and every learner runs on all of them."""
    max_groups_for_clusters: int = 100
    """Clusters of rows improve accuracy by 3 points with 11 to 20 groups, 1 with 21 to 100 and not at all above."""
    min_group_size_to_extrapolate: int = 16
    """In smaller groups, expectation-maximisation is fast and extrapolated targets have to be clamped."""
    overrelaxation: float = 1.0
    n_folds_of_shared_rows: int = 8
    """Where groups share rows, a fold holds out all groups of its rows, of pairs 23 % in each of 8 folds and 44 % in
    each of 4."""
    patience: int = 2
    min_step_gain: float = 0.002
    min_relative_gain: float = 0.7
    ridges: tuple[float, ...] = (1000, 100, 10, 1)
    ridges_from_start: tuple[float, ...] = (10, 1, 0.1)
    """For bags and for classes without names: under a larger penalty, a linear model returns to a saddle point, or to
    shifts of whole bags. Ranking bags of embeddings: .85 for .57."""
    max_classes_for_trees: int = 64
    n_starts: int = 3
    """Clusterings from which classes without names are found."""
    min_groups_for_validation: int = 21
    """A named model with fewer groups is cross-fitted even where a single validation part is requested."""


def resolve(problem: Problem, parameters: dict[str, Any], seed: int, thresholds: Thresholds | None = None) -> Schedule:
    """Resolve the parameters of the estimator for a problem.

    Parameters
    ----------
    problem
        Training data.
    parameters
        Parameters of :class:`unbag.AggregateClassifier` by name.
    seed
        Seed of all random number generators.
    thresholds
        Numbers to use in place of the defaults.
    """
    t = thresholds or Thresholds()
    n_folds, single_split = _resolve_folds(problem, parameters, t)
    return Schedule(
        stages=_resolve_stages(problem, parameters, t),
        n_folds=n_folds,
        single_split=single_split,
        patience=t.patience,
        min_step_gain=t.min_step_gain,
        min_relative_gain=t.min_relative_gain if problem.n_groups > t.few_groups else 0.0,
        n_jobs=resolve_n_jobs(parameters["n_jobs"]),
        time_limit=_resolve_time_limit(parameters["time_limit"]),
        seed=seed,
    )


def resolve_n_jobs(n_jobs: int | None) -> int:
    """Return the number of jobs that run at a time, by the conventions of joblib; None is all cores."""
    if n_jobs is not None and (isinstance(n_jobs, bool) or not isinstance(n_jobs, int | np.integer) or n_jobs == 0):
        raise ValueError(f"n_jobs must be a whole number other than 0, or None for all cores; got {n_jobs!r}")
    return int(effective_n_jobs(-1 if n_jobs is None else int(n_jobs)))


def _resolve_time_limit(time_limit: Any) -> float | None:
    if time_limit is None:
        return None
    if (
        isinstance(time_limit, bool)
        or not isinstance(time_limit, int | float | np.number)
        or not 0 < time_limit < math.inf
    ):
        raise ValueError(f"time_limit must be a positive number of seconds, or None; got {time_limit!r}")
    return float(time_limit)


def _resolve_folds(problem: Problem, parameters: dict[str, Any], t: Thresholds) -> tuple[int, bool]:
    """Return the number of folds, 0 for none, and whether only one of them is used."""
    validation = parameters["validation"] or CrossFitting()
    n_folds, fraction = validation.n_folds, validation.validation_fraction
    if isinstance(fraction, bool) or not isinstance(fraction, int | float | np.number) or not 0 <= fraction < 1:
        raise ValueError(f"validation_fraction must be at least 0 and less than 1, got {fraction!r}")
    if n_folds is not None and n_folds != "auto" and (not isinstance(n_folds, int | np.integer) or n_folds < 2):
        raise ValueError(f'n_folds must be a whole number of at least 2, "auto" or None; got {n_folds!r}')
    if problem.n_groups < 2:
        return 0, False
    if n_folds is None or (n_folds == "auto" and parameters["training"] is not None):
        held_out = fraction > 0 and problem.n_groups >= t.min_groups_for_validation
        return (max(2, round(1 / fraction)), True) if held_out else (0, False)
    if n_folds == "auto":
        n_folds = t.n_folds_of_shared_rows if problem.groups_share_rows else t.n_folds
        n_folds = t.n_folds_of_few_groups if problem.n_groups <= t.few_groups else n_folds
    return min(int(n_folds), problem.n_groups), False


def _resolve_stages(problem: Problem, parameters: dict[str, Any], t: Thresholds) -> tuple[tuple[Learner, ...], ...]:
    """Return the learners by stage; each stage starts where the best learner of the earlier ones ended."""
    model = parameters["model"]
    overrelaxation = t.overrelaxation if problem.mean_group_size >= t.min_group_size_to_extrapolate else 0.0
    settings: dict[str, Any] = {"overrelaxation": overrelaxation}
    start = _resolve_start(problem, t)
    if not (isinstance(model, str) and model == "auto"):
        return (*start, (make_learner(parameters, problem, settings),))
    is_table = isinstance(problem.X, Tensor) and problem.X.ndim == 2
    network = Network(device=parameters["device"], **settings)
    if not is_table:
        return (*start, (network,))
    weak = problem.symmetry != "none" or any(s.aggregate.pooled for s in problem.sets)
    first: list[Learner] = [Linear("linear", Columns.fit, ridges=t.ridges_from_start if weak else t.ridges)]
    counted = all(s.aggregate.outcome.endswith("_counts") and s.groups.max_size > 1 for s in problem.sets)
    if counted and problem.n_groups <= t.max_groups_for_clusters:
        first.append(Linear("clusters", Clusters.fit, ridges=(30, 3, 0.3, 0.03), once=True))
    kernels = [
        Linear(f"kernel-{name}", partial(Fourier.fit, scale=scale), ridges=(10, 1, 0.1) if weak else (100, 10, 1, 0.1))
        for name, scale in (("narrow", 0.4), ("wide", 0.8))
    ]
    stages: list[tuple[Learner, ...]] = [tuple(first), (network, *kernels)]
    if has_lightgbm() and problem.labels.n_outputs <= t.max_classes_for_trees:
        stages.append((Boosting(**settings),))
    return (*start, *stages)


def make_learner(parameters: dict[str, Any], problem: Problem, settings: dict[str, Any]) -> Learner:
    """Return the learner of a model that the caller names or passes.

    Parameters
    ----------
    parameters
        Parameters of the estimator.
    problem
        Training data.
    settings
        Settings that all learners by expectation-maximisation share.
    """
    model, training = parameters["model"], parameters["training"]
    by_algorithm = training is not None or parameters["method"] != "auto"
    check_choice("method", parameters["method"], ("auto", "uum", "likelihood"))
    if by_algorithm and not is_network(model):
        raise ValueError(
            f"training= and method= are settings of networks, but {name_of(model)} is none; leave them out, or choose "
            'a network such as model="mlp"'
        )
    if by_algorithm or isinstance(model, BaseEstimator):
        raise ValueError(f"{name_of(model)} is not supported with these settings")
    if isinstance(model, str) and model in ("linear", "logistic"):
        return Linear("linear", Columns.fit, ridges=(1000, 100, 10, 1, 0.1))
    if isinstance(model, str) and model == "trees":
        return Boosting(**settings)
    return Network(architecture=Architecture(model), device=parameters["device"], **settings)


def has_bag_model(model: Any, problem: Problem) -> bool:
    """Return whether labels of bags are also predicted from pooled columns."""
    is_table = isinstance(problem.X, Tensor) and problem.X.ndim == 2
    return model == "auto" and is_table and len(problem.sets) == 1 and problem.sets[0].aggregate.pooled


def _resolve_start(problem: Problem, t: Thresholds) -> tuple[tuple[Learner, ...], ...]:
    """Return the learners that provide a first E-step where a constant model is a saddle point."""
    is_table = isinstance(problem.X, Tensor) and problem.X.ndim == 2
    if problem.symmetry == "none" or not is_table:
        return ()
    return (tuple(ClusterShares(f"shares-{number}", number) for number in range(t.n_starts)),)
