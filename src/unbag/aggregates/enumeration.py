"""Small groups with every outcome enumerated: the yardstick of :mod:`unbag.testing`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

from unbag.aggregates.base import Aggregate, Evidence
from unbag.data.groups import Groups

MOST_VECTORS = 20_000
MOST_DRAWN = 40  # outcomes of an observation with noise
EXTREMES = (-1e4, -200.0, 0.0, 200.0, 1e4)
NEVER = float("-inf")


@dataclass(frozen=True)
class Batch:
    """Groups that have rows of their own, in order, and the evidence that enumeration finds."""

    logits: Tensor  # (memberships, k), float64
    groups: Groups
    z: Tensor  # (groups, ...)
    log_likelihood: Tensor  # (groups,)
    posterior: Tensor  # (memberships, k)

    def take(self, which: Tensor) -> Batch:
        """Return the chosen groups with rows of their own."""
        chosen = self.groups.take(which)
        rows = chosen.members
        groups = Groups.from_sizes(chosen.sizes)
        return Batch(self.logits[rows], groups, self.z[which], self.log_likelihood[which], self.posterior[rows])

    def some(self, most: int, random: torch.Generator) -> Batch:
        """Return so many groups at most, chosen at random."""
        return self.take(torch.randperm(len(self.groups), generator=random)[:most])


@dataclass(frozen=True)
class Enumeration:
    """All label vectors of one size, and what the aggregate observes of each."""

    labels: Tensor  # (vectors, size)
    z: Tensor  # the outcomes that occur, or some of them where they are drawn, (outcomes, ...)
    outcome: Tensor | None  # the outcome of each vector, (vectors,); None where it is drawn
    log_given: Tensor | None  # and then the log-probability of each outcome given each vector, (outcomes, vectors)
    n_classes: int

    @classmethod
    def of(cls, aggregate: Aggregate, size: int, n_classes: int) -> Enumeration:
        """Enumerate the label vectors of groups of a size, if they are not too many."""
        vectors = n_classes**size
        if vectors > MOST_VECTORS:
            raise ValueError(
                f"groups of {size} with {n_classes} classes have {vectors:,} label vectors to enumerate, more than "
                f"{MOST_VECTORS:,}; check smaller groups or fewer classes"
            )
        labels = torch.cartesian_prod(*[torch.arange(n_classes)] * size).view(vectors, size)
        observed = aggregate.observe(labels.flatten(), Groups.from_sizes([size] * vectors), n_classes)
        if observed.ndim not in (1, 2, 3) or len(observed) != vectors:
            raise ValueError(
                f"observe must return one observation per group, shape ({vectors},) or ({vectors}, d) for "
                f"{vectors} groups; got shape {tuple(observed.shape)}"
            )
        z, outcome = torch.unique(observed, dim=0, return_inverse=True)
        if not getattr(aggregate, "is_noisy", False):
            return cls(labels, z, outcome, None, n_classes)
        z = z[:: -(-len(z) // MOST_DRAWN)]
        groups = Groups.from_sizes([size] * vectors)
        given = [
            aggregate.log_prob_given_labels(labels.flatten(), groups, one.expand_as(observed), n_classes) for one in z
        ]
        return cls(labels, z, None, torch.stack(given), n_classes)

    def unchanged(self, moved: Tensor) -> bool:
        """Whether the outcome of each label vector is that of another, (vectors,), in its place."""
        if self.outcome is not None:
            return torch.equal(self.outcome[moved], self.outcome)
        assert self.log_given is not None
        return torch.allclose(self.log_given[:, moved], self.log_given)

    @property
    def size(self) -> int:
        """Number of members of a group."""
        return self.labels.shape[1]

    def evidence(self, logits: Tensor) -> Evidence:
        """Likelihood of every outcome, (outcomes,), and posterior, (outcomes, size, k), of one group of logits."""
        members = torch.arange(self.size)
        log_probs = logits.log_softmax(-1)[members, self.labels].sum(1)  # (vectors,)
        if self.outcome is None:
            assert self.log_given is not None
            joint = log_probs + self.log_given  # (outcomes, vectors)
            total = joint.logsumexp(1)
            of_labels = torch.nn.functional.one_hot(self.labels, self.n_classes).double()
            return Evidence(total, torch.einsum("ov,vmk->omk", (joint - total[:, None]).exp(), of_labels))
        top = log_probs.new_full((len(self.z),), NEVER).scatter_reduce_(0, self.outcome, log_probs, "amax")
        shift = top.masked_fill(top == NEVER, 0)
        parts = (log_probs - shift[self.outcome]).exp()
        total = torch.zeros_like(top).index_add_(0, self.outcome, parts)
        joint = log_probs.new_zeros(len(self.z), self.size, self.n_classes)
        places = (self.outcome[:, None].expand_as(self.labels), members.expand_as(self.labels), self.labels)
        joint.index_put_(places, parts[:, None].expand(self.labels.shape), accumulate=True)
        return Evidence(total.log() + shift, joint / total[:, None, None])

    def batch(self, tables: Tensor) -> Batch:
        """Every outcome with each table of logits, (tables, size, k), table after table."""
        evidences = [self.evidence(table) for table in tables]
        outcomes = len(self.z)
        return Batch(
            tables.repeat_interleave(outcomes, 0).flatten(0, 1),
            Groups.from_sizes([self.size] * (len(tables) * outcomes)),
            self.z.repeat(len(tables), *[1] * (self.z.ndim - 1)),
            torch.cat([one.log_likelihood for one in evidences]),
            torch.cat([one.posterior for one in evidences]).flatten(0, 1),
        )


@dataclass(frozen=True)
class Trial:
    """What a check gets to work with."""

    aggregate: Aggregate
    n_classes: int
    enumerations: list[Enumeration]
    random: torch.Generator

    def normal(self, *shape: int) -> Tensor:
        """Draw logits of classes, (*shape, k)."""
        return torch.randn(*shape, self.n_classes, generator=self.random, dtype=torch.float64)

    def batches(self, scale: float = 1.5, tables: int = 3) -> Iterator[Batch]:
        """One batch per size, with random logits."""
        for enumeration in self.enumerations:
            yield enumeration.batch(scale * self.normal(tables, enumeration.size))

    def extreme_batches(self) -> Iterator[Batch]:
        """One batch per size; every outcome meets logits that agree with it, contradict it, or are tied."""
        for enumeration in self.enumerations:
            vectors = torch.randint(len(enumeration.labels), (3,), generator=self.random)
            certain = 2.0 * torch.nn.functional.one_hot(enumeration.labels[vectors], self.n_classes) - 1
            any_of = torch.randint(len(EXTREMES), (6, enumeration.size, self.n_classes), generator=self.random)
            mixed = torch.tensor(EXTREMES, dtype=torch.float64)[any_of]
            yield enumeration.batch(torch.cat([200 * certain.double(), 1e4 * certain.double(), mixed]))

    def evidence(self, batch: Batch, dtype: torch.dtype = torch.float64) -> Evidence:
        """Return what the aggregate says of a batch."""
        return self.aggregate.evidence(batch.logits.to(dtype), batch.groups, batch.z)

    def posterior(self, batch: Batch) -> Tensor:
        """Return the posterior as its own method gives it."""
        return self.aggregate.posterior(batch.logits, batch.groups, batch.z)

    def evidence_and_slope(self, batch: Batch, dtype: torch.dtype = torch.float64) -> tuple[Evidence, Tensor]:
        """Return also the gradient of the summed likelihoods, (rows, k)."""
        logits = batch.logits.to(dtype).requires_grad_()
        evidence = self.aggregate.evidence(logits, batch.groups, batch.z)
        if not evidence.log_likelihood.requires_grad:
            raise AssertionError("the log-likelihood has no gradient; expected one that leads to the logits")
        (slope,) = torch.autograd.grad(evidence.log_likelihood.sum(), logits)
        return evidence, slope


def join(batches: Sequence[Batch]) -> Batch:
    """Put the groups of several batches into one."""
    return Batch(
        torch.cat([batch.logits for batch in batches]),
        Groups.from_sizes(torch.cat([batch.groups.sizes for batch in batches])),
        torch.cat([batch.z for batch in batches]),
        torch.cat([batch.log_likelihood for batch in batches]),
        torch.cat([batch.posterior for batch in batches]),
    )


def orders(size: int) -> list[Tensor]:
    """Return orders of members to try: two swapped, all reversed, all moved up by one."""
    plain = torch.arange(size)
    permutations = [plain.flip(0), plain.roll(1)]
    for first, second in combinations(range(size), 2):
        swapped = plain.clone()
        swapped[[first, second]] = plain[[second, first]]
        permutations.append(swapped)
    return permutations
