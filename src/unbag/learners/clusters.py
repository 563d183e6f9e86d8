"""Clusters of rows: with few groups, the geometry of the rows is more informative than the observations.

Spectral clusters are features of linear models. Class shares of k-means clusters are a first E-step where a constant
model is a saddle point: pairs and triplets do not name the classes, so that a model under which all rows are alike has
no gradient. Rows are divided into more clusters than there are classes, and the shares of the classes in clusters are
fitted to the observations: few parameters, fitted in a second. Poor optima, in which two classes are merged and another
is divided, are left by moves that split and merge classes (Ueda et al., 2000).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_array, diags_array
from scipy.sparse.linalg import eigsh
from sklearn.cluster import AgglomerativeClustering, KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from unbag.data.row_source import fill_missing, gather_rows
from unbag.learners.base import map_rows
from unbag.learners.features import Columns, FeatureMap, register_feature_map
from unbag.learners.linear import LinearModel
from unbag.learners.problem import Problem

MAX_ROWS = 8192
"""Rows that are clustered; other rows get the clusters of their nearest neighbour among these."""
MAX_CLUSTERS = 80
NEIGHBOURS = (8, 15)
N_RESOLUTIONS = 5
MAX_FEATURES = 10_000
"""Clusters of a map at most, also of a map that is loaded."""
MAX_ROWS_OF_SHARES = MAX_GROUPS = 20_000
"""Rows that k-means divides, and groups to which shares are fitted."""
CERTAINTY = 0.8
"""Share of its first class in a cluster: enough to leave the saddle point, and little enough to be corrected."""
MIN_SHARE = 1e-3
PRIOR_ROWS = 1.0
"""Rows, divided equally among the classes, that are added to those of a cluster."""
N_ROUNDS, N_ROUNDS_OF_MOVE = 40, 12
STEP_GROWTH, MAX_STEP = 1.3, 20.0
"""Steps of expectation-maximisation grow as long as the likelihood rises (Salakhutdinov and Roweis, 2003)."""
MIN_GAIN = 1e-5
"""Gain of a round, per group, below which it is the last."""
N_FOLLOWED, MAX_MOVES = 2, 6


@register_feature_map
@dataclass(frozen=True, eq=False)
class Clusters(FeatureMap):
    """Indicators of the clusters of a row's nearest neighbour among reference rows, at several resolutions."""

    kind = "clusters"
    missing: Tensor  # (columns with missing values,)
    reference: Tensor  # (reference rows, inputs)
    labels: Tensor  # (reference rows, clusterings), numbers of features

    def __post_init__(self) -> None:
        if (
            self.labels.shape[:-1] != self.reference.shape[:1]
            or not 0 <= int(self.labels.min()) < self.n_features <= MAX_FEATURES
        ):
            raise ValueError(f"labels must be numbers from 0 to {MAX_FEATURES - 1}, one row for each reference row")

    @classmethod
    def fit(cls, problem: Problem, seed: int) -> Clusters:
        """Assign rows to spectral clusters (Ng, Jordan and Weiss, 2002) of graphs of nearest neighbours."""
        rng = np.random.default_rng(seed)
        chosen = np.sort(rng.permutation(len(problem.rows))[:MAX_ROWS])
        columns = Columns.fit(problem)
        reference = columns(gather_rows(problem.X, torch.from_numpy(chosen)))
        n_classes = problem.labels.n_outputs
        most = min(max(2 * n_classes, problem.n_groups), MAX_CLUSTERS, len(reference) - 2)
        numbers = np.unique(np.geomspace(min(n_classes, most), most, N_RESOLUTIONS).round().astype(int))
        near = (
            NearestNeighbors()
            .fit(reference.numpy())
            .kneighbors(reference.numpy(), min(max(NEIGHBOURS), len(reference)), return_distance=False)
        )
        labels, first = [], 0
        for n_neighbours in NEIGHBOURS:
            vectors = _embed(near[:, :n_neighbours], most, rng)
            for number in numbers.tolist():
                labels.append(first + _cluster(vectors[:, :number], number, rng))
                first += number
        return cls(columns.missing, reference, torch.from_numpy(np.stack(labels, 1)).long())

    def __call__(self, X: Tensor) -> Tensor:
        """Return an indicator for each cluster of each clustering."""
        rows = fill_missing(X.flatten(1), self.missing)
        lengths = self.reference.square().sum(1)
        parts = [rows] if torch.compiler.is_compiling() else rows.split(1024)  # a graph is for any number of rows
        # Squared distances up to a constant for each row, which take a third of the time of torch.cdist.
        nearest = torch.cat([torch.addmm(lengths, part, self.reference.T, alpha=-2).argmin(1) for part in parts])
        return rows.new_zeros(rows.shape[0], self.n_features).scatter_(1, self.labels[nearest], 1.0)

    @cached_property
    def n_features(self) -> int:
        """The number of clusters of all clusterings."""
        return int(self.labels.max()) + 1


