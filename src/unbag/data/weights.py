"""Weights of groups and of rows.

A group is one observation, and its weight is the number of times that it counts. The weight of a row multiplies its
term where there is one term per row, as in the unbiased risk. A likelihood has one term per group: the rows of a group
must then have equal weights, which are the weight of the group.
"""

from collections.abc import Callable, Mapping
from math import isfinite
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from unbag._utils.checks import as_tensor, raise_if_any
from unbag.data.alignment import read_per_group
from unbag.data.groups import Groups


def read_group_weights(value: Any, groups: Groups) -> Tensor:
    """Return one finite, non-negative weight per group, in float64; entries are matched by id as those of z are."""
    return _check(read_per_group(value, groups, "group_weights"), "group_weights", "group", len(groups), groups.name)


def read_sample_weight(value: Any, n_rows: int, device: torch.device) -> Tensor:
    """Return one finite, non-negative weight per row, in float64."""
    return _check(as_tensor(value, "sample_weight", device), "sample_weight", "row", n_rows)


def weights_of_groups(sample_weight: Any, groups: Groups, n_rows: int) -> Tensor:
    """Return the weight of each group, in float64, from weights of rows that are equal within each group."""
    members = read_sample_weight(sample_weight, n_rows, groups.device)[groups.members]
    weights = members[groups.offsets[:-1]]
    if bool((different := members != groups.segments.expand(weights)).any()):
        group = int(groups.segment[different][0])
        unequal = members[groups.segment == group].unique().tolist()
        raise ValueError(
            "sample_weight must be equal in all rows of a group, which is one observation, but it is not in "
            f"{groups.format_groups_holding(different)}: group {group} has {unequal[0]:g} and {unequal[1]:g}; give "
            "each row the weight of its group"
        )
    return weights


def weights_by_answer(sampling: Any, z: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return weights of groups that are inverse to the rate at which groups with their observation were kept.

    The expected likelihood with these weights, whose sum is that of ``weights``, is that of groups selected at random.
    ``sampling`` is a dict from observation to relative rate, or the share of 1 among random groups, for 0 and 1.
    """
    if z.ndim != 1:
        raise ValueError(
            f"sampling is by observation, for which z must be one number per group; got shape {tuple(z.shape)}"
        )
    weights = torch.ones(len(z), dtype=torch.float64) if weights is None else weights
    distinct, number = z.double().unique(return_inverse=True)
    observed = distinct.tolist()
    if isinstance(sampling, Mapping):
        rates = _read_rates(sampling)
        if missing := [f"{value:g}" for value in observed if value not in rates]:
            raise ValueError(
                f"sampling must have a rate for each observation that occurs; there is none for {missing[0]}"
            )
    elif not _is_number(sampling) or not 0 < sampling < 1 or observed != [0, 1]:
        raise ValueError(
            "sampling must be a dict from observation to the rate at which it was kept, or, of groups with the "
            "observations 0 and 1, the share of 1 among random ones, a number between 0 and 1; got "
            f"{sampling!r} for groups with the observations {', '.join(f'{value:g}' for value in observed[:5])}"
        )
    else:
        share = float(weights @ z.double() / weights.sum())
        rates = {0.0: (1 - share) / (1 - sampling), 1.0: share / sampling}
    inverse = weights / torch.tensor([rates[value] for value in observed], dtype=torch.float64)[number]
    return inverse * (weights.sum() / inverse.sum())


def is_uniform_sampling(sampling: Any) -> bool:
    """Return whether rates are the same for all observations, so that groups were not selected by them."""
    return isinstance(sampling, Mapping) and len(set(_read_rates(sampling).values())) == 1


def _check(weights: Tensor, argument: str, kind: str, n: int, name: Callable[[int], str] = str) -> Tensor:
    if weights.shape != (n,):
        raise ValueError(f"{argument} must have one entry per {kind}, shape ({n},); got shape {tuple(weights.shape)}")
    if weights.is_complex():
        raise TypeError(f"{argument} must be real numbers, got {weights.dtype}")
    wrong, rule = ~((weights >= 0) & weights.isfinite()), f"{argument} must be finite and not negative"
    raise_if_any(wrong, rule, lambda first: f"{argument}[{first}] is {weights[first].item()}", name, kind)
    return weights.double()


def _read_rates(sampling: Mapping[Any, Any]) -> dict[float, float]:
    rates = {}
    for observation, rate in sampling.items():
        if not _is_number(rate) or not rate > 0:
            raise ValueError(f"sampling must have positive rates; got {rate!r} for the observation {observation}")
        try:
            rates[float(observation)] = float(rate)
        except (TypeError, ValueError):
            raise ValueError(
                f"sampling must have observations, which are numbers, as its keys; got {observation!r}"
            ) from None
    return rates


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and isfinite(value)
