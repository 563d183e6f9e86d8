"""LLP-VAT: the match of mean proportions, and predictions that stay the same nearby."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor, nn

from unbag._kernels.segments import Segments
from unbag.learners.architectures import build
from unbag.objectives.objective import proportion_divergence
from unbag_experiments.baselines.base import Method, check_positive

FIRST_STEP = 1e-3
"""Length of the step along which the divergence is first differentiated, for each root of a column."""


class WithAdversary(nn.Module):
    """A model that, while it learns, also says what it makes of rows moved to where its prediction changes most.

    The direction is one step of the power iteration on the Hessian of ``KL(p(x) || p(x + r))`` at r = 0. It begins
    with one that is drawn with the weights of the model and stays, so that trials do not depend on those beside them.

    Parameters
    ----------
    model
        From rows to logits.
    shape
        Of a row.
    radius
        How far rows are moved, for each root of a column.

    Examples
    --------
    >>> model = WithAdversary(nn.Linear(4, 3), (4,), radius=0.1)
    >>> model(torch.zeros(2, 4)).shape, model.eval()(torch.zeros(2, 4)).shape
    (torch.Size([2, 6]), torch.Size([2, 3]))
    """

    start: Tensor

    def __init__(self, model: nn.Module, shape: tuple[int, ...], radius: float) -> None:
        super().__init__()
        self.model = model
        self.radius = radius
        self._root = prod(shape) ** 0.5
        direction = torch.randn(shape)
        self.register_buffer("start", direction * (FIRST_STEP * self._root / direction.norm()))

    def forward(self, x: Tensor) -> Tensor:
        """Return logits, (n, k), and beside them, while the model learns, those of the moved rows."""
        logits = self.model(x)
        if not self.training:
            return logits
        log_p = logits.detach().log_softmax(-1)

        def divergence(step: Tensor) -> Tensor:
            return -(log_p.exp() * self.model(x + step).log_softmax(-1)).sum()

        with torch.no_grad():
            slope = torch.func.grad(divergence)(self.start.expand_as(x))
            length = slope.flatten(1).norm(dim=1).clamp_min(torch.finfo(slope.dtype).tiny)
            moved = x + slope * (self.radius * self._root / length).view(-1, *[1] * (x.ndim - 1))
        return torch.cat([logits, self.model(moved)], 1)


@dataclass(frozen=True)
class LLPVAT(Method):
    """Match the mean prediction of a group with its proportions, and predictions with those of rows moved slightly.

    The loss of a group is ``KL(q || mean_i p_i) + weight * (1/m) sum_i KL(p(x_i) || p(x_i + r_i))``, with q the
    observed proportions and r the move that changes the prediction most, see :class:`WithAdversary`. No slope goes
    through ``p(x_i)`` of the second part. The article raises the weight during the first epochs; here it is constant.

    Parameters
    ----------
    weight
        Of the second part; that of the article.
    radius
        Length of r for each root of a column; 6 for the 3,072 columns of the article's images.

    Examples
    --------
    >>> logits = torch.tensor([[0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    >>> LLPVAT(weight=1.0).objective(logits, Segments.from_sizes([2]), torch.tensor([[1, 1]]))
    tensor([0.1201])
    """

    name = "llp_vat"
    title = "LLP-VAT"
    source = "Tsai and Lin, Learning from Label Proportions with Consistency Regularization, ACML 2020"
    in_paper = False
    named_only = True
    problems = ("label_proportions",)

    weight: float = 0.05
    radius: float = 0.1

    def __post_init__(self) -> None:
        check_positive("weight", self.weight)
        check_positive("radius", self.radius)

    def n_outputs(self, n_classes: int) -> int:
        """Return two for each class: for the row as it is, and as it is moved while the model learns."""
        return 2 * n_classes

    def make_model(self, model: str, shape: tuple[int, ...], n_classes: int) -> nn.Module:
        """Return a new model that moves its rows."""
        return WithAdversary(build(model, shape, n_classes)(), shape, self.radius)

    def objective(self, outputs: Tensor, groups: Segments, z: Tensor) -> Tensor:
        """Return the loss of each group; of rows that were not moved, the first part alone."""
        k = z.shape[1]
        log_p = outputs[:, :k].log_softmax(-1)
        loss = proportion_divergence(log_p, groups, z)
        if outputs.shape[1] == k:
            return loss
        known, moved = log_p.detach(), outputs[:, k:].log_softmax(-1)
        return loss + self.weight * groups.sum((known.exp() * (known - moved)).sum(1)) / groups.sizes


METHOD = LLPVAT()