def _embed(near: np.ndarray, n_components: int, rng: np.random.Generator) -> np.ndarray:
    """Return the leading eigenvectors of the normalised graph of nearest neighbours."""
    n = len(near)
    graph = csr_array((np.ones(near.size), (np.repeat(np.arange(n), near.shape[1]), near.ravel())), shape=(n, n))
    graph = graph + graph.T
    scale = diags_array(1 / np.sqrt(graph.sum(1)))
    _, vectors = eigsh(scale @ graph @ scale, n_components, which="LA", v0=rng.uniform(0.5, 1.5, n), tol=1e-4)
    return vectors[:, ::-1]


def _cluster(vectors: np.ndarray, n_clusters: int, rng: np.random.Generator) -> np.ndarray:
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return _k_means(vectors / np.where(length > 0, length, 1), n_clusters, rng, 300).labels_


def _k_means(rows: np.ndarray, n_clusters: int, rng: np.random.Generator, max_iter: int) -> KMeans:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return KMeans(n_clusters, n_init=1, max_iter=max_iter, random_state=int(rng.integers(2**31))).fit(rows)


def partition(problem: Problem, seed: int, clusters_per_class: int = 6) -> Clusters:
    """Divide rows by k-means; the features are indicators of the nearest centre."""
    rng = np.random.default_rng(seed)
    columns = Columns.fit(problem)
    chosen = torch.from_numpy(np.sort(rng.permutation(len(problem.rows))[:MAX_ROWS_OF_SHARES]))
    rows = columns(gather_rows(problem.X, chosen)).numpy()
    number = min(clusters_per_class * problem.labels.n_outputs, len(np.unique(rows, axis=0)), MAX_FEATURES)
    centres = torch.from_numpy(_k_means(rows, number, rng, 30).cluster_centers_).float()
    return Clusters(columns.missing, centres, torch.arange(len(centres))[:, None])


@dataclass(frozen=True)
class ClusterShares:
    """A step of the path is a fit of class shares by expectation-maximisation, then after each move of classes."""

    name: str = "shares"
    number: int = 0  # distinguishes clusterings, of which several are tried
    clusters: Clusters | None = None  # on the rows of all folds

    def prepare(self, problem: Problem, seed: int) -> ClusterShares:
        """Compute the clusters."""
        return replace(self, clusters=partition(problem, seed + self.number))

    def path(self, problem: Problem, start: Tensor, seed: int) -> Iterator[LinearModel]:
        """Yield the shares as a linear model of the indicators."""
        clusters = self.clusters or partition(problem, seed + self.number)
        fit = _Fit.begin(problem, clusters, seed)
        shares = fit.maximise(fit.first_table(), N_ROUNDS)
        yield _as_model(clusters, shares.table)
        for _ in range(MAX_MOVES if problem.symmetry == "any" and shares.table.shape[1] > 2 else 0):
            moved = sorted(fit.moves(shares), key=lambda table: -fit.e_step(table)[0])[:N_FOLLOWED]
            better = [fit.maximise(table, N_ROUNDS_OF_MOVE) for table in moved]
            best = max([shares, *better], key=lambda s: s.log_likelihood)
            if best is shares:
                return
            shares = best
            yield _as_model(clusters, shares.table)


class _Shares(NamedTuple):
    """Fitted shares of the classes in clusters."""

    table: Tensor  # (clusters, classes)
    counts: Tensor  # expected rows of each class in each cluster, of the same shape
    log_likelihood: float  # mean per group


