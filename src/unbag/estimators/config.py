"""The single place where "auto" values are resolved and thresholds are defined."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from joblib.parallel import get_active_backend
from sklearn.base import BaseEstimator
from torch import Tensor

from unbag._utils.checks import check_choice, describe
from unbag.aggregates import LabelProportions
from unbag.aggregates.symmetry import find_symmetry
from unbag.data.row_source import SparseRows, row_shape
from unbag.ensemble import Progress, Schedule
from unbag.estimators.settings import CrossFitting, NetworkTraining
from unbag.learners import Algorithm, Classifiers, Learner, Problem
from unbag.learners.base import LEARNERS, Restarted, is_network, name_of
from unbag.learners.boosting import Boosting, has_lightgbm
from unbag.learners.classifiers import validate_classifier
from unbag.learners.clusters import Clusters, ClusterShares
from unbag.learners.features import Columns, Fourier
from unbag.learners.linear import Linear
from unbag.learners.network import Architecture, Matching, Network
from unbag.learners.top_share import TopShare
from unbag.training import Settings
from unbag.training.processes import Launcher


@dataclass(frozen=True)
class Thresholds:
    """Numbers that decide how a fit proceeds, each with its measured effect.

    Tests and experiments replace them by an argument of :func:`resolve`.
    """

    n_folds: int = 4
    n_folds_of_few_groups: int = 8
    """With few groups, each is a large part of what can be learned, and fewer are held out at a time."""
    few_groups: int = 40
    """Up to this number of groups, folds are more, every learner runs on all of them, and one uses clusters of rows.
    With 8 groups of 256, clusters find 92 % (pendigits) where linear models have 56. With more groups they lower the
    accuracy: the clusters of held-out rows are known, and their likelihood is too good."""
    min_group_size_to_extrapolate: int = 16
    """In smaller groups, expectation-maximisation is fast and extrapolated targets have to be clamped."""
    overrelaxation: float = 1.0
    n_folds_of_shared_rows: int = 8
    """Where comparisons share rows, a fold holds out all those of its rows, of pairs 23 % in each of 8 folds and 44 %
    in each of 4. Of larger groups that share rows, folds hold out groups."""
    patience: int = 2
    min_step_gain: float = 0.003
    min_relative_gain: float = 0.7
    sharpness: tuple[float, ...] = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0)
    """The score of a step is its best held-out likelihood under these inverse temperatures: models are too confident
    where groups are few, and the likelihood then prefers a weak one. With 8 groups of 64, linear models gain 19 to 41
    points on vehicle and soybean, kernel models 9 to 26; with 28 to 36 groups of 16, 1 to 4."""
    ridges: tuple[float, ...] = (1000, 300, 100, 30, 10, 3, 1, 0.3, 0.1)
    """Steps by factors of three rather than ten add 0.2 points on average, with 9 to 36 groups of four classes 1."""
    ridges_of_clusters: tuple[float, ...] = (30, 3, 0.3, 0.03)
    ridges_of_kernels: tuple[float, ...] = (100, 30, 10, 3, 1, 0.3, 0.1)
    ridges_from_start: tuple[float, ...] = (10, 1, 0.1)
    """For bags and for classes without names: under a larger penalty, a linear model returns to a saddle point, or to
    shifts of whole bags. Ranking bags of embeddings: .85 for .57."""
    top_shares: tuple[float, ...] = (0.02, 0.05, 0.2)
    """Shares of the instances of a bag whose logits are averaged, in models from which the others start. Bags of
    embeddings are then ranked with AUC .97 rather than .50 to .60."""
    max_columns: int = 10_000
    """Up to this number of columns, "auto" fits all kinds of models. With more, LightGBM takes seconds for a tree and a
    network has millions of weights in each fold, and only a linear model is fitted."""
    max_classes_for_trees: int = 64
    n_starts: int = 3
    """Clusterings from which classes without names are found."""
    min_groups_for_validation: int = 21
    """With fewer groups, a single validation part would be too small to choose by, and nothing is held out."""
    e_steps_after_training: float = 20.0
    """Time to reserve for the mixture, estimates and checks, in E-steps on all groups: with 200 classes and 2,500
    groups of 16, they took twice a share of 0.2 of a limit of 20 seconds."""
    share_of_time_for_training: float = 0.8
    """Of a time limit; estimates and checks after training take at most the rest."""
    seconds_before_processes: float = 1.0
    """Processes take 2 seconds of a core to start, and end a minute after the last fit."""
    jobs_per_fold: int = 2
    """More jobs at a time wait for each other, and their processes take time to start: on 16 cores, a fit of 17 seconds
    takes 8.8 with 2 jobs, 9.0 with 4 and 11.3 with 16."""
    max_group_size_to_remember: int = 32
    """In larger groups, the predictions of the last epoch are too old for Algorithm 1."""


def resolve(
    problem: Problem,
    parameters: dict[str, Any],
    seed: int,
    thresholds: Thresholds | None = None,
    begun: float | None = None,
) -> Schedule:
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
    begun
        When the fit began, by ``time.monotonic``; None is now.
    """
    t = thresholds or Thresholds()
    n_folds, single_split = _resolve_folds(problem, parameters, t)
    in_threads = is_by_algorithm(parameters) or not isinstance(problem.X, Tensor) or parameters["device"] != "cpu"
    limit, n_jobs = resolve_time_limit(parameters["time_limit"]), resolve_n_jobs(parameters["n_jobs"])
    return Schedule(
        starts=_resolve_starts(problem, parameters, stages := _resolve_stages(problem, parameters, t), t),
        stages=stages,
        n_folds=n_folds,
        single_split=single_split,
        patience=t.patience,
        min_step_gain=t.min_step_gain,
        min_relative_gain=t.min_relative_gain if problem.n_groups > t.few_groups else 0.0,
        sharpness=t.sharpness,
        n_jobs=1 if make_launcher(parameters).several else min(n_jobs, t.jobs_per_fold * max(n_folds, 1)),
        seconds_before_processes=None if in_threads or _is_nested() else t.seconds_before_processes,
        deadline=(time.monotonic() if begun is None else begun) + _time_for_training(problem, limit, t),
        seed=seed,
        progress=Progress(shown=bool(parameters["verbose"])),
    )


