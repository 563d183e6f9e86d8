"""Groups that were chosen by their answer: undone exactly where rates are given, noticed where they are not."""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from problems_of_groups import fast
from sklearn.metrics import confusion_matrix

import unbag
from unbag import (
    AggregateClassifier,
    Groups,
    LabelProportions,
    OrdinalRank,
    PairwiseSimilarity,
    TripletComparison,
    UnbagWarning,
    diagnose,
)
from unbag.data.weights import weights_by_answer
from unbag.diagnostics import Context, run_checks
from unbag.estimators.class_names import match_classes
from unbag.training import Observations

K = 6


def random_groups(size: int, n: int, *, shares=None, n_rows: int = 4000):
    rng = np.random.default_rng(0)
    labels = rng.choice(K, n_rows, p=shares)
    rows = np.stack([rng.integers(0, n_rows, n) for _ in range(size)], 1)
    rows = rows[(np.diff(np.sort(rows, 1), axis=1) > 0).all(1)]
    return labels, Groups.from_tuples(rows)


def unlikely(aggregate, labels, groups, k=K, keep=None, **options):
    z = aggregate.observe(labels, groups, k)
    if keep is not None:
        groups, z = groups.take(torch.from_numpy(keep(z.numpy()))), z[torch.from_numpy(keep(z.numpy()))]
    return [one for one in diagnose(aggregate, groups, z, k, **options) if one.kind == "unlikely_answers"]


def half_alike(z):
    yes, no = np.flatnonzero(z == 1), np.flatnonzero(z == 0)
    return np.sort(np.concatenate([yes, no[: len(yes)]]))


# Weights


@given(st.lists(st.integers(0, 1), min_size=2, max_size=30), st.floats(0.01, 5), st.floats(0.01, 5))
def test_weights_are_inverse_to_rates_and_keep_their_sum(answers, of_no, of_yes):
    z = torch.tensor(answers)
    weights = weights_by_answer({0: of_no, 1: of_yes}, z)
    assert weights.sum().item() == pytest.approx(len(z))
    rates = torch.where(z == 1, of_yes, of_no)
    torch.testing.assert_close(weights * rates, (weights * rates)[:1].expand(len(z)))
    # On the command line and in a saved model, answers are text.
    torch.testing.assert_close(weights, weights_by_answer({"0": of_no, "1": of_yes}, z))


@given(
    st.lists(st.integers(0, 1), min_size=2, max_size=30).filter(lambda z: 0 < sum(z) < len(z)), st.floats(0.01, 0.99)
)
def test_a_share_is_what_weighted_answers_have(answers, share):
    z, own = torch.tensor(answers), torch.linspace(1, 2, len(answers), dtype=torch.float64)
    weights = weights_by_answer(share, z, own)
    assert (weights @ z.double() / weights.sum()).item() == pytest.approx(share)
    assert weights.sum().item() == pytest.approx(own.sum().item())