@dataclass(frozen=True, eq=False)
class _Fit:
    problem: Problem
    clusters: Clusters
    cluster: Tensor  # (rows,)

    @classmethod
    def begin(cls, problem: Problem, clusters: Clusters, seed: int) -> _Fit:
        if problem.n_groups > MAX_GROUPS:
            generator = torch.Generator().manual_seed(seed)
            share = MAX_GROUPS / problem.n_groups
            sizes = [max(1, round(share * len(s.groups))) for s in problem.sets]
            orders = [torch.randperm(len(s.groups), generator=generator) for s in problem.sets]
            problem = problem.select([order[:size].sort().values for order, size in zip(orders, sizes, strict=True)])
        return cls(problem, clusters, map_rows(lambda X: clusters(X).argmax(1), problem.X).long())

    def first_table(self) -> Tensor:
        """Return shares that differ between clusters where the observations do not tell the classes apart."""
        k, centres = self.problem.labels.n_outputs, self.clusters.reference.numpy()
        table = torch.full((len(centres), k), 1 / k, dtype=torch.float64)
        if self.problem.symmetry == "none":
            return table
        if self.problem.symmetry == "reversal":  # the cluster that is most likely at an end is called the first
            shares = torch.nn.functional.normalize(self.e_step(table)[1], p=1, dim=1)
            table[(shares[:, 0] + shares[:, -1]).argmax()] = _almost_certain(np.zeros(1), k)
        elif len(centres) <= k:
            table = _almost_certain(np.arange(len(centres)), k)
        else:
            table = _almost_certain(AgglomerativeClustering(k).fit(centres).labels_, k)
        return table

    def e_step(self, table: Tensor) -> tuple[float, Tensor]:
        """Return the log-likelihood per group, and the expected rows of each class in each cluster."""
        evidence = self.problem.e_step(table.log()[self.cluster].float())
        weights = self.problem.group_weights
        counts = torch.zeros_like(table).index_add_(0, self.cluster, evidence.expected_labels.double())
        return float(evidence.log_likelihood @ weights / weights.sum()), counts

    def maximise(self, table: Tensor, n_rounds: int) -> _Shares:
        """Fit shares by expectation-maximisation with steps that grow."""
        value, counts = self.e_step(table)
        length = 1.0
        for _ in range(n_rounds):
            step = (counts + PRIOR_ROWS / table.shape[1]).log().log_softmax(1) - table.log()
            new_table = _bounded((table.log() + length * step).softmax(1))
            new_value, new_counts = self.e_step(new_table)
            if new_value < value and length > 1:
                length = 1.0
                continue
            converged = new_value - value < MIN_GAIN and length > 1
            table, value, counts = new_table, new_value, new_counts
            if converged:
                break
            length = min(length * STEP_GROWTH, MAX_STEP)
        return _Shares(table, counts, value)

    def moves(self, shares: _Shares) -> Iterator[Tensor]:
        """Yield tables in which two classes are merged, and a third one is divided."""
        k, rows_of_class = shares.table.shape[1], shares.counts.sum(0)
        overlap = torch.nn.functional.normalize(shares.counts, dim=0)
        overlap = (overlap.T @ overlap).fill_diagonal_(-1)
        rarest = int(rows_of_class.argmin())
        largest = shares.table.argmax(1).numpy()
        for kept, freed in sorted({divmod(int(overlap.argmax()), k), (int(overlap[rarest].argmax()), rarest)}):
            merged = shares.table.clone()
            merged[:, kept] += merged[:, freed]
            merged[:, freed] = 0
            for divided in range(k):
                clusters = np.flatnonzero(largest == divided)
                if divided in (kept, freed) or len(clusters) < 2:
                    continue
                half = AgglomerativeClustering(2).fit(self.clusters.reference.numpy()[clusters]).labels_ == 1
                table = merged.clone()
                for which, share in ((clusters[half], CERTAINTY), (clusters[~half], 1 - CERTAINTY)):
                    table[which, freed] = share * merged[which, divided]
                    table[which, divided] = (1 - share) * merged[which, divided]
                yield _bounded(table)


def _almost_certain(classes: np.ndarray, n_classes: int) -> Tensor:
    one_hot = torch.nn.functional.one_hot(torch.from_numpy(classes).long(), n_classes).double()
    return CERTAINTY * one_hot + (1 - CERTAINTY) / n_classes


def _bounded(table: Tensor) -> Tensor:
    table = table.clamp_min(MIN_SHARE)
    return table / table.sum(1, keepdim=True)


def _as_model(clusters: Clusters, table: Tensor) -> LinearModel:
    return LinearModel(clusters, torch.cat([table.log(), torch.zeros(1, table.shape[1])]).float())
