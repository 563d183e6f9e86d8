"""Known shares of the classes join a fit."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from problems_of_groups import fast
from scipy.stats import norm

import unbag
from unbag import AggregateClassifier, Groups, OrdinalRank, PairwiseSimilarity, UnbagWarning
from unbag._kernels.segments import Segments
from unbag.aggregates.class_shares import NormalCounts, read_class_shares

SHARES = [0.05, 0.15, 0.5, 0.3]


@settings(max_examples=30)
@given(st.integers(0, 1000), st.integers(2, 5))
def test_the_density_is_that_of_a_normal_sum_and_the_posterior_follows_its_slope(seed, k):
    random = torch.Generator().manual_seed(seed)
    logits = torch.randn(7, k, generator=random, dtype=torch.float64, requires_grad=True)
    segments, log_probs = Segments.from_sizes(torch.tensor([3, 4])), logits.log_softmax(1)
    z = torch.stack([torch.tensor([[3.0], [4.0]]) / k * torch.ones(2, k), torch.full((2, k), 50.0)], 1).double()
    found, posterior = NormalCounts().infer(log_probs, segments, z)
    probs = log_probs.exp()
    expected = []
    for group, rows in enumerate(probs.split([3, 4])):
        sd = ((rows * (1 - rows)).sum(0) + z[group, 1]).sqrt()
        expected.append(torch.distributions.Normal(rows.sum(0), sd).log_prob(z[group, 0]).sum())
    torch.testing.assert_close(found, torch.stack(expected))
    torch.testing.assert_close(posterior.sum(1), torch.ones(7).double())
    # Noise so large moves members by little, and then the tilt is the gradient.
    (slope,) = torch.autograd.grad(torch.stack(expected).sum(), logits)
    torch.testing.assert_close(posterior - probs, slope, atol=2e-4, rtol=0.05)


@given(st.integers(1, 5000), st.integers(1, 20_000))
@settings(max_examples=30)
def test_rows_are_divided_into_groups(n_rows, n_groups):
    one = read_class_shares(SHARES, np.arange(4)).as_observations(n_rows, n_groups, seed=0)
    n_parts = max(1, round(n_rows / 1024))
    first = one.groups.members[:n_rows]
    assert first.sort().values.tolist() == list(range(n_rows))
    assert len(one.groups) % n_parts == 0
    assert len(one.groups) * 512 >= n_groups
    m = one.groups.sizes[:, None].double()
    torch.testing.assert_close(one.z[:, 0], m * torch.tensor(SHARES).double())
    torch.testing.assert_close(one.z[:, 1], m * torch.tensor([p * (1 - p) for p in SHARES]).double())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([0.5, 0.5], "one share for each of 3 classes"),
        ([0.2, 0.2, 0.2], "add up to 1"),
        ([50, 25, 25], "divide percentages by 100"),
        ([0.5, 0.5, 0.0], "must be positive"),
        ({"a": 0.5, "b": 0.5}, r"each of the classes \['a', 'b', 'c'\]"),
        (([0.5, 0.3, 0.2], -1), "the error of class_shares"),
    ],
)
def test_shares_that_cannot_be(given, said):
    with pytest.raises(ValueError, match=said):
        read_class_shares(given, np.array(["a", "b", "c"]))
    with pytest.raises(TypeError, match="must be a list of shares"):
        read_class_shares(0.5, np.array(["a", "b", "c"]))


def test_shares_name_classes_that_differ():
    assert read_class_shares(SHARES, np.arange(4)).identify_classes("any", 1000)
    assert not read_class_shares((SHARES, 0.1), np.arange(4)).identify_classes("any", 1000)
    assert not read_class_shares([0.25] * 4, np.arange(4)).identify_classes("any", 1000)
    assert read_class_shares([0.2, 0.2, 0.6], np.arange(3)).identify_classes("reversal", 1000)
    assert not read_class_shares([0.2, 0.6, 0.2], np.arange(3)).identify_classes("reversal", 1000)


def grades(n: int, seed: int):
    """Four ordered grades that a score tells up to noise, and what is right where the order is known."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    borders = norm.ppf(np.cumsum(SHARES)[:-1])
    score = X @ [0.6, 0.8]
    y = np.searchsorted(borders * math.hypot(1, 0.3), score + 0.3 * rng.normal(size=n))
    return X, y, np.searchsorted(borders, score)


def ranks(y, n: int):
    rows = np.random.default_rng(0).permuted(np.tile(np.arange(len(y)), (n, 1)), axis=1).reshape(-1, 2)
    groups = Groups.from_tuples(rows)
    return groups, OrdinalRank().observe(y, groups, len(SHARES))


def test_uneven_grades_are_within_five_points_of_the_known_order(tmp_path):  # two fits of 3,000 pairs take 5 s
    X, y, _ = grades(600, 0)
    X_new, new, by_order = grades(3000, 1)
    groups, z = ranks(y, 10)
    settings = fast(epochs=25, learning_rate=0.005)
    clf = AggregateClassifier("ordinal_rank", n_classes=4, class_shares=SHARES, **settings).fit(X, z, groups=groups)
    assert {found.kind for found in clf.diagnosis_} <= {"rough_estimate", "never_predicted"}
    assert (clf.predict(X_new) == new).mean() > (by_order == new).mean() - 0.05
    clf.save(tmp_path / "model")
    np.testing.assert_array_equal(unbag.load(tmp_path / "model").predict_proba(X), clf.predict_proba(X))
    with pytest.warns(
        UnbagWarning,
        match="hardly where one of the 4 classes ends and the next begins, so that the accuracy is unknown",
    ):
        without = AggregateClassifier("ordinal_rank", n_classes=4, **fast(epochs=1)).fit(X, z, groups=groups)
    assert "unknown_borders" in {found.kind for found in without.diagnosis_}
    assert without.estimated_accuracy_ is None  # the share that the model believes in says nothing of the borders
    said = clf.estimated_accuracy_
    assert abs(said.value - (clf.predict(X_new) == new).mean()) < 0.1


def test_a_few_labels_tell_the_borders_too():
    X, y, _ = grades(60, 0)
    groups, z = ranks(y, 2)
    clf = AggregateClassifier(["ordinal_rank", "label_proportions"], "linear", n_classes=4, random_state=0)
    clf.fit(X, [z, y], groups=[groups, None])
    assert {found.kind for found in clf.diagnosis_} <= {"rough_estimate", "never_predicted"}


@pytest.mark.parametrize(("model", "least"), [("linear", 0.95), ("trees", 0.85)])
def test_shares_name_the_classes_of_pairs(model, least):
    rng = np.random.default_rng(0)
    y = rng.choice(3, 300, p=[0.1, 0.3, 0.6])
    X = np.array([[0.0, 8], [8, 0], [0, 0]])[y] + rng.normal(size=(300, 2))
    groups = Groups.from_tuples(rng.permuted(np.tile(np.arange(300), (8, 1)), axis=1).reshape(-1, 2))
    z = PairwiseSimilarity().observe(y, groups, 3)
    shares = {"low": 0.1, "mid": 0.3, "high": 0.6}
    clf = AggregateClassifier("pairwise_similarity", model, class_shares=shares, classes=[*shares], random_state=0)
    clf.fit(X, z, groups=groups)
    assert clf.symmetry_ == "none"
    assert (clf.predict(X) == np.array([*shares])[y]).mean() > least
