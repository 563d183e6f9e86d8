"""Validation of counts per class, of proportions, and of statements about counts."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from unbag._utils.checks import check_n_classes, describe, is_integral, raise_if_any
from unbag.data.alignment import read_per_group
from unbag.data.groups import Groups
from unbag.noise import KINDS
from unbag.published import FIELDS, HIGH, LOW, MISSING, WHOLE, describe_statement, exact


def check_counts(z: Any, groups: Groups, n_classes: int) -> Tensor:
    """Validate counts or proportions, and return counts, shape ``(groups, classes)``, that sum to the group sizes."""
    check_n_classes(n_classes)
    z = read_per_group(z, groups)
    if z.shape != (len(groups), n_classes):
        raise ValueError(
            f"z must have one row per group and one column per class, shape {(len(groups), n_classes)}; "
            f"got shape {tuple(z.shape)}"
        )
    if z.dtype == torch.bool or z.is_complex():
        raise TypeError(f"z must be counts or proportions, got {z.dtype}")

    def describe_row(first: int) -> str:
        return f"z[{first}] is {z[first].tolist()}"

    def describe_sum(first: int) -> str:
        total = float(z[first].sum())
        return f"group {groups.name(first)} has {int(groups.sizes[first])} members, and its row sums to {total:.6g}"

    raise_if_any(~z.isfinite().all(1), "counts and proportions must be finite", describe_row, groups.name)
    rule = "counts without noise, which unbag.published.noisy states, must not be negative"
    raise_if_any((z < 0).any(1), rule, describe_row, groups.name)
    if is_integral(z):
        rule = "counts must add up to the size of their group"
        raise_if_any(z.sum(1) != groups.sizes, rule, describe_sum, groups.name)
        return z.long().contiguous()
    z, sizes = z.double(), groups.sizes.double()
    sums = z.sum(1)
    if bool(((sums - sizes).abs() <= 1e-6 * sizes).all()):
        wrong = ((z - z.round()).abs() > 1e-6).any(1)
        raise_if_any(wrong, "counts must be whole numbers", describe_row, groups.name)
        expected = z
    else:
        # Tolerance for proportions with two digits, if the counts that they stand for are unambiguous.
        wrong = (sums - 1).abs() > 0.005 * n_classes + 1e-3
        rule = "proportions must add up to one, or counts to the size of their group"
        raise_if_any(wrong, rule, describe_sum, groups.name)
        expected = z * sizes[:, None]
    counts = expected.round()
    tolerance = (0.005 * sizes + 1e-3).clamp_max(0.25)
    raise_if_any(
        ((expected - counts).abs() > tolerance[:, None]).any(1) | (counts.sum(1) != sizes),
        "proportions must correspond to whole numbers of members",
        lambda first: (
            f"group {groups.name(first)} has {int(sizes[first])} members, which makes "
            f"{[round(value, 4) for value in expected[first].tolist()]}; pass counts, or check which rows belong to it"
        ),
        groups.name,
    )
    return counts.long().contiguous()


def check_statements(z: Any, groups: Groups, n_classes: int) -> Tensor:
    """Validate statements, ``(groups, classes, 6)``, and tighten their bounds by those of the other classes.

    Plain counts or proportions, ``(groups, classes)``, are exact statements.
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
    codes = torch.tensor([0, *(kind.code for kind in KINDS.values())]).to(z)
    integral = torch.tensor([kind.code for kind in KINDS.values() if kind.is_integral]).to(z)
    noisy = code > 0
    total = missing.sum(1, keepdim=True)
    least, most = (low - WHOLE).ceil().clamp_min(0.0), (high + WHOLE).floor().minimum(size)
    least_sum, most_sum = least.sum(1, keepdim=True), most.sum(1, keepdim=True)
    advice = "if it counts members that have no row, add them with published.with_missing"
    rules = {
        "statements must not contain NaN; for unknown counts use published.unknown": ~z.isnan().any(2),
        f"noise must be one of {codes.long().tolist()}": torch.isin(code, codes),
        "the scale of noise must be a positive number": ~noisy | (scale.isfinite() & (scale > 0)),
        "published values must be finite numbers": ~noisy | value.isfinite(),
        "values with noise of whole numbers must be whole": ~torch.isin(code, integral)
        | ((value - value.round()).abs() <= WHOLE),
        "missing members must be 0 or more": missing.isfinite() & (missing >= 0),
        "missing members must add up to a whole number": (total - total.round()).abs() <= WHOLE,
        "the lower bound must not exceed the upper bound": low <= high,
        f"counts must be possible in a group of its size; {advice}": (low <= size) & (high >= 0),
        "bounds must include a whole number": least <= most,
        f"the lower bounds must not add up to more than the size of the group; {advice}": least_sum <= size,
        "the upper bounds must add up to at least the size of the group": most_sum >= size,
    }
    for rule, valid in rules.items():
        raise_if_any(~valid.all(1), rule, partial(_describe, wrong=~valid, groups=groups, z=z), groups.name)
    z[..., LOW] = torch.maximum(least, size - (most_sum - most))
    z[..., HIGH] = torch.minimum(most, size - (least_sum - least))
    return z


def n_missing(z: Tensor) -> Tensor:
    """Return the number of members of each group that have no row, shape ``(groups,)``."""
    return z[..., MISSING].nan_to_num(0.0, 0.0, 0.0).sum(1).round().long()


def _describe(group: int, wrong: Tensor, groups: Groups, z: Tensor) -> str:
    """Describe a group and its wrong statements, marked by a table of shape ``(groups, classes or 1)``."""
    size = f"{int(groups.sizes[group])} members"
    if missing := int(n_missing(z)[group]):
        size += f" and {missing} without a row"
    classes = wrong[group].expand(z.shape[1]).nonzero().flatten().tolist()[:4]
    statements = "; ".join(f"class {label}: {describe_statement(z[group, label].tolist())}" for label in classes)
    return f"group {groups.name(group)} has {size}, and {statements}"