def _time_for_training(problem: Problem, limit: float, t: Thresholds) -> float:
    """Return the seconds from the start of the fit in which models are trained."""
    if limit == math.inf:
        return limit
    begun = time.monotonic()
    problem.e_step(problem.labels.initial_outputs(len(problem.rows)))
    reserved = t.e_steps_after_training * (time.monotonic() - begun)
    return min(t.share_of_time_for_training * limit, max(limit - reserved, 0.0))


def resolve_n_jobs(n_jobs: int | None) -> int:
    """Return the number of jobs that run at a time, by the conventions of joblib.

    None is all cores, or 1 in a job of joblib, such as a search of scikit-learn.
    """
    if n_jobs is not None and (isinstance(n_jobs, bool) or not isinstance(n_jobs, int | np.integer) or n_jobs == 0):
        raise ValueError(f"n_jobs must be a whole number other than 0, or None for all cores; got {n_jobs!r}")
    if n_jobs is None and _is_nested():
        return 1
    return int(effective_n_jobs(-1 if n_jobs is None else int(n_jobs)))


def _is_nested() -> bool:
    """Return whether this is a job of joblib, which has as many as there are cores."""
    return bool(get_active_backend()[0].nesting_level)


def resolve_time_limit(time_limit: Any) -> float:
    """Return the time limit in seconds, infinity for None."""
    if time_limit is None:
        return math.inf
    is_number = isinstance(time_limit, int | float | np.number) and not isinstance(time_limit, bool)
    if not is_number or not 0 < time_limit < math.inf:
        raise ValueError(f"time_limit must be a positive number of seconds, or None; got {time_limit!r}")
    return float(time_limit)


def _resolve_folds(problem: Problem, parameters: dict[str, Any], t: Thresholds) -> tuple[int, bool]:
    """Return the number of folds, 0 for none, and whether only one of them is used."""
    validation = _settings(parameters, "validation", CrossFitting)
    n_folds, fraction = validation.n_folds, validation.validation_fraction
    if isinstance(fraction, bool) or not isinstance(fraction, int | float | np.number) or not 0 <= fraction < 1:
        raise ValueError(f"validation_fraction must be at least 0 and less than 1, got {fraction!r}")
    if n_folds is not None and n_folds != "auto" and (not _is_whole(n_folds) or n_folds < 2):
        raise ValueError(f'n_folds must be a whole number of at least 2, "auto" or None; got {n_folds!r}')
    if problem.n_groups < 2:
        return 0, False
    if n_folds is None or (n_folds == "auto" and is_by_algorithm(parameters)):
        held_out = fraction > 0 and problem.n_groups >= t.min_groups_for_validation
        return (max(2, round(1 / fraction)), True) if held_out else (0, False)
    if n_folds == "auto":
        compared = any(s.aggregate.size is not None for s in problem.sets)
        n_folds = t.n_folds_of_shared_rows if compared and problem.groups_share_rows else t.n_folds
        n_folds = t.n_folds_of_few_groups if problem.n_groups <= t.few_groups else n_folds
    return min(int(n_folds), problem.n_groups), False


