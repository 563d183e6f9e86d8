"""Enumeration of all label vectors of small groups, the reference of :mod:`unbag.testing`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

from unbag.aggregates.base import Aggregate, Evidence
from unbag.data.groups import Groups

MAX_VECTORS = 20_000
MAX_NOISY_OUTCOMES = 40
EXTREMES = (-1e4, -200.0, 0.0, 200.0, 1e4)
NEVER = float("-inf")


@dataclass(frozen=True)
class Batch:
    """Groups of consecutive rows, and their evidence by enumeration."""

    logits: Tensor  # (memberships, k), float64
    groups: Groups
    z: Tensor  # (groups, ...)
    log_likelihood: Tensor  # (groups,)
    posterior: Tensor  # (memberships, k)

    def take(self, which: Tensor) -> Batch:
        """Return the selected groups with consecutive rows."""
        selected = self.groups.take(which)
        rows, groups = selected.members, Groups.from_sizes(selected.sizes)
        return Batch(self.logits[rows], groups, self.z[which], self.log_likelihood[which], self.posterior[rows])

    def sample(self, most: int, random: torch.Generator) -> Batch:
        """Return at most ``most`` random groups."""
        return self.take(torch.randperm(len(self.groups), generator=random)[:most])

    @classmethod
    def join(cls, batches: Sequence[Batch]) -> Batch:
        """Join the groups of several batches."""
        sizes = torch.cat([batch.groups.sizes for batch in batches])
        parts = [(batch.logits, batch.z, batch.log_likelihood, batch.posterior) for batch in batches]
        logits, z, log_likelihood, posterior = map(torch.cat, zip(*parts, strict=True))
        return cls(logits, Groups.from_sizes(sizes), z, log_likelihood, posterior)


@dataclass(frozen=True)
class Enumeration:
    """All label vectors of one size, and the observation of each."""

    labels: Tensor  # (vectors, size)
    z: Tensor  # possible observations, or a sample of them for kinds with noise, (outcomes, ...)
    outcome: Tensor | None  # the outcome of each vector, (vectors,); None for kinds with noise
    log_conditional: Tensor | None  # for kinds with noise, log p(outcome | vector), (outcomes, vectors)
    n_classes: int

    @classmethod
    def create(cls, aggregate: Aggregate, size: int, n_classes: int) -> Enumeration:
        """Enumerate the label vectors of groups of a size."""
        vectors = n_classes**size
        if vectors > MAX_VECTORS:
            raise ValueError(
                f"groups of {size} with {n_classes} classes have {vectors:,} label vectors to enumerate, more than "
                f"{MAX_VECTORS:,}; check smaller groups or fewer classes"
            )
        labels = torch.cartesian_prod(*[torch.arange(n_classes)] * size).view(vectors, size)
        groups = Groups.from_sizes([size] * vectors)
        observed = aggregate.observe(labels.flatten(), groups, n_classes)
        if observed.ndim not in (1, 2, 3) or len(observed) != vectors:
            raise ValueError(
                f"observe must return one observation per group, shape ({vectors},) or ({vectors}, d) for "
                f"{vectors} groups; got shape {tuple(observed.shape)}"
            )
        z, outcome = torch.unique(observed, dim=0, return_inverse=True)
        if not getattr(aggregate, "is_noisy", False):
            return cls(labels, z, outcome, None, n_classes)
        z = z[:: -(-len(z) // MAX_NOISY_OUTCOMES)]
        conditional = [
            aggregate.log_prob_given_labels(labels.flatten(), groups, outcome.expand_as(observed), n_classes)
            for outcome in z
        ]
        return cls(labels, z, None, torch.stack(conditional), n_classes)

    def is_invariant(self, order: Tensor) -> bool:
        """Return whether a permutation of the members never changes the observation."""
        digits = self.n_classes ** torch.arange(self.size - 1, -1, -1)  # a label vector as a number
        moved = (self.labels[:, order] * digits).sum(1)  # (vectors,)
        if self.outcome is not None:
            return torch.equal(self.outcome[moved], self.outcome)
        assert self.log_conditional is not None
        return torch.allclose(self.log_conditional[:, moved], self.log_conditional)

    @property
    def size(self) -> int:
        """Number of members of a group."""
        return self.labels.shape[1]

    def evidence(self, logits: Tensor) -> Evidence:
        """Compute likelihood, (outcomes,), and posterior, (outcomes, size, k), of each outcome of one group."""
        members = torch.arange(self.size)
        log_probs = logits.log_softmax(-1)[members, self.labels].sum(1)  # (vectors,)
        if self.outcome is None:
            assert self.log_conditional is not None
            joint = log_probs + self.log_conditional  # (outcomes, vectors)
            total = joint.logsumexp(1)
            one_hot = torch.nn.functional.one_hot(self.labels, self.n_classes).double()
            return Evidence(total, torch.einsum("ov,vmk->omk", (joint - total[:, None]).exp(), one_hot))
        top = log_probs.new_full((len(self.z),), NEVER).scatter_reduce_(0, self.outcome, log_probs, "amax")
        shift = top.masked_fill(top == NEVER, 0)
        parts = (log_probs - shift[self.outcome]).exp()
        total = torch.zeros_like(top).index_add_(0, self.outcome, parts)
        joint = log_probs.new_zeros(len(self.z), self.size, self.n_classes)
        places = (self.outcome[:, None].expand_as(self.labels), members.expand_as(self.labels), self.labels)
        joint.index_put_(places, parts[:, None].expand(self.labels.shape), accumulate=True)
        return Evidence(total.log() + shift, joint / total[:, None, None])

    def batch(self, tables: Tensor) -> Batch:
        """Return a group for each table of logits, (tables, size, k), and each outcome."""
        evidences = [self.evidence(table) for table in tables]
        outcomes = len(self.z)
        return Batch(
            tables.repeat_interleave(outcomes, 0).flatten(0, 1),
            Groups.from_sizes([self.size] * (len(tables) * outcomes)),
            self.z.repeat(len(tables), *[1] * (self.z.ndim - 1)),
            torch.cat([e.log_likelihood for e in evidences]),
            torch.cat([e.posterior for e in evidences]).flatten(0, 1),
        )


@dataclass(frozen=True)
class Trial:
    """The input of a check."""

    aggregate: Aggregate
    n_classes: int
    enumerations: list[Enumeration]
    random: torch.Generator

    def normal(self, *shape: int) -> Tensor:
        """Draw logits, (*shape, k)."""
        return torch.randn(*shape, self.n_classes, generator=self.random, dtype=torch.float64)

    def batches(self, scale: float = 1.5, tables: int = 3) -> Iterator[Batch]:
        """Yield one batch per size, with random logits."""
        for enumeration in self.enumerations:
            yield enumeration.batch(scale * self.normal(tables, enumeration.size))

    def extreme_batches(self) -> Iterator[Batch]:
        """Yield one batch per size; logits support each outcome, contradict it, or are tied."""
        for enumeration in self.enumerations:
            vectors = torch.randint(len(enumeration.labels), (3,), generator=self.random)
            certain = 2.0 * torch.nn.functional.one_hot(enumeration.labels[vectors], self.n_classes) - 1
            choice = torch.randint(len(EXTREMES), (6, enumeration.size, self.n_classes), generator=self.random)
            mixed = torch.tensor(EXTREMES, dtype=torch.float64)[choice]
            yield enumeration.batch(torch.cat([200 * certain.double(), 1e4 * certain.double(), mixed]))

    def evidence(self, batch: Batch, dtype: torch.dtype = torch.float64) -> Evidence:
        """Return the evidence of a batch by the aggregate."""
        return self.aggregate.evidence(batch.logits.to(dtype), batch.groups, batch.z)

    def posterior(self, batch: Batch) -> Tensor:
        """Return the result of the method ``posterior``."""
        return self.aggregate.posterior(batch.logits, batch.groups, batch.z)

    def evidence_and_slope(self, batch: Batch, dtype: torch.dtype = torch.float64) -> tuple[Evidence, Tensor]:
        """Return the evidence, and the gradient of the summed log-likelihoods, (rows, k)."""
        logits = batch.logits.to(dtype).requires_grad_()
        evidence = self.aggregate.evidence(logits, batch.groups, batch.z)
        if not evidence.log_likelihood.requires_grad:
            raise AssertionError("the log-likelihood must have a gradient in the logits, but it has none")
        (slope,) = torch.autograd.grad(evidence.log_likelihood.sum(), logits)
        return evidence, slope


def orders(size: int) -> list[Tensor]:
    """Return permutations of members: the reversal, a rotation, and all swaps."""
    plain = torch.arange(size)
    permutations = [plain.flip(0), plain.roll(1)]
    for first, second in combinations(range(size), 2):
        swapped = plain.clone()
        swapped[[first, second]] = plain[[second, first]]
        permutations.append(swapped)
    return permutations
