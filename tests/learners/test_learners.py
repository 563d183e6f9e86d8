"""Learners: each path ends in a good model, also with missing values, and its models can be restored."""

from itertools import islice

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from unbag import Groups, LabelProportions, MultipleInstance, OrdinalTriplet, PairwiseSimilarity
from unbag.aggregates.symmetry import find_symmetry
from unbag.data.labels import Categorical
from unbag.estimators.class_names import match_classes
from unbag.learners import (
    MODELS,
    Boosting,
    Clusters,
    ClusterShares,
    Columns,
    Fourier,
    Linear,
    Matching,
    Network,
    Problem,
)
from unbag.training import Observations

LEARNERS = {
    "linear": (Linear("linear", Columns.fit), 4),
    "clusters": (Linear("clusters", Clusters.fit, ridges=(3, 0.3), once=True), 2),
    "kernel": (Linear("kernel", lambda p, seed: Fourier.fit(p, seed, scale=0.8, n_waves=100), ridges=(10, 1)), 2),
    "network": (Network(min_updates=20, overrelaxation=0.0), 6),
    "matching": (Matching(), 6),
    "trees": (Boosting(overrelaxation=0.0), 3),
}


def draw(n=240, k=3, missing=0.0, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, k, n)
    X = rng.normal(size=(n, 4)).astype(np.float32)
    X[:, :2] += 4 * np.stack([np.cos(2 * np.pi * labels / k), np.sin(2 * np.pi * labels / k)], 1)
    X[rng.random(X.shape) < missing] = np.nan
    return torch.from_numpy(X), labels


def make_problem(X, labels, aggregate, groups, k=3):
    observed = Observations(aggregate, groups, aggregate.observe(labels, groups, k), k)
    return Problem.create(X, [observed], Categorical(k), symmetry=find_symmetry([observed]))


@pytest.mark.parametrize("missing", [0.0, 0.1])
@pytest.mark.parametrize("name", LEARNERS)
def test_a_path_improves_and_its_model_can_be_restored(name, missing):
    learner, n_steps = LEARNERS[name]
    X, labels = draw(missing=missing)
    problem = make_problem(X, labels, LabelProportions(), Groups.from_sizes([4] * 60))
    start = problem.constant_outputs.expand(len(X), -1)
    models = list(islice(learner.prepare(problem, 0).path(problem, start, 0), n_steps))
    outputs = models[-1].outputs(X)
    assert problem.score(outputs) > problem.score(start) + 0.5
    assert float((outputs.argmax(1).numpy() == labels).mean()) > (0.9 if not missing else 0.8)
    restored = MODELS[models[-1].kind].from_state(*models[-1].state())
    torch.testing.assert_close(restored.outputs(X), outputs)


def test_expected_labels_of_overlapping_groups_add_up_over_them():
    X, labels = draw(6)
    problem = make_problem(X, labels, PairwiseSimilarity(), Groups.from_tuples([[0, 1], [1, 2], [1, 3], [4, 5]]))
    evidence = problem.e_step(torch.randn(6, 3, generator=torch.Generator().manual_seed(0)))
    torch.testing.assert_close(evidence.expected_labels.sum(1), torch.tensor([1.0, 3, 1, 1, 1, 1]))


def test_the_constant_model_of_counts_has_their_shares():
    X, labels = draw()
    problem = make_problem(X, labels, LabelProportions(), Groups.from_sizes([4] * 60))
    shares = torch.from_numpy(np.bincount(labels, minlength=3) / len(labels)).float()
    torch.testing.assert_close(problem.constant_outputs.softmax(0), shares, atol=0.01, rtol=0)


PAIRS = PairwiseSimilarity()


@pytest.mark.parametrize(("k", "aggregate"), [(2, PAIRS), (5, PAIRS), (4, OrdinalTriplet())])
def test_class_shares_of_clusters_find_classes_without_names(k, aggregate):
    X, labels = draw(400, k)
    rng = np.random.default_rng(1)
    groups = Groups.from_tuples([rng.choice(400, aggregate.size, replace=False) for _ in range(600)])
    problem = make_problem(X, labels, aggregate, groups, k)
    assert problem.symmetry == ("reversal" if isinstance(aggregate, OrdinalTriplet) else "any")
    start = problem.constant_outputs.expand(len(problem.rows), -1)
    scores, accuracies = [], []
    for number in range(3):
        *_, model = ClusterShares(number=number).prepare(problem, 0).path(problem, start, 0)
        probs = model.outputs(X).softmax(1)
        joint = torch.zeros(k, k).index_add_(0, torch.from_numpy(labels), probs).numpy()
        order = match_classes(joint, problem.symmetry)
        scores.append(problem.score(model.outputs(problem.X)))
        accuracies.append(float((probs[:, order.tolist()].argmax(1).numpy() == labels).mean()))
    assert accuracies[int(np.argmax(scores))] > 0.9
    assert max(scores) > problem.score(start) + 0.1


