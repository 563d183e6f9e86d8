"""Labels of bags from pooled scores and columns, beside what the instances of a bag imply."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from unbag.aggregates import LabelProportions
from unbag.data.bags import SHARES, pool, pool_scores
from unbag.data.groups import Groups
from unbag.data.labels import Categorical
from unbag.data.scaling import Scaling, fit_scaling
from unbag.ensemble import Candidate, Mixture, Progress, Schedule, fit_ensemble
from unbag.learners import LastColumns, Linear, Problem
from unbag.training import Observations

RIDGES_OF_SCORES = (10, 1, 0.1)
"""Penalties of the linear model of a few pooled scores."""
INSTANCES = "instances"
"""Name of the candidate that predicts a bag's label from its instances."""


@dataclass(frozen=True, eq=False)
class BagModel:
    """A mixture of the label that the instances of a bag imply with models of its pooled scores and columns."""

    scaling: Scaling
    mixture: Mixture

    def predict(self, rows: Tensor, log_probs: Tensor, bags: Observations) -> np.ndarray:
        """Return the probability of the observations of bags, ``(bags,)``, from scaled rows and their predictions."""
        members = log_probs[bags.groups.members]
        columns = _pool(rows, members, bags)[:, : len(self.scaling.shift)]  # models saved earlier have no scores
        pooled = self.scaling(columns).float()
        by_instances = bag_log_probs(bags, members).float()
        outputs = [by_instances if c.name == INSTANCES else c.outputs(pooled) for c in self.mixture.candidates]
        mixed = self.mixture.mix(torch.stack(outputs))
        return mixed.gather(1, bags.checked.long()[:, None])[:, 0].exp().double().numpy()


def fit_bag_model(problem: Problem, mixture: Mixture, make_schedule: Callable[[Problem], Schedule]) -> BagModel | None:
    """Fit models to the pooled scores and columns of bags, and mix them with the prediction by instances.

    ``mixture`` has the models of instances, and predictions of each bag by models that did not see it. Return None for
    other observations and for images.
    """
    out_of_fold, bags, X = mixture.out_of_fold, problem.sets[0], problem.X
    if not isinstance(X, Tensor) or X.ndim != 2:
        return None
    if len(problem.sets) > 1 or not bags.aggregate.pooled or not bool(out_of_fold.isfinite().all()):
        return None
    columns = _pool(X, out_of_fold, bags)
    scaling = fit_scaling(columns, "standard")
    one_hot = torch.nn.functional.one_hot(bags.checked.long(), 2)
    labels = Observations(
        LabelProportions(), Groups.from_sizes([1] * len(columns)), one_hot, 2, group_weights=bags.group_weights
    )
    bag_problem = Problem.create(scaling(columns).float(), [labels], Categorical(2))
    by_instances = bag_log_probs(bags, out_of_fold).float()
    score = bag_problem.score(by_instances)
    instances = Candidate(INSTANCES, bag_problem.labels, [], [], 0, 1, score, by_instances, 0.0)
    schedule = make_schedule(bag_problem)
    by_scores = Linear("scores", partial(LastColumns.fit, number=len(SHARES)), ridges=RIDGES_OF_SCORES)
    first, *others = schedule.stages
    # The bar of the fit is that of the instances.
    schedule = replace(schedule, stages=((by_scores, *first), *others), progress=Progress())
    return BagModel(scaling, fit_ensemble(bag_problem, schedule, further=[instances]))


def _pool(rows: Tensor, members: Tensor, bags: Observations) -> Tensor:
    """Pool the columns of the members of bags, then their log-odds."""
    scores = pool_scores((members[:, 1] - members[:, 0]).double(), bags.groups.segments)
    return torch.cat([pool(rows, bags.groups), scores], 1)


def bag_log_probs(bags: Observations, members: Tensor) -> Tensor:
    """Compute the log-probability of a negative and a positive label of each bag, shape ``(bags, 2)``."""
    answers = (torch.full_like(bags.checked, answer) for answer in (0, 1))
    return torch.stack(
        [bags.aggregate.checked_evidence(members, bags.groups.segments, z).log_likelihood for z in answers], 1
    )
