"""Cluster features: with few groups, the geometry of the rows is more informative than the observations."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from scipy.sparse import csr_array, diags_array
from scipy.sparse.linalg import eigsh
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from unbag.data.row_source import fill_missing, gather_rows
from unbag.learners.features import Columns, FeatureMap, register_feature_map
from unbag.learners.problem import Problem

MAX_ROWS = 8192
"""Rows that are clustered; other rows get the clusters of their nearest neighbour among these."""
MAX_CLUSTERS = 80
NEIGHBOURS = (8, 15)
N_RESOLUTIONS = 5
MAX_FEATURES = 10_000
"""Clusters of a map at most, also of a map that is loaded."""


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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = KMeans(n_clusters, n_init=1, random_state=int(rng.integers(2**31)))
        return model.fit(vectors / np.where(length > 0, length, 1)).labels_
