"""EasyLLP: the loss of single rows, estimated without bias from the proportions of random groups."""

from __future__ import annotations

from torch import Tensor

from unbag._kernels.segments import Segments
from unbag.training import Observations
from unbag_experiments.baselines.base import Method, Task
from unbag_experiments.baselines.targets import Targets, with_targets


def debiased_weights(counts: Tensor, sizes: Tensor, shares: Tensor) -> Tensor:
    """Return the weight that the loss of each class has for every member of a group, ``(groups, k)``.

    ``c_j - (m - 1) s_j`` with c the counts of the group, m its members and s the shares of the classes among all rows:
    of the other members, drawn at random, m - 1 times the share is expected, so that for one member the class
    probability is left on average. The weights of a group sum to one; some are negative.

    Examples
    --------
    >>> import torch
    >>> debiased_weights(torch.tensor([[3, 1]]), torch.tensor([4]), torch.tensor([0.5, 0.5]))
    tensor([[ 1.5000, -0.5000]])
    """
    return counts - (sizes[:, None] - 1) * shares


class EasyLLP(Method):
    """Minimise the debiased loss of all members: ``(1/m) sum_i sum_j w_j l_j(x_i)``, w by :func:`debiased_weights`.

    Where members are drawn independently, its expectation is that of the loss of labelled rows. The shares of the
    classes are those of all training groups together. The loss is the squared error of the probabilities: with weights
    that may be negative, an unbounded one such as the cross entropy would have no minimum.

    Examples
    --------
    >>> import torch
    >>> METHOD.objective(torch.zeros(2, 2), Segments.from_sizes([2]), torch.tensor([[1.5, -0.5]]))
    tensor([0.5000])
    """

    name = "easy_llp"
    title = "EasyLLP"
    source = "Busa-Fekete, Choi, Dick, Gentile and Muñoz Medina, Easy Learning from Label Proportions, NeurIPS 2023"
    in_paper = False
    named_only = True
    problems = ("label_proportions",)

    def prepare(self, task: Task) -> Task:
        """Return the task with debiased weights in place of counts."""
        seen = task.observations
        shares = seen.checked.sum(0) / seen.groups.sizes.sum()

        def weights(given: Observations) -> Tensor:
            return debiased_weights(given.checked, given.groups.sizes, shares)

        learned = Observations(Targets(), seen.groups, weights(seen), task.n_classes)
        return with_targets(task, learned, None if task.held_out is None else weights(task.held_out))

    def objective(self, outputs: Tensor, groups: Segments, z: Tensor) -> Tensor:
        """Return the debiased squared error of each group."""
        p = outputs.softmax(-1)
        # Of class j it is sum_l (p_l - [l = j])^2 = |p|^2 - 2 p_j + 1.
        losses = p.square().sum(1, keepdim=True) - 2 * p + 1
        return groups.sum((losses * groups.expand(z.to(losses.dtype))).sum(1)) / groups.sizes


METHOD = EasyLLP()
