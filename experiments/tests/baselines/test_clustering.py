"""K-means: the clusters of plain data, as good as those of another implementation, the same in every run."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans

from unbag.training import permuted_accuracy
from unbag_experiments.baselines.clustering import k_means


def blobs(n=300, k=5, d=4, far=6.0, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % k
    return torch.from_numpy(rng.normal(0, far, (k, d))[labels] + rng.normal(0, 1, (n, d))), torch.from_numpy(labels)


def cost(vectors, labels):
    groups = [vectors[labels == label] for label in labels.unique()]
    return sum(float((group - group.mean(0)).square().sum()) for group in groups)


@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_clusters_that_are_apart_are_found_wherever_they_are(shift):
    vectors, labels = blobs()
    assert permuted_accuracy(k_means(vectors + shift, 5), labels) == 1.0


@pytest.mark.parametrize("seed", range(5))
def test_clusters_are_as_good_as_those_of_another_implementation(seed):
    vectors, _ = blobs(k=8, far=1.5, seed=seed)
    theirs = torch.from_numpy(KMeans(8, n_init=5, random_state=0).fit_predict(vectors.numpy()))
    assert cost(vectors, k_means(vectors, 8)) < 1.03 * cost(vectors, theirs)


def test_equal_vectors_have_equal_clusters():
    vectors, _ = blobs(far=1.0)
    assert torch.equal(k_means(vectors, 5), k_means(vectors.clone(), 5))


@pytest.mark.parametrize("vectors", [torch.zeros(6, 2), torch.tensor([[0.0], [1.0], [0.0]])])
def test_fewer_different_vectors_than_clusters_are_no_error(vectors):
    labels = k_means(vectors, 3)
    assert labels.shape == (len(vectors),)
    same = (vectors[:, None] == vectors).all(2)
    assert torch.equal(labels[:, None] == labels, same)
