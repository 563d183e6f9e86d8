"""The null model, against closed forms and a plain search."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import unbag
from unbag.learners.constant import fit_null_model
from unbag.training import Observations


def naive(one: Observations, probs: torch.Tensor) -> torch.Tensor:
    """Return the log-likelihood of every group, each computed by itself."""
    logits = probs.log().expand(int(one.groups.members.max()) + 1, -1)
    return one.aggregate.log_likelihood(logits, one.groups, one.z)


@settings(max_examples=25)
@given(st.lists(st.lists(st.integers(0, 2), min_size=3, max_size=3).filter(any), min_size=1, max_size=5))
def test_counts_make_it_the_class_frequencies(counts):
    z = torch.tensor(counts)
    one = Observations(unbag.LabelProportions(), unbag.Groups.from_sizes(z.sum(1)), z, 3)
    probs, (log_likelihood,) = fit_null_model([one])
    np.testing.assert_allclose(probs, np.array(counts).sum(0) / np.array(counts).sum(), rtol=1e-12)
    torch.testing.assert_close(log_likelihood, naive(one, probs), rtol=1e-9, atol=1e-9)


def test_the_search_finds_what_the_closed_form_knows():
    counts = [[2, 1, 0], [0, 1, 3]]
    groups = unbag.Groups.from_sizes([3, 4])
    probs = fit_null_model([Observations(unbag.LabelProportions(), groups, counts, 3)])[0]
    searched = fit_null_model([Observations(unbag.PublishedCounts(), groups, counts, 3)])[0]
    np.testing.assert_allclose(searched, probs, atol=1e-4)


def test_two_sets_of_counts_count_the_same():
    small = Observations(unbag.LabelProportions(), unbag.Groups.from_sizes([2]), [[2, 0]], 2)
    large = Observations(unbag.LabelProportions(), unbag.Groups.from_sizes([2] * 10), [[0, 2]] * 10, 2)
    assert fit_null_model([small, large])[0].tolist() == [0.5, 0.5]


def test_bags_of_all_sizes_against_a_grid():
    random = np.random.default_rng(0)
    sizes = random.integers(1, 7, 60)
    one = Observations(
        unbag.MultipleInstance(), unbag.Groups.from_sizes(sizes), torch.from_numpy(random.integers(0, 2, 60)), 2
    )
    probs, (log_likelihood,) = fit_null_model([one])
    grid = np.linspace(0.001, 0.999, 999)
    # log p(z) written out: 1 - (1 - p)^m for a positive bag of m.
    none = np.log1p(-grid)[:, None] * sizes
    values = np.where(one.checked.numpy(), np.log1p(-np.exp(none)), none).mean(1)
    assert abs(probs[1] - grid[values.argmax()]) < 0.001
    assert log_likelihood.mean().item() >= values.max()
    torch.testing.assert_close(log_likelihood, naive(one, probs), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("same", "k"), [(30, 2), (30, 4), (90, 4), (5, 4)])
def test_pairs_agree_as_often_as_a_constant_prediction_allows(same, k):
    z = torch.arange(100) < same
    one = Observations(unbag.PairwiseSimilarity(), unbag.Groups.from_sizes([2] * 100), z, k)
    probs, (log_likelihood,) = fit_null_model([one])
    share = max(same / 100, 1 / k)  # no distribution over k classes agrees with itself less often
    assert (probs**2).sum() == pytest.approx(share, abs=1e-4)
    best = same / 100 * np.log(share) + (1 - same / 100) * np.log(1 - share)
    assert log_likelihood.mean().item() == pytest.approx(best, abs=1e-6)


def test_kinds_are_searched_together():
    counts = Observations(unbag.LabelProportions(), unbag.Groups.from_sizes([4]), [[3, 1]], 2)
    pairs = Observations(unbag.PairwiseSimilarity(), unbag.Groups.from_tuples([[0, 1], [2, 3]]), [1, 0], 2)
    probs, both = fit_null_model([counts, pairs])
    p = torch.linspace(0.01, 0.99, 99, dtype=torch.float64)
    values = [sum(naive(one, torch.stack([q, 1 - q])).mean() for one in (counts, pairs)) for q in p]
    best = p[int(torch.stack(values).argmax())]
    assert abs(probs[0] - best) < 0.01
    assert [len(one) for one in both] == [1, 2]
