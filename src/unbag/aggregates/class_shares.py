"""Known shares of the classes as one more set of observations: counts of random groups of rows, up to chance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from unbag._kernels.segments import Segments
from unbag.aggregates import Aggregate, LabelProportions, Wording
from unbag.aggregates.observations import Observations
from unbag.aggregates.symmetry import Symmetry
from unbag.data.alignment import read_per_group
from unbag.data.groups import Groups
from unbag.data.ids import has_default_index, index_of

SIZE = 1024
"""Of the random groups, about: as many rows as a step of training has."""
# A step of training has one of these beside about so many groups of others.
BESIDE = 512
# Counts that are known up to chance are explained best by a model that leaves all to chance, by a sixth of a nat for
# each class of a group. Large groups of little weight tell the shares as well, and hardly speak for that: 12,000 ranks
# of ten classes ended at 90 % with a weight of 0.02, and at 97 with this one; ordered grades, 6 and 3 points behind
# what the order tells. With less than a tenth of it, some fits did not learn the shares any more.
WEIGHT = 0.001
# Shares that were rounded need not add up to one by this much.
ROUNDED = 0.01


class NormalCounts(Aggregate):
    """Counts of the classes in a group, each with normal noise, and taken for normal and independent of each other.

    For large groups, where a sum over counts would cost more than the model. Observations are values and variances of
    the noise, (groups, 2, classes). The posterior tilts every member by the slope of the log-likelihood in its
    probabilities.
    """

    describes_all_rows = True
    wording = Wording("Shares of classes", "the shares of the classes, up to chance")

    def observe(self, labels: Any, groups: Groups, n_classes: int) -> Tensor:
        """Return the counts, with the variance of as many draws."""
        counts = LabelProportions().observe(labels, groups, n_classes).double()
        return torch.stack([counts, groups.sizes[:, None].double().expand_as(counts)], 1)

    def check(self, z: Any, groups: Groups, n_classes: int) -> Tensor:
        """Return observations in float64."""
        return read_per_group(z, groups).double()

    def infer(self, log_probs: Tensor, segments: Segments, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log-density of what was observed, and the tilted members."""
        probs = log_probs.double().exp()
        value, noise = z.unbind(1)
        variance = segments.sum(probs * (1 - probs)) + noise
        off = (value - segments.sum(probs)) / variance
        log_likelihood = -(off.square() * variance + (2 * math.pi * variance).log()).sum(1) / 2
        of_variance = (off.square() - 1 / variance) / 2
        tilt = segments.expand(off) + segments.expand(of_variance) * (1 - 2 * probs)
        return log_likelihood.to(log_probs.dtype), (log_probs + tilt).softmax(1).to(log_probs.dtype)


class ClassShares(NamedTuple):
    """Shares of all classes, ``(k,)`` in float64, and the standard deviation with which each is known."""

    shares: Tensor
    error: float

    def tell(self, symmetry: Symmetry, n_rows: int) -> bool:
        """Whether shares differ by more than chance in so many rows, so that classes that are unnamed get names."""
        if isinstance(symmetry, tuple):
            return False  # the shares of these classes are equal
        s = self.shares
        spread = 3 * (s * (1 - s) / n_rows + self.error**2).sqrt()
        if symmetry == "reversal":
            return bool(((s - s.flip(0)).abs() > spread + spread.flip(0)).any())
        order = s.argsort()
        return bool((s[order].diff() > spread[order][1:] + spread[order][:-1]).all())

    def as_observations(self, n_rows: int, n_groups: int, seed: int) -> Observations:
        """Return random groups of rows whose counts are known as well as the shares allow.

        The counts of m random rows scatter around ``m p`` with the variance ``m p (1 - p)``.

        Parameters
        ----------
        n_rows
            How many rows there are; they are divided into groups.
        n_groups
            How many groups the largest other set has: rows are divided again and again, until there are enough groups
            for every step of training.
        seed
            Of the division.
        """
        random = torch.Generator().manual_seed(seed)
        n_parts = max(1, round(n_rows / SIZE))
        divisions = max(1, -(-n_groups // (BESIDE * n_parts)))
        order = torch.cat([torch.randperm(n_rows, generator=random) for _ in range(divisions)])
        sizes = torch.tensor([len(part) for part in torch.arange(n_rows).tensor_split(n_parts)]).repeat(divisions)
        groups = Groups.from_offsets(torch.cat([torch.zeros(1, dtype=torch.int64), sizes.cumsum(0)]), order)
        m = sizes[:, None].double()
        variance = m * self.shares * (1 - self.shares) + (m * self.error) ** 2
        z = torch.stack([m * self.shares, variance], 1)
        return Observations(NormalCounts(), groups, z, len(self.shares), weight=WEIGHT)


def count_of_shares(value: Any) -> int | None:
    """Return of how many classes shares are given, before the classes are known."""
    return None if value is None else len(_split(value)[0])


def read_class_shares(value: Any, classes: np.ndarray) -> ClassShares:
    """Return known shares, a sequence in the order of the classes or a dict by class, or a pair of them and an error.

    Examples
    --------
    >>> read_class_shares({"ill": 0.1, "well": 0.9}, np.array(["ill", "well"])).shares.tolist()
    [0.1, 0.9]
    >>> read_class_shares(([0.1, 0.9], 0.02), np.array(["ill", "well"])).error
    0.02
    """
    given, error = _split(value)
    names = [str(name) for name in classes.tolist()]
    if (index := index_of(given)) is not None and not has_default_index(given):
        given = dict(zip(index, given, strict=True))
    if isinstance(given, Mapping):
        by_name = {str(name): share for name, share in given.items()}
        if {*by_name} != {*names}:
            raise ValueError(f"class_shares must have each of the classes {names} and no other, got {[*by_name]}")
        given = [by_name[name] for name in names]
    shares = torch.from_numpy(np.array(given, dtype=np.float64))
    if shares.shape != (len(names),):
        raise ValueError(f"class_shares must have one share for each of {len(names)} classes, got {list(given)}")
    if not bool((shares > 0).all()) or not abs(float(shares.sum()) - 1) <= ROUNDED:
        raise ValueError(
            f"class_shares must be positive and add up to 1, got {shares.tolist()}; divide percentages by 100, and "
            "leave out classes that do not occur"
        )
    if not isinstance(error, int | float | np.floating) or not 0 <= error < 1:
        raise ValueError(f"the error of class_shares must be a number from 0 to less than 1, got {error!r}")
    return ClassShares(shares, float(error))


def _split(value: Any) -> tuple[Any, Any]:
    """Return shares, and their error if it stands beside them."""
    if isinstance(value, Sequence) and len(value) == 2 and not isinstance(value[0], Real | str):
        return value[0], value[1]
    if isinstance(value, str) or not hasattr(value, "__len__"):
        raise TypeError(f"class_shares must be a list of shares, a dict by class, or (shares, error); got {value!r}")
    return value, 0.0
