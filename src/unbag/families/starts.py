"""First guesses of the classes of rows, for comparisons and other observations that begin at random in poor optima.

Rows are put into many more clusters than there are classes, and the share of each class in each cluster is fitted to
the observations: a model with few parameters, which is fitted in seconds where a network takes minutes, and generalises
where it learns by heart. Its poor optima, two classes in one and one in two, are left by merging the two and splitting
the one (split and merge, after Ueda et al., 2000); left-out groups choose.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from sklearn.cluster import AgglomerativeClustering, KMeans
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from unbag.aggregates.symmetry import Symmetry, find_symmetry
from unbag.families.row_evidence import RowEvidence
from unbag.training import Observations

# How sure a guess is: enough to leave the saddle point where all rows are alike, and little enough to be unlearned.
CERTAINTY = 0.8

# Clusters for each class. Fewer leave classes in one cluster, more learn by heart: on 12,000 pairs of 26 classes, 6
# explained left-out groups better than 10 for two of three seeds, and as well for the third.
CLUSTERS = 6
# Rows that a cluster is taken to have seen of all classes alike, and the least share of a class in a cluster.
PRIOR, LEAST = 1.0, 1e-3
# Rounds of expectation-maximisation, and those after a split and merge. Steps grow as long as the likelihood rises
# (Salakhutdinov and Roweis, 2003): after 60 plain ones the likelihood was lower than after 40 of these.
ROUNDS, ROUNDS_AFTER_MOVE = 40, 12
GROWTH, LONGEST = 1.3, 20.0
# A round that gains less for a group is the last.
LITTLE = 1e-5
# Clusterings that are tried, moves of classes that are followed in a round, and rounds of them.
STARTS, FOLLOWED, MOVES = 3, 2, 6
# What bounds the time, however large the data are.
MOST_GROUPS, MOST_ROWS, MOST_COLUMNS = 20_000, 20_000, 256


def needs_guess(observations: Sequence[Observations]) -> bool:
    """Whether fits that begin at random end in poor optima: a few rows are compared, or classes have no names."""
    return any(one.aggregate.size is not None for one in observations) or is_unnamed(observations)


def is_unnamed(observations: Sequence[Observations]) -> bool:
    """Whether observations tell nothing where all rows look alike, because they leave classes without names."""
    return _symmetry(observations) != "none"


def _symmetry(observations: Sequence[Observations]) -> Symmetry:
    return find_symmetry([one.counting() for one in observations])


def guess_classes(
    X: np.ndarray,
    used: Sequence[Observations],
    held_out: Sequence[Observations],
    seed: int,
    *,
    n_random: int = 2,
    deadline: float = float("inf"),
) -> list[Tensor]:
    """Return several distributions over classes for each row in groups: by clusters, and by random directions.

    Parameters
    ----------
    X
        All rows, ``(n, columns)``; NaN where a value is missing.
    used, held_out
        The groups that a model is to learn from, and those that choose; without the latter, the former do.
    seed
        Of all random numbers.
    n_random
        How many guesses by random directions, where classes have no names.
    deadline
        When to end with what there is, as :func:`time.monotonic` has it.

    Examples
    --------
    >>> from unbag import Groups, PairwiseSimilarity
    >>> rows = np.array([[0.0], [0.1], [5.0]])
    >>> pairs = Observations(PairwiseSimilarity(), Groups.from_tuples([[0, 1], [1, 2]]), [1, 0], 2)
    >>> clusters, first, second = guess_classes(rows, [pairs], [], seed=0)
    >>> clusters.argmax(1).diff().tolist()[0], clusters.shape
    (0, torch.Size([3, 2]))
    """
    used, held_out = [[one.to("cpu") for one in sets] for sets in (used, held_out)]
    k, members = used[0].n_classes, torch.cat([one.groups.members for one in used]).unique().numpy()
    rows = _standardised(X, members)
    random = np.random.default_rng(seed)
    directions = random.normal(size=(n_random if is_unnamed(used) else 0, rows.shape[1], k))
    labels = (rows[members] @ directions).argmax(-1)
    if rows.shape[1] > MOST_COLUMNS:  # distances hardly change in as many random directions
        rows = rows @ random.normal(size=(rows.shape[1], MOST_COLUMNS)) / MOST_COLUMNS**0.5
    used, held_out = ([_some(one, seed) for one in sets] for sets in (used, held_out or used))
    evidence, judges = RowEvidence(used), RowEvidence(held_out)
    # What comparisons leave open, others may tell, too little to begin with: shares of classes, or a few labels.
    compared = [[one] for one in used if one.aggregate.size is not None]
    left_open = {_symmetry(sets) for sets in (used, *compared)}
    best: _Shares | None = None
    for start in range(STARTS):
        if best is None or time.monotonic() < deadline:
            clusters = _Clusters.of(rows, evidence, judges, k, seed + start, deadline)
            found = [clusters.fit(symmetry) for symmetry in sorted(left_open)]
            best = max([best, *found] if best else found, key=lambda one: one.score)
    assert best is not None
    if "any" in left_open:  # others have an order, which a class that is moved elsewhere would break
        best = best.clusters.split_and_merge(best)
    by_clusters = best.table[torch.from_numpy(best.clusters.model.predict(rows[members])).long()]
    return [by_clusters, *(_sure(own, k) for own in labels)]


def _sure(labels: np.ndarray, n_classes: int) -> Tensor:
    one_hot = torch.nn.functional.one_hot(torch.from_numpy(labels).long(), n_classes).double()
    return CERTAINTY * one_hot + (1 - CERTAINTY) / n_classes


def _some(one: Observations, seed: int) -> Observations:
    n = len(one.groups)
    if n <= MOST_GROUPS:
        return one
    return one.take(torch.randperm(n, generator=torch.Generator().manual_seed(seed))[:MOST_GROUPS])


def _standardised(X: np.ndarray, members: np.ndarray) -> np.ndarray:
    """Return columns of mean 0 and deviation 1 over some rows, with 0 for what is missing."""
    missing = np.isnan(X)
    there = np.maximum((~missing[members]).sum(0), 1)
    centred = np.where(missing, 0, X)
    centred = np.where(missing, 0, centred - centred[members].sum(0) / there)
    deviation = np.sqrt((centred[members] ** 2).sum(0) / there)
    return centred / np.where(deviation > 0, deviation, 1)


class _Shares(NamedTuple):
    """Fitted shares of the classes in clusters."""

    clusters: _Clusters
    table: Tensor  # (clusters, classes)
    counts: Tensor  # the same in rows, by the posterior given all groups
    score: float  # log-likelihood of the groups that choose


@dataclass(frozen=True, eq=False)
class _Clusters:
    """Clusters of rows, and the groups of these."""

    model: KMeans
    evidence: RowEvidence
    judges: RowEvidence
    own: Tensor  # the cluster of each row of the evidence
    judged: Tensor  # and of the judges
    n_classes: int
    deadline: float

    @classmethod
    def of(  # noqa: PLR0917 (the fields, for the most part)
        cls,
        rows: np.ndarray,
        evidence: RowEvidence,
        judges: RowEvidence,
        n_classes: int,
        seed: int,
        deadline: float = float("inf"),
    ) -> _Clusters:
        own = rows[evidence.rows.numpy()]
        some = own[np.random.default_rng(seed).permutation(len(own))[:MOST_ROWS]]
        n_clusters = min(CLUSTERS * n_classes, len(np.unique(some, axis=0)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = KMeans(n_clusters, n_init=1, max_iter=30, random_state=seed % 2**32).fit(some)
        assignments = [torch.from_numpy(model.predict(part)).long() for part in (own, rows[judges.rows.numpy()])]
        return cls(model, evidence, judges, assignments[0], assignments[1], n_classes, deadline)

    def fit(self, symmetry: Symmetry) -> _Shares:
        """Begin with all clusters alike, but for what tells classes apart where observations cannot."""
        k, centres = self.n_classes, self.model.cluster_centers_
        if symmetry == "any":
            labels = np.arange(len(centres)) if len(centres) <= k else AgglomerativeClustering(k).fit(centres).labels_
            return self.maximise(_sure(labels, k), ROUNDS)
        table = torch.full((len(centres), k), 1 / k, dtype=torch.float64)
        if symmetry == "reversal":  # one end is called the first: where the cluster is that is likest at an end
            shares = torch.nn.functional.normalize(self.infer(table)[1], p=1, dim=1)
            table[(shares[:, 0] + shares[:, -1]).argmax()] = _sure(np.zeros(1), k)
        return self.maximise(table, ROUNDS)

    def infer(self, table: Tensor) -> tuple[float, Tensor]:
        """Return the log-likelihood per group, and how many rows of each class each cluster should have."""
        log_likelihood, posterior = self.evidence.infer(table.log()[self.own].float())
        return log_likelihood, torch.zeros_like(table).index_add_(0, self.own, posterior)

    def maximise(self, table: Tensor, n_rounds: int) -> _Shares:
        """Fit shares to the groups by expectation-maximisation with steps that grow."""
        value, counts = self.infer(table)
        length = 1.0
        for _ in range(n_rounds):
            if time.monotonic() > self.deadline:
                break
            expected = (counts + PRIOR / self.n_classes).log()
            step = expected.log_softmax(1) - table.log()
            new = _no_less(table.log() + length * step)
            new_value, new_counts = self.infer(new)
            if new_value < value and length > 1:
                length = 1.0
                continue
            done = new_value - value < LITTLE and length > 1
            table, value, counts = new, new_value, new_counts
            if done:
                break
            length = min(length * GROWTH, LONGEST)
        return _Shares(self, table, counts, self.judges.infer(table.log()[self.judged].float())[0])

    def split_and_merge(self, best: _Shares) -> _Shares:
        """Merge two classes and split a third one, as long as left-out groups are explained better."""
        for _ in range(MOVES):
            if time.monotonic() > self.deadline or self.n_classes < 3:
                break
            moved = sorted(self._moves(best), key=lambda table: -self.infer(table)[0])[:FOLLOWED]
            candidates = [self.maximise(table, ROUNDS_AFTER_MOVE) for table in moved]
            better = max(candidates, key=lambda one: one.score, default=best)
            if better.score <= best.score:
                break
            best = better
        return best

    def _moves(self, now: _Shares) -> Iterator[Tensor]:
        """Yield tables with two classes in one, that share clusters or of which one is rare, and another one in two."""
        k, sizes = self.n_classes, now.counts.sum(0)
        likeness = torch.nn.functional.normalize(now.counts, dim=0)
        likeness = (likeness.T @ likeness).fill_diagonal_(-1)
        rare = int(sizes.argmin())
        alike = divmod(int(likeness.argmax()), k)
        largest = now.table.argmax(1).numpy()
        for kept, freed in {alike, (int(likeness[rare].argmax()), rare)}:
            merged = now.table.clone()
            merged[:, kept] += merged[:, freed]
            merged[:, freed] = 0
            for split in range(k):
                mine = np.flatnonzero(largest == split)
                if split in {kept, freed} or len(mine) < 2:
                    continue
                half = AgglomerativeClustering(2).fit(self.model.cluster_centers_[mine]).labels_ == 1
                table = merged.clone()
                for which, share in ((mine[half], CERTAINTY), (mine[~half], 1 - CERTAINTY)):
                    table[which, freed] = share * merged[which, split]
                    table[which, split] = (1 - share) * merged[which, split]
                yield _no_less(table.clamp_min(LEAST).log())


def _no_less(logits: Tensor) -> Tensor:
    """Return shares of at least a little."""
    shares = logits.softmax(1).clamp_min(LEAST)
    return shares / shares.sum(1, keepdim=True)
