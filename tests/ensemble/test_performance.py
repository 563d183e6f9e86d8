"""Estimates by class against plain sums, against labels, and their intervals."""

import numpy as np
import pytest
import torch
from scipy.special import softmax
from sklearn.metrics import log_loss, precision_score, recall_score, roc_auc_score

import unbag
from unbag import AggregateClassifier, Groups, LabelProportions
from unbag.data.labels import Categorical
from unbag.ensemble import HeldOut, estimate_performance
from unbag.ensemble.accuracy import LOG_SHARPNESS, STD_OF_LOG_SHARPNESS
from unbag.learners import Problem
from unbag.training import Observations


def make(n_groups, size, shares=(0.9, 0.07, 0.03), seed=0):
    """Draw labels by probabilities, which are the predictions, and observe their counts."""
    rng = np.random.default_rng(seed)
    logits = np.log(shares) + 1.5 * rng.normal(size=(n_groups * size, len(shares)))
    log_probs = torch.from_numpy(logits).log_softmax(1)
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(1)
    groups = Groups.from_sizes([size] * n_groups)
    z = LabelProportions().observe(labels, groups, len(shares))
    sets = [Observations(LabelProportions(), groups, z, len(shares))]
    problem = Problem.create(torch.zeros(len(labels), 1), sets, Categorical(len(shares)))
    return problem, log_probs, labels, torch.arange(len(labels)) // size % 4


def estimate(problem, log_probs, folds):
    """Estimate with equal models of all folds."""
    return estimate_performance(HeldOut.gather(problem, log_probs, [log_probs] * (int(folds.max()) + 1), folds))


def test_estimates_are_figures_of_soft_labels():
    problem, log_probs, *_ = make(40, 3)
    found = estimate(problem, log_probs, torch.zeros(120, dtype=torch.int64))
    (s,) = problem.sets
    sharpness = [(log_probs * np.exp(value)).log_softmax(1) for value in LOG_SHARPNESS]
    evidences = [s.aggregate.checked_evidence(values, s.groups.segments, s.checked) for values in sharpness]
    score = np.array([e.log_likelihood.sum() for e in evidences]) - 0.5 * (LOG_SHARPNESS / STD_OF_LOG_SHARPNESS) ** 2
    q = sum(w * e.posterior.numpy() for w, e in zip(softmax(score), evidences, strict=True)).clip(0, 1)
    called = log_probs.argmax(1).numpy()
    assert found.log_loss.value == pytest.approx(-(q * log_probs.numpy()).sum(1).mean())
    for j, c in enumerate(found.classes):
        assert c.share == pytest.approx(q[:, j].mean())
        assert c.predicted == pytest.approx((called == j).mean())
        assert c.sensitivity.value == pytest.approx(q[called == j, j].sum() / q[:, j].sum())
        assert c.precision.value == pytest.approx(q[called == j, j].mean())
        p, twice = log_probs[:, j].numpy(), np.repeat([1, 0], len(q))
        auc = roc_auc_score(twice, np.tile(p, 2), sample_weight=np.concatenate([q[:, j], 1 - q[:, j]]))
        assert c.auc.value == pytest.approx(auc)


def test_labels_of_rows_give_the_figures_of_scikit_learn():
    problem, log_probs, labels, _ = make(300, 1)
    found = estimate(problem, log_probs, torch.zeros(300, dtype=torch.int64))
    called = log_probs.argmax(1).numpy()
    assert found.log_loss.value == pytest.approx(log_loss(labels, log_probs.exp().numpy()))
    for j, c in enumerate(found.classes):
        assert c.sensitivity.value == pytest.approx(recall_score(labels == j, called == j))
        assert c.precision.value == pytest.approx(precision_score(labels == j, called == j))
        assert c.auc.value == pytest.approx(roc_auc_score(labels == j, log_probs[:, j]))


def test_intervals_contain_the_figures_of_labels_where_the_model_is_right():
    _, predicted, y, _ = make(20_000, 4, shares=(0.7, 0.3), seed=1000)
    actual, inside = roc_auc_score(y == 1, predicted[:, 1]), 0
    for seed in range(40):
        problem, log_probs, _, folds = make(150, 4, shares=(0.7, 0.3), seed=seed)
        auc = estimate(problem, log_probs, folds).classes[1].auc
        inside += auc.low <= actual <= auc.high
    assert inside >= 34


def test_models_of_folds_that_differ_in_their_intercepts_are_not_compared():
    problem, log_probs, _, folds = make(150, 4, shares=(0.7, 0.3))
    shifted = (log_probs + 4.0 * folds[:, None] * torch.tensor([0.0, 1.0])).log_softmax(1)
    right, wrong = (estimate(problem, values, folds).classes[1].auc for values in (log_probs, shifted))
    assert abs(right.value - wrong.value) < 0.1


def test_an_ensemble_that_is_better_than_its_models_has_a_better_estimate():
    problem, log_probs, _, folds = make(150, 4, shares=(0.7, 0.3))
    noise = torch.randn((4, *log_probs.shape), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    noisy = (log_probs + noise).log_softmax(2)
    held_out = noisy[folds, torch.arange(len(folds))]
    alone = estimate(problem, held_out, folds).classes[1].auc
    together = estimate_performance(HeldOut.gather(problem, held_out, list(noisy), folds)).classes[1].auc
    assert together.value > alone.value


def test_few_groups_and_classes_that_are_never_predicted():
    problem, log_probs, _, folds = make(10, 3)
    assert estimate(problem, log_probs, folds) is None
    problem, log_probs, _, folds = make(40, 3)
    log_probs = torch.tensor([[0.9, 0.06, 0.04]], dtype=torch.float64).log().expand(120, -1)
    found = estimate(problem, log_probs, folds)
    assert found.classes[1].precision is None
    assert found.classes[1].sensitivity.value == 0
    assert found.classes[1].auc.value == pytest.approx(0.5)


@pytest.mark.filterwarnings("ignore::unbag.UnbagWarning")
def test_a_classifier_has_them_in_the_order_of_its_classes(tmp_path):
    rng = np.random.default_rng(0)
    y = (rng.random(300) < 0.2).astype(int)
    X = rng.normal(size=(300, 2)) + 3 * y[:, None]
    pairs = Groups.from_sizes([2] * 150)
    z = unbag.PairwiseSimilarity().observe(y, pairs, 2)
    clf = AggregateClassifier("pairwise_similarity", "linear", n_classes=2, random_state=0).fit(X, z, groups=pairs)
    for names in (["common", "rare"], ["usual", "odd"]):  # in other alphabetical orders
        clf.name_classes(X[:50], np.array(names)[y[:50]])
        shares = dict(zip(clf.classes_, (c.share for c in clf.estimated_performance_.classes), strict=True))
        assert shares[names[0]] > 0.7
    clf.save(tmp_path / "model")
    assert unbag.load(tmp_path / "model").estimated_performance_ == clf.estimated_performance_


def test_rows_that_other_folds_have_seen_do_not_count():
    problem, log_probs, _, folds = make(40, 3)
    (s,) = problem.sets
    twice = [s.with_groups(Groups.from_offsets(s.groups.offsets, s.groups.members)) for _ in range(2)]
    both = Problem.create(torch.zeros(120, 1), twice, problem.labels)
    for others, some in ((folds, True), ((folds + 1) % 4, False)):
        gathered = HeldOut.gather(both, log_probs.repeat(2, 1), [log_probs] * 4, torch.cat([folds, others]))
        assert (gathered is not None) == some