def test_the_likelihood_of_what_was_kept_is_that_of_random_groups_in_expectation():
    """Every pair of a small table, each kept at the rate of its answer: enumeration in place of chance."""
    labels = torch.tensor([0, 0, 1, 2])
    groups = Groups.from_tuples([[i, j] for i in range(4) for j in range(4) if i != j])
    z = PairwiseSimilarity().observe(labels, groups, 3)
    logits = torch.randn(4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    each = PairwiseSimilarity().log_likelihood(logits, groups, z)
    rates = torch.where(z == 1, 1.0, 0.25).double()
    weights = weights_by_answer({0: 0.25, 1: 1}, z)
    kept = (rates * weights * each).sum() / (rates * weights).sum()
    torch.testing.assert_close(kept, each.mean())


@pytest.mark.parametrize(
    ("sampling", "z", "said"),
    [
        ({0: 0.5}, [0, 1], "a rate for each observation that occurs; there is none for 1"),
        ({0: 0.5, 1: 0}, [0, 1], "positive rates; got 0 for the observation 1"),
        ({"same": 1}, [0, 1], "observations, which are numbers, as its keys; got 'same'"),
        (1.5, [0, 1], "a number between 0 and 1; got 1.5"),
        (0.5, [1, 1], "for groups with the observations 1"),
        (0.5, [[1, 1]], "z must be one number per group"),
    ],
)
def test_rates_that_cannot_be(sampling, z, said):
    with pytest.raises(ValueError, match=said):
        weights_by_answer(sampling, torch.tensor(z))


# Before a fit


@pytest.mark.parametrize(
    "aggregate", [PairwiseSimilarity(), TripletComparison(), OrdinalRank(), OrdinalRank(">="), unbag.OrdinalTriplet()]
)
@pytest.mark.parametrize("shares", [None, np.array([6, 3, 2, 1.5, 1.2, 1]) / 14.7])
def test_nothing_is_said_of_random_groups(aggregate, shares):
    labels, groups = random_groups(aggregate.size, 3000, shares=shares)
    assert unlikely(aggregate, labels, groups) == []


def test_half_alike_pairs_are_noticed_with_both_numbers():
    labels, groups = random_groups(2, 6000)
    (found,) = unlikely(PairwiseSimilarity(), labels, groups, keep=half_alike)
    assert not found.fatal
    assert "50.0% of " in found.message
    assert "6 classes of similar size would have 16.7%" in found.message
    assert "sampling=" in found.message
    assert unlikely(PairwiseSimilarity(), labels, groups, keep=half_alike, sampling=1 / 6) == []


@pytest.mark.parametrize(
    ("aggregate", "keep", "bound"),
    [
        (PairwiseSimilarity(), lambda z: np.flatnonzero((z == 0) | (np.arange(len(z)) % 6 == 0)), "at least 16.7%"),
        (TripletComparison(), half_alike, "at most 25.0%"),
        (OrdinalRank(), lambda z: np.flatnonzero((z == 1) | (np.arange(len(z)) % 3 == 0)), "at most 41.7%"),
    ],
)
def test_answers_that_random_rows_cannot_give_are_an_error(aggregate, keep, bound):
    labels, groups = random_groups(aggregate.size, 12_000, n_rows=20_000)
    (found,) = unlikely(aggregate, labels, groups, keep=keep)
    assert found.fatal
    assert f"those from any classes whatever {bound}" in found.message
    z = aggregate.observe(labels, groups, K)
    kept = torch.from_numpy(keep(z.numpy()))
    with pytest.raises(ValueError, match="sampling=") as error:
        AggregateClassifier(aggregate, "linear", n_classes=K).fit(
            np.zeros((20_000, 1)), z[kept], groups=groups.take(kept)
        )
    assert bound in str(error.value)


def test_groups_that_share_a_row_are_few():
    """One row compared with all others may be of a rare class: few of these pairs are alike."""
    star = Groups.from_tuples([[0, other] for other in range(1, 2000)])
    z = (np.arange(1999) % 50 == 0).astype(int)
    assert all(one.kind != "unlikely_answers" for one in diagnose(PairwiseSimilarity(), star, z, K))


# After a fit


PAIRS = Observations(PairwiseSimilarity(), Groups.from_tuples([[0, 1], [2, 3]]), [0, 1], 3)


def check_fit(s, log_probs, classes, **options):
    return run_checks("fit", Context([s], classes, sample_log_probs=log_probs, **options))


def test_classes_that_no_row_is_expected_to_be_of_are_named():
    probs = torch.tensor([[0.5, 0.499, 0.001]] * 10, dtype=torch.float64)
    (found,) = [f for f in check_fit(PAIRS, probs.log(), ["a", "b", "c"]) if f.kind == "unused_classes"]
    assert "uses 2 of 3 classes" in found.message
    assert "class c of 0.10%" in found.message
    shares = torch.tensor([0.5, 0.49, 0.01], dtype=torch.float64)
    (found,) = check_fit(PAIRS, probs.log(), range(3), class_shares=shares)
    assert found.kind == "never_predicted"
    assert found.message.startswith("1, 2 are never predicted: 50.00% of the rows are expected to be of them")


def test_answers_that_a_model_does_not_expect_of_random_rows():
    labels, groups = random_groups(2, 3000)
    z = PairwiseSimilarity().observe(labels, groups, K)
    log_probs = torch.nn.functional.one_hot(torch.from_numpy(labels), K).double().clamp_min(1e-4).log().log_softmax(1)
    assert check_fit(Observations(PairwiseSimilarity(), groups, z, K), log_probs, range(K)) == []
    kept = torch.from_numpy(half_alike(z.numpy()))
    half = Observations(PairwiseSimilarity(), groups.take(kept), z[kept], K)
    (found,) = check_fit(half, log_probs, range(K))
    assert "50.0% of" in found.message
    assert "expects it of 17.4%" in found.message
    assert check_fit(half, log_probs, range(K), sampling=[{0: 1, 1: 1}]) == []


def blobs(n: int, seed: int):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, K, n)
    centres = 4 * np.random.default_rng(1).normal(size=(K, 4))
    return centres[labels] + rng.normal(size=(n, 4)), labels


