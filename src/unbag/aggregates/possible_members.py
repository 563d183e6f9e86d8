"""Published counts of groups whose membership is uncertain."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from unbag._kernels.segments import Segments
from unbag._utils.checks import as_tensor, describe, raise_if_any
from unbag.aggregates.base import Aggregate, Wording, check_labels
from unbag.aggregates.counts import check_statements
from unbag.aggregates.published_counts import PublishedCounts
from unbag.data.alignment import read_per_group, read_with_columns
from unbag.data.groups import Groups
from unbag.published import FIELDS, exact, log_weight, unknown, with_names

MOST_ENUMERATED = 12


class PossibleMembers(Aggregate):
    """Counts of groups in which each row was counted with a known probability, for example after record linkage.

    A possible member belongs to one of the classes or was not counted, which is one more class whose count is unknown.
    ``p(z | x)`` sums over who was counted and over labels, as :class:`PublishedCounts` does. A row may be a possible
    member of several groups.

    Observations are made by :meth:`with_chances` from counts or statements of :mod:`unbag.published`.

    Parameters
    ----------
    method, max_states
        As in :class:`PublishedCounts`.
    chance, seed
        Probability with which :meth:`observe` counts each member, and the seed.

    Examples
    --------
    >>> aggregate, groups = PossibleMembers(), Groups.from_sizes([2])
    >>> z = aggregate.with_chances([[0, 1]], groups, [0.9, 0.1])  # one member was counted, in class 1
    >>> aggregate.posterior(torch.zeros(2, 2), groups, z)[:, 1]
    tensor([0.9939, 0.5061])
    """

    is_noisy = True
    has_class_columns = True
    wording = Wording("Counts of possible members", "how many are of each class of those that were counted")

    def __init__(
        self,
        method: Literal["auto", "exact", "normal"] = "auto",
        max_states: int = 2**17,
        *,
        chance: float = 0.8,
        seed: int = 0,
    ) -> None:
        if not isinstance(chance, int | float) or not 0 < chance <= 1:
            raise ValueError(f"chance must be a number above 0 and at most 1, got {chance!r}")
        self._counts = PublishedCounts(method, max_states)
        self.method, self.max_states, self.chance, self.seed = method, max_states, chance, seed

    def with_chances(self, z: Any, groups: Groups, chances: Any) -> Tensor:
        """Return observations from counts or statements about them, ``(groups, classes[, 6])``.

        ``chances`` are the probabilities that possible members were counted in their group, in the order of
        ``groups.members``.
        """
        z, columns = read_with_columns(z, groups)
        stated = exact(z) if z.ndim == 2 else z
        chances = as_tensor(chances, "chances", groups.device).double()
        if chances.shape != groups.members.shape:
            raise ValueError(
                f"chances must have one number for each of {len(groups.members)} memberships, got {describe(chances)}"
            )
        table = torch.zeros(len(groups), groups.max_size, dtype=torch.float64, device=groups.device)
        table[_are_members(groups.sizes, groups.max_size)] = chances
        z = torch.cat([stated, table[:, None].expand(-1, stated.shape[1], -1)], 2)
        return z if columns is None else with_names(z, None, columns)

    def observe(self, labels: Any, groups: Groups, n_classes: int) -> Tensor:
        one_hot = torch.nn.functional.one_hot(check_labels(labels, groups, n_classes), n_classes)
        drawn = torch.rand(len(one_hot), generator=torch.Generator().manual_seed(self.seed)).to(one_hot.device)
        counts = groups.segments.sum((one_hot * (drawn < self.chance)[:, None]).double())
        return self.with_chances(counts, groups, torch.full((len(one_hot),), float(self.chance)))

    def check(self, z: Any, groups: Groups, n_classes: int) -> Tensor:
        """Return statements for all classes and for members that were not counted, with the probabilities."""
        z, fields = read_per_group(z, groups), len(FIELDS)
        if z.ndim != 3 or z.shape[1] != n_classes or z.shape[2] < fields + groups.max_size:
            raise ValueError(
                f"z must be a result of with_chances for {n_classes} classes and groups of up to {groups.max_size} "
                f"possible members; got {describe(z)}"
            )
        chances = z[:, :1, fields:].double()
        wrong = _are_members(groups.sizes, chances.shape[2]) & ~((chances[:, 0] >= 0) & (chances[:, 0] <= 1))
        raise_if_any(
            wrong.any(1),
            "chances must be probabilities, from 0 to 1",
            lambda first: f"got {float(chances[first, 0][wrong[first]][0]):g}",
            groups.name,
        )
        others = unknown(len(groups), 1).to(z.device)
        stated = check_statements(torch.cat([z[..., :fields].double(), others], 1), groups, n_classes + 1)
        return torch.cat([stated, chances.expand(-1, n_classes + 1, -1)], 2)

    def log_prob_given_labels(self, labels: Any, groups: Groups, z: Any, n_classes: int) -> Tensor:
        """Return log p(z | y), by enumeration of the members that were counted."""
        if groups.max_size > MOST_ENUMERATED:
            raise ValueError(f"groups of more than {MOST_ENUMERATED} members are not enumerated, got {groups.max_size}")
        one_hot = torch.nn.functional.one_hot(check_labels(labels, groups, n_classes), n_classes).double()
        z, log_likelihoods = read_per_group(z, groups).double(), []
        for row, members in zip(z, one_hot.split(groups.sizes.tolist()), strict=True):
            chances = row[0, len(FIELDS) :][: len(members)]
            counted = torch.cartesian_prod(*[torch.tensor([0.0, 1.0], dtype=torch.float64)] * len(members))
            counted = counted.view(-1, len(members)).to(z.device)  # (2^m, members)
            log_chance = torch.where(counted == 1, chances, 1 - chances).log().sum(1)
            conditional = log_weight(row[:, : len(FIELDS)], counted @ members).sum(1)
            log_likelihoods.append((log_chance + conditional).logsumexp(0))
        return torch.stack(log_likelihoods)

    def for_training(self) -> PossibleMembers:
        copy = PossibleMembers(self.method, self.max_states, chance=self.chance, seed=self.seed)
        copy._counts = self._counts.for_training()
        return copy

    def infer(self, log_probs: Tensor, segments: Segments, z: Tensor) -> tuple[Tensor, Tensor]:
        fields = len(FIELDS)
        chances = z[:, 0, fields:][_are_members(segments.sizes, z.shape[2] - fields)].to(log_probs.dtype)[:, None]
        with_others = torch.cat([log_probs + chances.log(), (1 - chances).log()], 1)
        log_likelihood, posterior = self._counts.infer(with_others, segments, z[..., :fields])
        # The label of a member that was not counted has the distribution of the model.
        return log_likelihood, posterior[:, :-1] + posterior[:, -1:] * log_probs.exp()


def _are_members(sizes: Tensor, most: int) -> Tensor:
    """Return which entries of a table with ``most`` columns are members, shape ``(groups, most)``."""
    return torch.arange(most, device=sizes.device) < sizes[:, None]
