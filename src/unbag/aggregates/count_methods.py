"""The dispatch of groups with counts to the methods that compute them, for exact and published counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from unbag._kernels.segments import Segments
from unbag._utils.checks import raise_if_any
from unbag.data.groups import Groups

APPROXIMATIONS = ("normal", "saddle_point")
ERROR_TIMES_SIZE = 0.08
"""Mean error of the posterior of the saddle point times the number of members, as the experiments measure it."""


@dataclass(frozen=True, eq=False)
class Part:
    """Groups that are computed together by one method."""

    method: str
    which: Tensor  # (groups of this part,), their numbers
    largest: tuple[int, ...] = ()  # for count states: the largest count of each column


@dataclass(frozen=True, eq=False)
class Plan:
    """The method that computes each group.

    Examples
    --------
    >>> import unbag
    >>> groups = unbag.Groups.from_sizes([2, 20])
    >>> print(unbag.LabelProportions().plan(groups, [[1, 1, 0], [10, 0, 10]]))
    permanents for 1 group, two_classes for 1 group
    """

    methods: list[str]
    sizes: Tensor  # (groups,)

    @classmethod
    def from_parts(cls, parts: Sequence[Part], sizes: Tensor) -> Plan:
        """Collect the methods of all parts."""
        methods = [""] * len(sizes)
        for part in parts:
            for group in part.which.tolist():
                methods[group] = part.method
        return cls(methods, sizes)

    @property
    def exact(self) -> bool:
        """Whether no group is approximated."""
        return not {*APPROXIMATIONS} & {*self.methods}

    @property
    def expected_error(self) -> Tensor:
        """The mean error of the posterior that is expected in each group; 0 where it is exact, shape ``(groups,)``.

        For the saddle point it is 0.08 divided by the number of members, for any number of classes: the mean over
        logits from normal distributions of scales from 0.5 to 30. Single members that a confident classifier leaves
        undecided can be off by up to 0.4. For published counts it is NaN; see the documentation for tables.
        """
        by_method = {"saddle_point": ERROR_TIMES_SIZE, "normal": float("nan")}
        return torch.tensor([by_method.get(method, 0.0) for method in self.methods]) / self.sizes.cpu()

    def __str__(self) -> str:
        counted = {method: self.methods.count(method) for method in sorted({*self.methods})}
        text = ", ".join(f"{method} for {n} group{'s' if n > 1 else ''}" for method, n in counted.items())
        if approximations := [method for method in APPROXIMATIONS if method in counted]:
            text += f"; approximate: {' and '.join(approximations)}"
        if error := float(self.expected_error.nan_to_num(0.0).max()):
            text += f", with an error of the posterior up to {error:.1g} on average"
        return text


def infer_parts(
    parts: Sequence[Part],
    infer_part: Callable[[Part, Tensor, Segments, Tensor], tuple[Tensor, Tensor]],
    log_probs: Tensor,
    segments: Segments,
    z: Tensor,
) -> tuple[Tensor, Tensor]:
    """Compute each part by its method, and put the results of all groups together.

    Log-likelihoods have the precision of ``log_probs``. The posterior may be in float64, because large groups change
    the probabilities of a member by little, and this difference is the gradient.
    """
    if len(parts) == 1:
        log_likelihood, posterior = infer_part(parts[0], log_probs, segments, z)
        return log_likelihood.to(log_probs.dtype), posterior
    log_likelihood, posterior = log_probs.new_empty(len(segments)), torch.empty_like(log_probs, dtype=torch.float64)
    for part in parts:
        rows, inside = segments.take(part.which)
        part_likelihood, part_posterior = infer_part(part, log_probs[rows], inside, z[part.which])
        log_likelihood[part.which] = part_likelihood.to(log_probs.dtype)
        posterior[rows] = part_posterior.double()
    return log_likelihood, posterior


def raise_if_out_of_reach(states: Tensor, max_states: int, groups: Groups, alternative: str) -> None:
    """Raise an error for groups with more count vectors, (groups,), than ``method="exact"`` allows."""
    raise_if_any(
        states > max_states,
        f"method='exact' allows at most max_states={max_states} count vectors per group",
        lambda first: f"it has {states[first]:.3g}; raise max_states or allow {alternative} with method='auto'",
        groups.name,
    )


def make_parts(*chosen: tuple[str, Tensor, Tensor | None]) -> list[Part]:
    """Return a part for each method that has groups, from a mask of groups and the values by which they are divided."""
    parts = []
    for method, mask, values in chosen:
        masks = [mask] if values is None else [mask & (values == value) for value in sorted({*values[mask].tolist()})]
        parts += [Part(method, mask.nonzero().flatten()) for mask in masks]
    return [part for part in parts if len(part.which)]