def test_a_linear_model_of_many_columns_is_that_of_coordinates_in_the_span_of_rows():
    X, labels = draw(40)
    turn = torch.linalg.qr(torch.randn(100, 100, generator=torch.Generator().manual_seed(0)))[0][:4]
    outputs = []
    for rows in (X, X @ turn):
        problem = make_problem(rows, labels, LabelProportions(), Groups.from_sizes([4] * 10))
        *_, model = LEARNERS["linear"][0].path(problem, problem.constant_outputs.expand(40, -1), 0)
        outputs.append(model.outputs(rows))
    torch.testing.assert_close(outputs[1], outputs[0], atol=1e-2, rtol=0)


@pytest.mark.parametrize("X", [draw(16)[0], torch.zeros(40, 4)], ids=["few rows", "constant columns"])
def test_trees_that_can_split_nothing_have_no_model(X):
    problem = make_problem(X, np.arange(len(X)) % 3, LabelProportions(), Groups.from_sizes([4] * (len(X) // 4)))
    assert list(Boosting().path(problem, problem.constant_outputs.expand(len(X), -1), 0)) == []


def test_a_linear_model_of_bags_of_one_is_the_logistic_regression_with_the_same_ridge():
    X, labels = draw(k=2)
    kept = (labels == 1) | (np.arange(len(X)) % 3 == 0)
    X, labels = X[kept], labels[kept]
    problem = make_problem(X, labels, MultipleInstance(), Groups.from_sizes([1] * len(X)), k=2)
    learner = Linear("linear", Columns.fit, ridges=(300.0,), max_iter=1000)
    (model,) = learner.path(problem, problem.constant_outputs.expand(len(X), -1), 0)
    known = LogisticRegression(C=2 / 300, max_iter=10_000).fit(X, labels)  # of the difference of two weights
    np.testing.assert_allclose(model.outputs(X).softmax(1), known.predict_proba(X), atol=1e-3)


def test_a_network_is_averaged_from_its_first_step_on():
    X, labels = draw()
    problem = make_problem(X, labels, LabelProportions(), Groups.from_sizes([4] * 60))
    start = problem.constant_outputs.expand(len(X), -1)

    def steps(averaging):
        path = Network(min_updates=1, n_steps=3, averaging=averaging).path(problem, start, 0)
        return [model.outputs(X) for model in path]

    frozen, latest = steps(1.0), steps(0.0)
    torch.testing.assert_close(frozen[0], latest[0])  # the first step is not averaged
    assert torch.equal(frozen[1], frozen[0])
    assert not torch.equal(latest[1], latest[0])


def test_extrapolated_targets_are_beyond_the_posterior():
    labels, outputs = Categorical(3), torch.zeros(2, 3)
    posterior = torch.tensor([[0.4, 0.35, 0.25], [0.9, 0.1, 0.0]])
    found = labels.extrapolate(posterior, outputs, 1.0)
    torch.testing.assert_close(found[0], 2 * posterior[0] - 1 / 3)
    moved = (2 * posterior[1] - 1 / 3).clamp_min(0)  # probabilities stay in their range
    torch.testing.assert_close(found[1], moved / moved.sum())
    assert labels.extrapolate(posterior, outputs, 0.0) is posterior


def test_trees_continue_from_the_predictions_of_earlier_steps():
    X, labels = draw()
    problem = make_problem(X, labels, LabelProportions(), Groups.from_sizes([4] * 60))
    models, found = [], []
    for model in islice(Boosting(rounds_per_step=3).path(problem, problem.constant_outputs.expand(len(X), -1), 0), 3):
        models.append(model)
        found.append(model.outputs(X))
    torch.testing.assert_close(found, [model.outputs(X.clone()) for model in models])
