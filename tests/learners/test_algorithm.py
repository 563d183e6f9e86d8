"""Networks by Algorithm 1: the learner trains as the loop does, in one process or several, and is resumed."""

import logging
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from problems_of_groups import blobs, count, fast

import unbag
from unbag import AggregateClassifier, CrossFitting, LabelProportions
from unbag.data.labels import Categorical
from unbag.learners import Algorithm, Architecture, Problem, Watch
from unbag.learners.architectures import MLP, build
from unbag.training import MappedRows, Observations, Settings, held_out_likelihood, train

IDS = np.repeat(np.arange(50), 4)


def make_problem(k=3):
    X, labels = blobs(k=k)
    groups = unbag.Groups.from_ids(IDS)
    observations = Observations(LabelProportions(), groups, count(labels, IDS, k), k)
    return Problem.create(torch.from_numpy(X).float(), [observations], Categorical(k))


def weights_of(module):
    return torch.cat([p.detach().flatten() for p in module.parameters()])


def follow(learner, problem, watch=None):
    (model,) = learner.path(replace(problem, watch=watch or Watch()), problem.constant_outputs, 5)
    return model


@pytest.mark.parametrize(
    "settings", [{}, {"warm_up": 8}, {"warm_up": 3, "remember_from": 0}, {"loss": "gce", "batch_size": 7}], ids=repr
)
def test_a_path_is_the_network_of_the_training_loop(settings):
    train_part, held_out = make_problem().split(5, 0)[0][:2]
    settings = Settings(epochs=8, learning_rate=0.01, **settings)
    watch = Watch(held_out)
    model = follow(Algorithm(architecture=Architecture("rbf"), settings=settings), train_part, watch)
    expected = train(
        build("rbf", (3,), 3),
        train_part.X,
        train_part.sets,
        settings,
        seeds=[5],
        score=held_out_likelihood(held_out.X, held_out.sets),
    )
    assert torch.equal(weights_of(model.module), weights_of(expected.models[0]))
    assert [e["score"] for e in watch.history] == [e["score"][0] for e in expected.history]
    assert not model.module.training


@pytest.mark.parametrize("method", ["uum", "likelihood"])
def test_the_estimator_trains_the_network_of_the_training_loop(method):
    X, labels = blobs()
    y = unbag.target(IDS, count(labels, IDS, 3))
    validation = CrossFitting(None, validation_fraction=0)
    settings = {**fast(epochs=5), "scaling": "none", "method": method, "validation": validation}
    clf = AggregateClassifier(**settings).fit(X, y)
    seed = unbag._utils.random_state.first_seed(0)
    problem = make_problem()
    loop = Settings(5, 5 if method == "likelihood" else 0, remember_from=0 if method == "uum" else None)
    make = partial(MLP, 3, 3, Architecture("mlp").hidden)
    X_scaled = problem.X.clamp(-8, 8)
    expected = train(make, X_scaled, problem.sets, replace(loop, learning_rate=0.01), seeds=[seed])
    (model,) = clf.mixture_.candidates[0].models
    assert torch.equal(weights_of(model.module), weights_of(expected.models[0]))


def test_time_that_is_up_ends_training_after_the_epoch():
    problem = make_problem()
    seconds = iter([9.0, 9.0, 0.0])
    watch = Watch(seconds_left=lambda: next(seconds))
    follow(Algorithm(settings=Settings(epochs=50)), problem, watch)
    assert len(watch.history) == 3


def test_a_run_is_resumed_whatever_time_it_had(tmp_path, caplog):
    problem = make_problem()
    learner = Algorithm(settings=Settings(epochs=6), checkpoint=tmp_path)
    first = follow(learner, problem, Watch(seconds_left=lambda: 10.0))
    with caplog.at_level(logging.INFO, logger="unbag"):
        again = follow(learner, problem, Watch(seconds_left=lambda: 20.0))
        assert "resuming at epoch 7" in caplog.text
        caplog.clear()
        follow(replace(learner, views=torch.nn.functional.relu), problem)
        follow(learner, problem, Watch(problem))
        assert "resuming" not in caplog.text
    assert torch.equal(weights_of(first.module), weights_of(again.module))


@pytest.mark.parametrize("settings", [fast(epochs=3), fast(epochs=3) | {"model": "auto"}])
def test_rows_on_disk_train_the_network_of_rows_in_memory(tmp_path, settings):
    X, labels = blobs()
    np.save(tmp_path / "rows.npy", X.astype(np.float32))
    y = unbag.target(IDS, count(labels, IDS, 3))
    rows = MappedRows([tmp_path / "rows.npy"])
    on_disk = AggregateClassifier(**settings, validation=CrossFitting(2)).fit(rows, y)
    in_memory = AggregateClassifier(**settings, validation=CrossFitting(2)).fit(X.astype(np.float32), y)
    np.testing.assert_allclose(on_disk.predict_proba(rows), in_memory.predict_proba(X), atol=1e-5)
    with pytest.raises(ValueError, match=r"model='trees' needs rows in memory; for rows on disk, choose a network"):
        AggregateClassifier(model="trees").fit(rows, y)