def right(classifier, X, labels) -> float:
    together = confusion_matrix(labels, classifier.predict(X), labels=np.arange(K))
    return float(together[np.arange(K), match_classes(together, "any")].sum() / len(labels))


@pytest.mark.filterwarnings("ignore:the groups contain")
def test_half_alike_pairs_end_within_two_points_of_random_ones():  # 3 fits take 4 s
    X, labels = blobs(800, 0)
    X_new, new = blobs(2000, 2)
    groups = Groups.from_tuples(
        np.random.default_rng(3).permuted(np.tile(np.arange(800), (20, 1)), axis=1).reshape(-1, 2)
    )
    z = PairwiseSimilarity().observe(labels, groups, K)
    half = torch.from_numpy(half_alike(z.numpy()))[:: max(1, int(z.sum()) * 2 // 1200)]
    settings = {"n_classes": K, "validation": unbag.CrossFitting(n_restarts=2), **fast(epochs=20, learning_rate=0.005)}
    fitted = {}
    for name, which, sampling in (("random", torch.arange(len(half)), None), ("rates", half, {0: 1 / (K - 1), 1: 1})):
        clf = AggregateClassifier("pairwise_similarity", sampling=sampling, **settings)
        with warnings.catch_warnings():
            warnings.simplefilter("error", UnbagWarning)
            warnings.filterwarnings("ignore", "the groups contain|.* held-out groups show")
            fitted[name] = clf.fit(X, z[which], groups=groups.take(which))
    assert right(fitted["rates"], X_new, new) > right(fitted["random"], X_new, new) - 0.02
    with pytest.warns(UnbagWarning) as said:
        without = AggregateClassifier("pairwise_similarity", **settings).fit(X, z[half], groups=groups.take(half))
    assert {"unlikely_answers", "unexpected_answers"} <= {found.kind for found in without.diagnosis_}
    assert any("sampling=" in str(one.message) for one in said)
    # What was weighted in the fit is weighted in its score.
    weights = weights_by_answer({0: 1 / (K - 1), 1: 1}, z[half])
    given = {"groups": groups.take(half)}
    plain = without.score(X, z[half], group_weights=weights, **given)
    assert without.set_params(sampling={0: 1 / (K - 1), 1: 1}).score(X, z[half], **given) == pytest.approx(plain)


def test_each_set_has_its_own_rates(tmp_path):
    X, labels = blobs(60, 0)
    labels %= 2
    pairs = Groups.from_tuples(np.arange(60).reshape(30, 2))
    z = PairwiseSimilarity().observe(labels, pairs, 2)
    settings = {"n_classes": 2, **fast(epochs=1)}
    clf = AggregateClassifier([PairwiseSimilarity(), LabelProportions()], sampling=[{0: 0.5, 1: 1}, None], **settings)
    clf.fit(X, [z, labels], groups=[pairs, Groups.from_sizes([1] * 60)])
    clf.save(tmp_path / "model")
    assert unbag.load(tmp_path / "model").sampling == [{0: 0.5, 1: 1}, None]
    with pytest.raises(ValueError, match="sampling must be a list with an entry for each; got 1 entries"):
        clf.set_params(sampling=[0.5]).fit(X, [z, labels], groups=[pairs, None])