def _resolve_stages(problem: Problem, parameters: dict[str, Any], t: Thresholds) -> tuple[tuple[Learner, ...], ...]:
    """Return the learners by stage; each stage starts where the best learner of the earlier ones ended."""
    model, n_restarts = parameters["model"], _settings(parameters, "validation", CrossFitting).n_restarts
    if not _is_whole(n_restarts) or n_restarts < 1:
        raise ValueError(f"n_restarts must be a whole number of at least 1, got {n_restarts!r}")
    if is_by_algorithm(parameters):
        return (_restart(make_algorithm(parameters, problem, t), n_restarts),)
    overrelaxation = t.overrelaxation if problem.mean_group_size >= t.min_group_size_to_extrapolate else 0.0
    settings: dict[str, Any] = {"overrelaxation": overrelaxation}
    if not (isinstance(model, str) and model == "auto"):
        learner = make_learner(parameters, problem, settings, t)
        before = _resolve_top_shares(problem, t) if isinstance(learner, Linear) else ()
        return (*before, _restart(learner, n_restarts))
    network = Network(device=parameters["device"], **settings)
    if not (_is_table(problem) or isinstance(problem.X, SparseRows)):
        return (_restart(network, n_restarts),)
    weak = _is_weak(problem)
    if isinstance(problem.X, SparseRows) or row_shape(problem.X)[0] > t.max_columns:
        ridges = t.ridges_from_start if weak else t.ridges
        return ((Linear("linear", Columns.fit, ridges=ridges),),)
    first: list[Learner] = [Linear("linear", Columns.fit, ridges=t.ridges_from_start if weak else t.ridges)]
    counted = all(s.aggregate.outcome.endswith("_counts") and s.groups.max_size > 1 for s in problem.sets)
    if counted and problem.n_groups <= t.few_groups:
        first.append(Linear("clusters", Clusters.fit, ridges=t.ridges_of_clusters, once=True))
    if _is_single_set_of_counts(problem):
        first += _restart(Matching(device=parameters["device"]), n_restarts)
    ridges = t.ridges_from_start if weak else t.ridges_of_kernels
    kernels = [
        Linear(f"kernel-{name}", partial(Fourier.fit, scale=scale), ridges=ridges)
        for name, scale in (("narrow", 0.4), ("wide", 0.8))
    ]
    stages: list[tuple[Learner, ...]] = [tuple(first), (*_restart(network, n_restarts), *kernels)]
    if has_lightgbm() and problem.labels.n_outputs <= t.max_classes_for_trees:
        stages.append(_restart(Boosting(**settings), n_restarts))
    return (*_resolve_top_shares(problem, t), *stages)


def _resolve_top_shares(problem: Problem, t: Thresholds) -> tuple[tuple[Learner, ...], ...]:
    """Return the stage that finds positive instances of bags, with shares that differ in a bag of mean size."""
    if len(problem.sets) > 1 or not problem.sets[0].aggregate.pooled or not _is_table(problem):
        return ()
    by_number = {max(1, round(share * problem.mean_group_size)): share for share in t.top_shares}
    return (tuple(TopShare(share) for share in by_number.values()),)


def _is_weak(problem: Problem) -> bool:
    """Return whether a strong ridge penalty would lead back to a model that predicts the same for all rows."""
    return problem.symmetry != "none" or any(s.aggregate.pooled for s in problem.sets)


def _is_single_set_of_counts(problem: Problem) -> bool:
    return [type(s.aggregate) for s in problem.sets] == [LabelProportions] and problem.sets[0].groups.max_size > 1


def _resolve_starts(
    problem: Problem, parameters: dict[str, Any], stages: Sequence[Sequence[Learner]], t: Thresholds
) -> tuple[Learner, ...]:
    """Return the learners that provide a first E-step where a constant model is a saddle point, or close to it."""
    if is_by_algorithm(parameters) or not (_is_table(problem) or isinstance(problem.X, SparseRows)):
        return ()
    if problem.symmetry != "none" or any(s.aggregate.size is not None for s in problem.sets):
        return tuple(ClusterShares(f"shares-{number}", number) for number in range(t.n_starts * _is_table(problem)))
    if isinstance(stages[0][0], Linear | TopShare) or _is_weak(problem):
        return ()
    return (Linear("linear", Columns.fit, ridges=t.ridges),)


def make_learner(
    parameters: dict[str, Any], problem: Problem, settings: dict[str, Any], thresholds: Thresholds
) -> Learner:
    """Return the learner of a model that the caller names or passes.

    Parameters
    ----------
    parameters
        Parameters of the estimator.
    problem
        Training data.
    settings
        Settings that all learners by expectation-maximisation share.
    thresholds
        Numbers that decide how a fit proceeds.
    """
    model, device = parameters["model"], parameters["device"]
    if not is_network(model):
        if str(device) != "cpu":
            raise ValueError(f"{name_of(model)} runs on the CPU; leave device= out, got {device!r}")
        if not isinstance(model, BaseEstimator):
            return LEARNERS[model]() if model in LEARNERS else Boosting(**settings)
        validate_classifier(model)
        return Classifiers(model)
    in_memory = _is_table(problem) or isinstance(problem.X, SparseRows)
    if isinstance(model, str) and model in ("linear", "logistic") and in_memory:
        ridges = thresholds.ridges_from_start if _is_weak(problem) else thresholds.ridges
        return Linear("linear", Columns.fit, ridges=ridges)
    return Network(architecture=_make_architecture(model, problem), device=device, **settings)


