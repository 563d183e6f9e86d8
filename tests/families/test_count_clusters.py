"""First guesses by clusters: the shares of the classes that explain counts, and rows of all kinds."""

from __future__ import annotations

from itertools import product
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from problems_of_groups import blobs, count
from scipy.optimize import minimize
from threadpoolctl import threadpool_info, threadpool_limits

from unbag import Groups, LabelProportions
from unbag.families.count_clusters import CountClusters, _cluster, fit_shares
from unbag.training import Observations


def observe(labels, n_groups, k):
    ids = np.arange(len(labels)) % n_groups
    return Observations(LabelProportions(), Groups.from_ids(ids), count(labels, ids, k), k)


def explained(held, counts, shares):
    """Return the first term of the saddle-point approximation of the log-likelihood, but for a constant."""
    total = 0.0
    for members, observed in zip(held, counts, strict=True):

        def value(tilts, members=members, observed=observed):
            return members @ np.log(shares @ np.exp(tilts)) - observed @ tilts

        total += minimize(value, np.zeros(len(observed))).fun
    return total


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**31), st.integers(2, 4), st.integers(3, 6))
def test_clusters_of_one_class_are_found_where_groups_tell_them_apart(seed, k, n_clusters):
    random = np.random.default_rng(seed)
    classes = np.concatenate([np.arange(k), random.integers(0, k, max(n_clusters - k, 0))])
    held = random.integers(5, 60, size=(2 * len(classes), len(classes)))  # more groups than clusters
    counts = held @ np.eye(k, dtype=int)[classes]
    shares = fit_shares(torch.from_numpy(held)[None], torch.from_numpy(counts), torch.ones(len(held)).double())[0]
    assert shares.argmax(1).tolist() == classes.tolist()
    assert shares.amax(1).min() > 0.9


@settings(max_examples=4, deadline=None)
@given(st.integers(0, 2**31))
def test_shares_explain_counts_as_well_as_any_near_them(seed):
    random = np.random.default_rng(seed)
    true = random.dirichlet([1.0] * 3, size=4)
    held = random.integers(10, 40, size=(6, 4))
    counts = np.stack([sum(random.multinomial(n, p) for n, p in zip(row, true, strict=True)) for row in held])
    counts = np.maximum(counts, 1) * held.sum(1, keepdims=True) / np.maximum(counts, 1).sum(1, keepdims=True)
    found = fit_shares(torch.from_numpy(held)[None], torch.from_numpy(counts), torch.ones(6).double())[0].numpy()
    best = explained(held, counts, found)
    for cluster, one, other in product(range(4), range(3), range(3)):
        moved = found.copy()
        step = min(0.03, moved[cluster, one])
        moved[cluster, one] -= step
        moved[cluster, other] += step
        assert explained(held, counts, moved) <= best + 1e-2


def test_a_group_that_counts_twice_is_as_good_as_two():
    random = np.random.default_rng(0)
    held, counts = torch.from_numpy(random.integers(5, 30, size=(4, 3))), torch.from_numpy(np.full((4, 2), 20))
    counts[0], counts[1] = torch.tensor([30, 10]), torch.tensor([5, 35])
    weighted = fit_shares(held[None], counts, torch.tensor([2.0, 1, 1, 1], dtype=torch.float64))
    again = [0, 0, 1, 2, 3]
    twice = fit_shares(held[again][None], counts[again], torch.ones(5).double())
    torch.testing.assert_close(weighted, twice, atol=1e-6, rtol=0)


@pytest.mark.parametrize("limit", [None, 200])
def test_five_groups_tell_six_classes_and_rows_beyond_a_limit_are_like_their_nearest(limit):
    X, labels = blobs(600, 6, spread=6)
    seen = observe(labels, 5, 6)
    with patch("unbag.families.count_clusters.MOST_ROWS", limit or 8192):
        clusters = CountClusters.of(torch.from_numpy(X).float(), [seen], seed=0)
    guess = clusters.guess([seen])
    torch.testing.assert_close(guess.sum(1), torch.ones(600, dtype=torch.float64))
    assert (guess.argmax(1).numpy() == labels).mean() > 0.9


def test_only_the_groups_that_are_given_tell_but_rows_of_all_are_clustered():
    X, labels = blobs(400, spread=6)
    seen = observe(labels, 5, 3)
    clusters = CountClusters.of(torch.from_numpy(X).float(), [seen], seed=0)
    wrong = Observations(LabelProportions(), seen.groups, seen.z.flip(1), 3)
    both = [seen.take(torch.arange(4)), wrong.take(torch.arange(4, 5))]
    right, left_out = clusters.guess(both[:1]), clusters.guess(both)
    assert len(right) == 400
    assert (right.argmax(1).numpy() == labels).mean() > 0.9
    assert not torch.equal(right, left_out)


@pytest.mark.parametrize(
    "X",
    [
        np.ones((60, 2)),
        np.arange(60.0)[:, None] % 2,
        np.random.default_rng(0).standard_cauchy((60, 3)),
        np.random.default_rng(0).normal(size=(60, 2, 3, 3)),
        np.arange(3.0)[:, None],
    ],
    ids=["constant", "two values", "outliers", "images", "three rows"],
)
def test_rows_of_all_kinds_have_a_guess(X):
    labels = np.arange(len(X)) % 2
    seen = observe(labels, 2, 2)
    guess = CountClusters.of(torch.from_numpy(X).float(), [seen], seed=0).guess([seen])
    assert guess.isfinite().all()
    torch.testing.assert_close(guess.sum(1), torch.ones(len(X), dtype=torch.float64))


def test_a_deadline_that_has_passed_leaves_one_clustering():
    X, labels = blobs(60)
    clusters = CountClusters.of(torch.from_numpy(X).float(), [observe(labels, 3, 3)], seed=0, deadline=0)
    assert len(clusters.labels) == 1


def test_clusters_are_found_on_one_thread():
    X, labels = blobs(60)
    n_threads = set()

    def watch(rows, *others):
        n_threads.update(pool["num_threads"] for pool in threadpool_info())
        yield from _cluster(rows, *others)

    before = threadpool_info()
    with threadpool_limits(2), patch("unbag.families.count_clusters._cluster", watch):
        CountClusters.of(torch.from_numpy(X).float(), [observe(labels, 6, 3)], seed=0)
    assert n_threads == {1}
    assert threadpool_info() == before
