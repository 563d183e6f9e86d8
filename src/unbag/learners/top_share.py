"""Linear models of bags in which a share of the instances of a positive bag is positive."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from unbag.data.bags import select_top
from unbag.learners.base import Unprepared, split_rows
from unbag.learners.features import Columns
from unbag.learners.linear import LinearModel
from unbag.learners.problem import Problem

N_ROUNDS = 50
"""Selections of instances for each penalty. With few steps of L-BFGS between them, 100 ranked 200 new bags with AUC .97
to .98, 8 with .89; bags of 20 to 500 embeddings, 5 % of which are positive."""
N_STEPS = 5
MAX_LOG_SCALE = 3.0
PRIOR_STD = 1.0
"""Standard deviation of the prior of the logarithm of the scale of logits."""


@dataclass(frozen=True)
class TopShare(Unprepared):
    """The logit of a bag is the mean of the largest logits of its instances.

    The likelihood of a bag depends on its most likely instance alone while the model is poor; a mean of several is less
    noisy. Selected instances and weights are updated in turns. At each penalty, the scale and the intercept of the
    logits of instances are fitted to held-out bags.

    Parameters
    ----------
    share
        Share of the instances of a bag whose logits are averaged, at least one.
    ridges
        Penalties on half the squared weights, in order; each model starts from the one before.
    """

    share: float
    ridges: tuple[float, ...] = (10, 3, 1, 0.3)

    @property
    def name(self) -> str:
        """Return the name under which results are reported."""
        return f"top-{self.share:g}"

    def path(self, problem: Problem, start: Tensor, seed: int) -> Iterator[LinearModel]:
        """Yield a model for each penalty."""
        bags, watch = problem.sets[0], problem.watch
        features = Columns.fit(problem)
        inputs = torch.cat([features(part) for part in split_rows(problem.X)])
        members, segments = bags.groups.members, bags.groups.segments
        weights, positive = bags.weights, bags.checked.double()
        weight = torch.zeros(inputs.shape[1] + 1, dtype=torch.float64)
        selected = torch.ones(len(members), dtype=torch.bool)
        for ridge in self.ridges:
            for _ in range(N_ROUNDS):
                means = _average(inputs, members, selected, segments.index, len(segments)).double()
                weight = _fit_logistic(means, positive, weights, weight, ridge)
                latest = select_top((inputs @ weight[:-1].float())[members], segments, self.share)
                if watch.seconds_left() <= 0 or bool((latest == selected).all()):
                    break
                selected = latest
            column = weight[:-1].float()
            model = LinearModel(features, torch.cat([torch.stack([-column / 2, column / 2], 1), torch.zeros(1, 2)]))
            yield _calibrate(model, problem, watch.held_out)


def _average(inputs: Tensor, members: Tensor, selected: Tensor, group: Tensor, n_groups: int) -> Tensor:
    """Compute the mean inputs of the selected members of each group, shape ``(groups, inputs)``."""
    counts = torch.bincount(group[selected], minlength=n_groups)
    sums = torch.zeros(n_groups, inputs.shape[1]).index_add_(0, group[selected], inputs[members[selected]])
    return sums / counts[:, None]


def _fit_logistic(X: Tensor, y: Tensor, weights: Tensor, start: Tensor, ridge: float) -> Tensor:
    """Take some steps of a logistic regression with a ridge penalty on all weights but the intercept, the last one."""

    def loss(weight: Tensor) -> Tensor:
        losses = binary_cross_entropy_with_logits(X @ weight[:-1] + weight[-1], y, weights, reduction="sum")
        return losses + 0.5 * ridge * weight[:-1].square().sum()

    return _minimise(loss, start, N_STEPS)


def _calibrate(model: LinearModel, problem: Problem, held_out: Problem | None) -> LinearModel:
    """Fit the scale and the intercept of the logits, which overfit training bags, to held-out ones.

    Where nothing is held out, the scale is 1, and as many training bags are expected to be positive as were observed.
    """
    judged = problem if held_out is None else held_out
    (bags,) = judged.sets
    logits = (model.outputs(judged.X) @ torch.tensor([-1.0, 1.0])).double()[bags.groups.members]
    shift = float(logits.max())

    def loss(values: Tensor) -> Tensor:
        scale = 1.0 if held_out is None else values[0].clamp(max=MAX_LOG_SCALE).exp()
        odds = scale * (logits - shift) + values[1]
        outputs = torch.stack([torch.zeros_like(odds), odds], 1)
        evidence = bags.aggregate.checked_evidence(outputs, bags.groups.segments, bags.checked)
        return -(bags.weights @ evidence.log_likelihood) + 0.5 * (values[0] / PRIOR_STD).square()

    log_scale, intercept = _minimise(loss, torch.zeros(2, dtype=torch.float64), 50).tolist()
    scale = float(np.exp(min(log_scale, MAX_LOG_SCALE)))
    weight = scale * model.weight
    weight[-1] = (intercept - scale * shift) * torch.tensor([-0.5, 0.5])
    return LinearModel(model.features, weight)


def _minimise(loss: Callable[[Tensor], Tensor], start: Tensor, n_steps: int) -> Tensor:
    """Take steps of L-BFGS."""

    def objective(values: np.ndarray) -> tuple[float, np.ndarray]:
        parameters = torch.from_numpy(values).requires_grad_()
        value = loss(parameters)
        value.backward()
        return value.item(), parameters.grad.numpy()  # type: ignore[union-attr]

    found = minimize(objective, start.numpy(), jac=True, method="L-BFGS-B", options={"maxiter": n_steps})
    return torch.from_numpy(found.x)
