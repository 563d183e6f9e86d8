"""Reading counts per class, or proportions that stand for counts."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from unbag._utils.checks import check_n_classes, format_indices, is_integral
from unbag.data.alignment import read_per_group
from unbag.data.groups import Groups


def check_counts(z: Any, groups: Groups, n_classes: int) -> Tensor:
    """Return counts, (groups, classes), from counts or proportions; each row adds up to the size of its group."""
    check_n_classes(n_classes)
    z = read_per_group(z, groups)
    if z.shape != (len(groups), n_classes):
        raise ValueError(
            f"z must have one row per group and one column per class, shape {(len(groups), n_classes)}; "
            f"got shape {tuple(z.shape)}"
        )
    if z.dtype == torch.bool or z.is_complex():
        raise TypeError(f"z must be counts or proportions, got {z.dtype}")
    counts = z.long() if is_integral(z) else _from_floats(z.double(), groups)
    if int(counts.min()) < 0:
        _refuse("counts must not be negative", (counts < 0).any(1), groups, z)
    if bool((wrong := counts.sum(1) != groups.sizes).any()):
        first = int(wrong.nonzero()[0])
        raise ValueError(
            f"counts must add up to the size of their group, but those of "
            f"{format_indices('group', wrong, groups.name)} do not: group {groups.name(first)} has "
            f"{int(groups.sizes[first])} members and counts that add up to "
            f"{int(counts[first].sum())}"
        )
    return counts.contiguous()


def _from_floats(z: Tensor, groups: Groups) -> Tensor:
    if bool((wrong := ~z.isfinite().all(1)).any()):
        _refuse("z must be finite numbers", wrong, groups, z)
    if bool((wrong := (z < 0).any(1)).any()):
        _refuse("counts and proportions must not be negative", wrong, groups, z)
    sums, sizes = z.sum(1), groups.sizes.double()
    if bool(((sums - sizes).abs() <= 1e-6 * sizes).all()):
        fractional = ((z - z.round()).abs() > 1e-6).any(1)
        if bool(fractional.any()):
            _refuse("counts must be whole numbers", fractional, groups, z)
    else:
        # Room for proportions written with two digits, as long as they leave no doubt.
        if bool((wrong := (sums - 1).abs() > 0.005 * z.shape[1] + 1e-3).any()):
            first = int(wrong.nonzero()[0])
            raise ValueError(
                f"proportions must add up to one, or counts to the size of their group, but those of "
                f"{format_indices('group', wrong, groups.name)} do neither: group {groups.name(first)} has "
                f"{int(sizes[first])} members, and its row adds up to {float(sums[first]):.6g}"
            )
        z = z * sizes[:, None]
    counts = z.round()
    room = (0.005 * sizes + 1e-3).clamp_max(0.25)
    unfit = ((z - counts).abs() > room[:, None]).any(1) | (counts.sum(1) != sizes)
    if bool(unfit.any()):
        first = int(unfit.nonzero()[0])
        raise ValueError(
            f"proportions must be whole numbers of members, but those of "
            f"{format_indices('group', unfit, groups.name)} are not: group {groups.name(first)} has "
            f"{int(sizes[first])} members, which makes "
            f"{[round(value, 4) for value in z[first].tolist()]}; hand in counts, or check which rows belong to it"
        )
    return counts.long()


def _refuse(expected: str, wrong: Tensor, groups: Groups, z: Tensor) -> None:
    first = int(wrong.nonzero()[0])
    raise ValueError(
        f"{expected}, but those of {format_indices('group', wrong, groups.name)} are otherwise: "
        f"z[{first}] is {z[first].tolist()}"
    )