def is_by_algorithm(parameters: dict[str, Any]) -> bool:
    """Return whether a network is trained by Algorithm 1 rather than by expectation-maximisation on all rows."""
    check_choice("method", parameters["method"], ("auto", "uum", "likelihood"))
    return parameters["training"] is not None or parameters["method"] != "auto"


def make_algorithm(parameters: dict[str, Any], problem: Problem, thresholds: Thresholds) -> Algorithm:
    """Return the learner that trains a network by Algorithm 1; ``model="auto"`` is a perceptron."""
    model, training = parameters["model"], _settings(parameters, "training", NetworkTraining)
    if not is_network(model):
        raise ValueError(
            f"training= and method= are settings of networks, but {name_of(model)} is none; leave them out, or choose "
            'a network such as model="mlp"'
        )
    checkpoint = training.checkpoint
    if checkpoint is not None and not isinstance(parameters["random_state"], Integral):
        raise ValueError(
            f"checkpoint needs a random_state that is a whole number, got {parameters['random_state']!r}; otherwise an "
            "interrupted fit cannot be resumed"
        )
    return Algorithm(
        architecture=_make_architecture("mlp" if isinstance(model, str) and model == "auto" else model, problem),
        settings=resolve_settings(training, parameters["method"], problem, thresholds),
        optimiser=training.optimiser,
        schedule=training.schedule,
        stopping=training.stopping,
        views=training.views,
        launcher=make_launcher(parameters),
        checkpoint=None if checkpoint is None else Path(checkpoint),
        device=parameters["device"],
    )


def make_launcher(parameters: dict[str, Any]) -> Launcher:
    """Return what starts the processes that train one network together."""
    training = _settings(parameters, "training", NetworkTraining)
    devices, nodes = (int(n) if isinstance(n, np.integer) else n for n in (training.devices, training.nodes))
    return Launcher(devices, nodes, parameters["device"])


def resolve_settings(training: NetworkTraining, method: str, problem: Problem, thresholds: Thresholds) -> Settings:
    """Resolve the settings of the training loop."""
    check_choice("weights", training.weights, ("auto", "current", "remembered"))
    epochs, weights = Settings(training.epochs).epochs, training.weights
    warm_up: Any = training.warm_up
    if method == "likelihood":
        warm_up = epochs
    elif warm_up == "auto":
        # Weights that favour no class would teach nothing where few rows are compared or classes are unnamed.
        compared = any(s.aggregate.size is not None for s in problem.sets)
        warm_up = epochs // 2 if compared or find_symmetry(problem.sets) != "none" else 0
    if weights == "auto":
        sizes = [s.groups.max_size for s in problem.sets]
        large = max(sizes) == 1 or max(sizes) > thresholds.max_group_size_to_remember
        current = large or any(s.aggregate.weights == "current" for s in problem.sets)
        weights = "current" if current else "remembered"
    return Settings(
        epochs=epochs,
        warm_up=warm_up,
        loss=training.loss,
        remember_from=0 if weights == "remembered" and warm_up != epochs else None,
        batch_size=training.batch_size,
        learning_rate=training.learning_rate,
        weight_decay=training.weight_decay,
        patience=training.patience,
    )


def _restart(learner: Learner, n_restarts: int) -> tuple[Learner, ...]:
    """Return a learner as often as it is to be run; linear models do not depend on random numbers."""
    if isinstance(learner, Linear):
        return (learner,)
    return (learner, *(Restarted(learner, number) for number in range(1, n_restarts)))


def _make_architecture(model: Any, problem: Problem) -> Architecture:
    """Return an architecture that was found to suit the rows."""
    architecture = Architecture(model)
    architecture.maker(row_shape(problem.X), problem.labels.n_outputs)
    return architecture


def _settings(parameters: dict[str, Any], name: str, kind: type) -> Any:
    """Return an object of settings, by default one without changes."""
    value = parameters[name]
    if value is not None and not isinstance(value, kind):
        raise TypeError(f"{name} must be an unbag.{kind.__name__} or None, got {describe(value)}")
    return kind() if value is None else value


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_table(problem: Problem) -> bool:
    """Return whether rows are a table in memory."""
    return isinstance(problem.X, Tensor) and problem.X.ndim == 2
