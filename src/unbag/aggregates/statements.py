"""Reading statements about counts: each must fit the size of its group, together with those of the other classes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from unbag.aggregates.counts import check_counts
from unbag.alignment import read_per_group
from unbag.checks import check_n_classes, describe, name_some
from unbag.groups import Groups
from unbag.noise import KINDS
from unbag.published import FIELDS, HIGH, LOW, MISSING, NOISE, SCALE, VALUE, WHOLE, exact


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
    _refuse(z.isnan(), "statements must not hold NaN; state what is unknown with published.unknown", groups, z)
    _check_noise(z, groups)
    _check_missing(z, groups)
    _tighten(z, groups)
    return z


def n_missing(z: Tensor) -> Tensor:
    """Return how many members of each group have no row, (groups,)."""
    return z[..., MISSING].sum(1).round().long()


def _check_noise(z: Tensor, groups: Groups) -> None:
    code, scale, value = z[..., NOISE], z[..., SCALE], z[..., VALUE]
    known = torch.tensor([0, *(kind.code for kind in KINDS.values())]).to(code)
    _refuse(~torch.isin(code, known)[..., None], f"noise must be one of {known.long().tolist()}", groups, z)
    noisy = code > 0
    wrong = noisy & ~(scale.isfinite() & (scale > 0))
    _refuse(wrong[..., None], "the scale of noise must be a positive number", groups, z)
    _refuse((noisy & ~value.isfinite())[..., None], "published values must be finite numbers", groups, z)
    whole = torch.isin(code, torch.tensor([kind.code for kind in KINDS.values() if kind.is_whole]).to(code))
    wrong = whole & ((value - value.round()).abs() > WHOLE)
    _refuse(wrong[..., None], "values with noise of whole numbers must be whole", groups, z)


def _check_missing(z: Tensor, groups: Groups) -> None:
    missing = z[..., MISSING]
    _refuse((~missing.isfinite() | (missing < 0))[..., None], "missing members must be 0 or more", groups, z)
    total = missing.sum(1)
    _refuse(((total - total.round()).abs() > WHOLE)[:, None], "missing members must add up to a whole number", groups, z)


def _tighten(z: Tensor, groups: Groups) -> None:
    """Bound counts by the size of the group and by what the other classes leave; refuse what leaves nothing."""
    size = (groups.sizes + n_missing(z))[:, None].double()
    low, high = z[..., LOW], z[..., HIGH]
    _refuse((low > high)[..., None], "bounds must not be crossed, low first", groups, z)
    low, high = (low - WHOLE).ceil(), (high + WHOLE).floor()
    _refuse((low > high)[..., None], "bounds must leave a whole number between them", groups, z)
    beyond = "counts must be possible in a group of its size: give published.with_missing the members without a row"
    _refuse(((low > size) | (high < 0))[..., None], beyond, groups, z)
    low, high = low.clamp_min(0.0), torch.minimum(high, size)
    _refuse(low.sum(1, keepdim=True) > size, f"the least counts must not add up to more than there are; {beyond}", groups, z)
    _refuse(high.sum(1, keepdim=True) < size, "the largest counts must add up to the members of a group", groups, z)
    others_low, others_high = low.sum(1, keepdim=True) - low, high.sum(1, keepdim=True) - high
    z[..., LOW], z[..., HIGH] = torch.maximum(low, size - others_high), torch.minimum(high, size - others_low)


def _refuse(wrong: Tensor, expected: str, groups: Groups, z: Tensor) -> None:
    """Name the groups with wrong statements, (groups,), (groups, 1) or (groups, classes, 1), if there are any."""
    of_groups = wrong.reshape(len(z), -1).any(1)
    if not bool(of_groups.any()):
        return
    first = int(of_groups.nonzero()[0])
    size = f"{int(groups.sizes[first])} members"
    if missing := int(z[first, :, MISSING].nan_to_num(0.0, 0.0, 0.0).sum().round()):
        size += f" and {missing} without a row"
    classes = range(z.shape[1])
    if wrong.ndim == 3:
        classes = [int(wrong[first].any(1).nonzero()[0])]  # type: ignore[assignment]
    stated = "; ".join(f"class {one}: {_describe(z[first, one].tolist())}" for one in list(classes)[:4])
    raise ValueError(
        f"{expected}; not so for {name_some('group', of_groups, groups.name)}: group {groups.name(first)} has {size}, "
        f"and {stated}"
    )


def _describe(statement: list[float]) -> str:
    low, high, code, value, scale, missing = statement
    said = [f"a count of {low:g}" if low == high else f"a count from {low:g} to {high:g}"]
    if code:
        names = {kind.code: name for name, kind in KINDS.items()}
        said.append(f"published as {value:g} with {names.get(int(code), f'noise {code:g}')}:{scale:g}")
    if missing:
        said.append(f"{missing:g} missing")
    return ", ".join(said)
