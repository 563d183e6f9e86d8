"""First guesses of the classes of rows from counts of few groups, by clusters of rows.

Counts of few groups leave open which rows are of which class, but not which shares of the classes a few clusters have.
Rows are clustered in many ways, by the graph of their nearest neighbours (Ng, Jordan and Weiss, 2002), the shares of
the classes in clusters are fitted to the counts, and what a row is by all of these is averaged: the errors of single
clusterings differ.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import csr_array, diags_array
from scipy.sparse.linalg import eigsh
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import NearestNeighbors
from threadpoolctl import threadpool_limits
from torch import Tensor

from unbag.data.scaling import ScalingName, fit_scaling
from unbag.training import Observations

# What clusterings differ in: the scaling of columns, the nearest neighbours of each row, and the number of clusters,
# between that of the classes and twice as many, or that of the groups where this is more.
SCALINGS: tuple[ScalingName, ...] = ("standard", "table")
NEIGHBOURS, NUMBERS = (8, 15), 5
LARGEST_FACTOR, MOST_CLUSTERS = 2, 80
# What bounds the time: rows that are clustered, to the nearest of which others belong, distances between these, and
# directions of largest variance.
MOST_ROWS, LEAST_ROWS, MOST_DISTANCES, MOST_COLUMNS = 8192, 1024, 400_000_000, 50
# Eigenvectors whose values differ by no more are as good as each other; a chain of rows has many.
TOLERANCE = 1e-4

# Rounds of expectation-maximisation at most, how often progress is looked at, and a change that is none. Steps are
# longer than plain ones, by a factor below the 2 from which they need not converge.
ROUNDS, LOOK, LITTLE, LENGTH = 3000, 100, 1e-3, 1.9
# Shares of classes in clusters, times groups, of all clusterings together, and how many of them in all rounds.
MOST_AT_ONCE, MOST_TOGETHER = 4_000_000, 2_000_000_000
# In each round, how often the tilts that bring the expected counts of each group to the observed ones are made better.
TILTS = 4
# The least share of a class in a cluster, and how far shares begin from those of all groups together.
LEAST, SPREAD = 1e-5, 0.01


@dataclass(frozen=True, eq=False)
class CountClusters:
    """Several clusterings of the same rows.

    Examples
    --------
    >>> from unbag import Groups, LabelProportions
    >>> rows = torch.tensor([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2]])
    >>> groups = Groups.from_ids(["a", "a", "b", "a", "b", "b"])
    >>> seen = Observations(LabelProportions(), groups, [[2, 1], [1, 2]], 2)
    >>> CountClusters.of(rows, [seen], seed=0).guess([seen]).argmax(1)
    tensor([0, 0, 0, 1, 1, 1])
    """

    rows: Tensor
    """The numbers of the rows that are in groups, sorted."""
    labels: Tensor
    """The cluster of each, ``(clusterings, rows)``."""
    seed: int

    @classmethod
    def of(cls, X: Tensor, sets: Sequence[Observations], seed: int, deadline: float = float("inf")) -> CountClusters:
        """Cluster the rows in groups, at least once, and until a deadline as :func:`time.monotonic` has it."""
        rows = torch.cat([one.groups.members for one in sets]).unique()
        n_groups, n_classes = sum(len(one.groups) for one in sets), sets[0].n_classes
        labels: list[Tensor] = []
        # Several threads are no faster here, and on a busy machine five times slower.
        with threadpool_limits(1):
            for own in _cluster(X[rows].cpu().flatten(1), n_classes, n_groups, seed):
                labels.append(own)
                size = len(labels) * int(own.max() + 1) * n_groups * n_classes
                if size > MOST_AT_ONCE or time.monotonic() > deadline:
                    break
        return cls(rows.cpu(), torch.stack(labels), seed)

    def guess(self, sets: Sequence[Observations], deadline: float = float("inf")) -> Tensor:
        """Return the distribution over classes of each row, ``(rows, classes)``, by the counts of some groups."""
        sets = [one.to("cpu") for one in sets]
        n_classes, n_clusters = sets[0].n_classes, int(self.labels.max()) + 1
        held, counts, weights = [], [], []
        for one in sets:
            of_members = self.labels[:, torch.searchsorted(self.rows, one.groups.members)]  # (clusterings, members)
            places = of_members + n_clusters * one.groups.segments.index
            flat = torch.stack([own.bincount(minlength=len(one.groups) * n_clusters) for own in places])
            held.append(flat.view(len(flat), len(one.groups), n_clusters))
            counts.append(one.checked)
            weights.append(one.weight * one.weights / one.weights.sum() * len(one.groups))
        shares = fit_shares(torch.cat(held, 1), torch.cat(counts), torch.cat(weights), self.seed, deadline)
        guess = torch.zeros(len(self.rows), n_classes, dtype=torch.float64)
        for own, table in zip(self.labels, shares, strict=True):
            guess += table[own]
        # Clusterings that are wrong differ, which makes their mean less certain than it could be.
        return guess.square() / guess.square().sum(1, keepdim=True)


def fit_shares(held: Tensor, counts: Tensor, weights: Tensor, seed: int = 0, deadline: float = float("inf")) -> Tensor:
    """Fit the shares of the classes in clusters to the counts of groups, ``(clusterings, clusters, classes)``.

    What is maximised is the first term of the saddle-point approximation of the likelihood of the counts.

    Parameters
    ----------
    held
        How many members each group has of each cluster, ``(clusterings, groups, clusters)``.
    counts
        How many of each class, ``(groups, classes)``.
    weights
        How much each group counts, ``(groups,)``.
    seed
        Of what makes clusters differ at first, which tells apart classes that are alike in number.
    deadline
        When to end with what there is, as :func:`time.monotonic` has it.
    """
    held, observed = held.double(), counts.double().clamp_min(torch.finfo(torch.float64).tiny)
    overall = (weights @ counts.double()).clamp_min(LEAST)
    noise = torch.randn(
        len(held), held.shape[2], counts.shape[1], generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    shares = (overall.log() + SPREAD * noise).softmax(-1)
    tilts = torch.ones(len(held), *counts.shape, dtype=torch.float64)
    before = shares
    rounds = min(ROUNDS, max(LOOK, MOST_TOGETHER // (held.numel() * counts.shape[1])))
    for done in range(1, rounds + 1):
        for _ in range(TILTS):
            expected = tilts * ((held / (tilts @ shares.mT)) @ shares)  # (clusterings, groups, classes)
            tilts = tilts * (observed / expected)
            tilts = tilts / tilts.mean(-1, keepdim=True)
        ratio = (held * weights[:, None] / (tilts @ shares.mT)).mT @ tilts
        shares = _no_less(shares * ratio**LENGTH)
        if done % LOOK == 0:
            if (shares - before).abs().max() < LITTLE or time.monotonic() > deadline:
                break
            before = shares
    return shares


def _no_less(values: Tensor) -> Tensor:
    """Return shares of at least a little; a cluster without members has all classes alike."""
    shares = (values / values.sum(-1, keepdim=True)).nan_to_num(1.0).clamp_min(LEAST)
    return shares / shares.sum(-1, keepdim=True)


def _cluster(X: Tensor, n_classes: int, n_groups: int, seed: int) -> Iterator[Tensor]:
    """Yield clusterings of rows, those with the fewest clusters first."""
    random = np.random.default_rng(seed)
    n = min(max(MOST_DISTANCES // len(X), LEAST_ROWS), MOST_ROWS)
    some = np.sort(random.permutation(len(X))[:n])
    most = min(max(round(LARGEST_FACTOR * n_classes), n_groups), MOST_CLUSTERS, len(some) - 1)
    numbers = np.unique(np.geomspace(min(n_classes, most), most, NUMBERS).round().astype(int))
    fewest = max(len(some) // n_classes, 1)  # rows that a class has if all have as many: others are of other classes
    embeddings = []
    for scaling in SCALINGS:
        scale = fit_scaling(X[some], scaling)
        components = PCA(min(MOST_COLUMNS, *X[some].shape), random_state=seed % 2**32)
        with np.errstate(invalid="ignore"):  # columns that do not vary at all have no shares of their variance
            components.fit(scale(X[some]).numpy())
        places = np.concatenate([components.transform(scale(part).numpy()) for part in X.split(MOST_ROWS)])
        search = NearestNeighbors().fit(places[some])
        near = search.kneighbors(places[some], min(max(NEIGHBOURS), fewest), return_distance=False)
        nearest = slice(None) if len(some) == len(X) else search.kneighbors(places, 1, return_distance=False)[:, 0]
        embeddings += [(nearest, _embed(near[:, :n], int(numbers[-1]), random)) for n in NEIGHBOURS]
    for number in numbers:
        for nearest, embedding in embeddings:
            yield torch.from_numpy(_group(embedding[:, :number], int(number), random)[nearest]).long()


def _embed(near: np.ndarray, n_components: int, random: np.random.Generator) -> np.ndarray:
    """Return the leading eigenvectors of the normalised graph of nearest neighbours."""
    n = len(near)
    graph = csr_array((np.ones(near.size), (np.repeat(np.arange(n), near.shape[1]), near.ravel())), shape=(n, n))
    graph = graph + graph.T
    scale = diags_array(1 / np.sqrt(graph.sum(1)))
    start = random.uniform(0.5, 1.5, n)
    values, vectors = eigsh(scale @ graph @ scale, n_components, which="LA", v0=start, tol=TOLERANCE)
    return vectors[:, np.argsort(-values)]


def _group(embedding: np.ndarray, n_clusters: int, random: np.random.Generator) -> np.ndarray:
    length = np.linalg.norm(embedding, axis=1, keepdims=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = KMeans(n_clusters, n_init=1, random_state=int(random.integers(2**31)))
        return model.fit(embedding / np.where(length > 0, length, 1)).labels_
