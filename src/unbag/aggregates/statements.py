"""Reading statements about counts: each must fit the size of its group, together with those of the other classes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from unbag._utils.checks import check_n_classes, describe, format_indices
from unbag.aggregates.counts import check_counts
from unbag.data.alignment import read_per_group
from unbag.data.groups import Groups
from unbag.noise import KINDS
from unbag.published import FIELDS, HIGH, LOW, MISSING, WHOLE, describe_statement, exact


def check_statements(z: Any, groups: Groups, n_classes: int) -> Tensor:
    """Return statements, (groups, classes, 6), with the bounds that follow from those of the other classes.

    Plain counts or proportions, (groups, classes), are exact statements.
    """
    check_n_classes(n_classes)
    z = read_per_group(z, groups)
    if z.ndim == 2:
        return exact(check_counts(z, groups, n_classes)).to(groups.device)
    if z.shape != (len(groups), n_classes, len(FIELDS)) or not z.is_floating_point():
        raise ValueError(
            f"z must be statements of unbag.published for each group and class, shape "
            f"{(len(groups), n_classes, len(FIELDS))}, or counts; got {describe(z)}"
        )
    z = z.double().clone()
    low, high, code, value, scale, missing = z.unbind(2)
    size = (groups.sizes + n_missing(z))[:, None].double()
    known = torch.tensor([0, *(kind.code for kind in KINDS.values())]).to(z)
    of_whole = torch.tensor([kind.code for kind in KINDS.values() if kind.is_integral]).to(z)
    noisy = code > 0
    total = missing.sum(1, keepdim=True)
    least, most = (low - WHOLE).ceil().clamp_min(0.0), (high + WHOLE).floor().minimum(size)
    all_least, all_most = least.sum(1, keepdim=True), most.sum(1, keepdim=True)
    rows = "if it counts members that have no row, add them with published.with_missing"
    rules = {
        "statements must not hold NaN; state what is unknown with published.unknown": ~z.isnan().any(2),
        f"noise must be one of {known.long().tolist()}": torch.isin(code, known),
        "the scale of noise must be a positive number": ~noisy | (scale.isfinite() & (scale > 0)),
        "published values must be finite numbers": ~noisy | value.isfinite(),
        "values with noise of whole numbers must be whole": ~torch.isin(code, of_whole)
        | ((value - value.round()).abs() <= WHOLE),
        "missing members must be 0 or more": missing.isfinite() & (missing >= 0),
        "missing members must add up to a whole number": (total - total.round()).abs() <= WHOLE,
        "bounds must not be crossed, low first": low <= high,
        f"counts must be possible in a group of its size; {rows}": (low <= size) & (high >= 0),
        "bounds must leave a whole number between them": least <= most,
        f"the least counts must not add up to more than the size of the group; {rows}": all_least <= size,
        "the largest counts must add up to the size of the group": all_most >= size,
    }
    right = torch.stack([rule.all(1) for rule in rules.values()])  # (rules, groups)
    if not bool(right.all()):
        for place, (expected, rule) in enumerate(rules.items()):
            _refuse(~right[place], ~rule, expected, groups, z)
    # What the other classes leave bounds each count too.
    z[..., LOW] = torch.maximum(least, size - (all_most - most))
    z[..., HIGH] = torch.minimum(most, size - (all_least - least))
    return z


def n_missing(z: Tensor) -> Tensor:
    """Return how many members of each group have no row, (groups,)."""
    return z[..., MISSING].nan_to_num(0.0, 0.0, 0.0).sum(1).round().long()


def _refuse(of_groups: Tensor, wrong: Tensor, expected: str, groups: Groups, z: Tensor) -> None:
    """Name the groups with wrong statements, (groups,), if there are any, and the classes, (groups, classes or 1)."""
    if not bool(of_groups.any()):
        return
    first = int(of_groups.nonzero()[0])
    size = f"{int(groups.sizes[first])} members"
    if missing := int(n_missing(z)[first]):
        size += f" and {missing} without a row"
    classes = wrong[first].expand(z.shape[1]).nonzero().flatten().tolist()[:4]
    stated = "; ".join(f"class {one}: {describe_statement(z[first, one].tolist())}" for one in classes)
    raise ValueError(
        f"{expected}; not so for {format_indices('group', of_groups, groups.name)}: group {groups.name(first)} has "
        f"{size}, and {stated}"
    )
