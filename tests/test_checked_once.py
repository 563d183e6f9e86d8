"""Observations are checked where they enter, and not again by what follows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from problems_of_groups import blobs, fast

import unbag
from unbag import CrossFitting, Groups
from unbag.persistence.run_folder import Run
from unbag.tables.fit import fit_tables
from unbag.tables.plan import make_plan
from unbag.tables.predict import disaggregate_table
from unbag.training import Observations, Settings, held_out_likelihood, train

N_GROUPS = 40
FAST = fast(epochs=2)


class Counting(unbag.LabelProportions):
    """Counts of classes, which count how often whole sets of them are checked."""

    def __init__(self) -> None:
        super().__init__()
        self.checked: list[int] = []

    def check(self, z, groups, n_classes):
        self.checked.append(len(groups))
        return super().check(z, groups, n_classes)

    def calls(self) -> int:
        """Return how often more was checked than a few groups that something is tried on."""
        found, self.checked = [n for n in self.checked if n > 3], []
        return len(found)


@pytest.fixture
def problem():
    X, labels = blobs(n=3 * N_GROUPS, k=2)
    groups = Groups.from_sizes([3] * N_GROUPS)
    return X, groups, unbag.LabelProportions().observe(labels, groups, 2).numpy()


@pytest.mark.parametrize("settings", [FAST, {"model": "linear", "validation": CrossFitting(3)}])
def test_a_fit_checks_each_set_once(problem, settings):
    X, groups, z = problem
    first, second = Counting(), Counting()
    clf = unbag.AggregateClassifier(first, **settings).fit(X, z, groups)
    assert first.calls() == 1
    clf.predict_groups(X, groups, z)
    assert first.calls() == 1
    clf.score(X, z, groups=groups)
    assert first.calls() == 1
    clf.disaggregate(X, z, groups)
    assert first.calls() == 1
    weights = np.arange(N_GROUPS) % 5
    both = unbag.AggregateClassifier([first, second], **settings)
    both.fit(X, [z, z], [groups, groups], group_weights=[weights, None])
    assert (first.calls(), second.calls()) == (1, 1)


def test_a_checked_set_is_learned_from_as_it_is(problem):
    X, groups, z = problem
    weights = 1 + np.arange(N_GROUPS) % 5
    seen = Observations(Counting(), groups, z, 2, group_weights=weights)
    given = {"model": "linear", "random_state": 0}
    clf = unbag.AggregateClassifier(seen.aggregate, **given).fit(X, seen)
    assert seen.aggregate.calls() == 1
    same = unbag.AggregateClassifier(**given).fit(X, z, groups, group_weights=weights)
    np.testing.assert_array_equal(clf.predict_log_proba(X), same.predict_log_proba(X))
    with pytest.raises(ValueError, match="which holds its groups; leave groups= out"):
        clf.fit(X, seen, groups)
    with pytest.raises(ValueError, match=r"observations by Counting.*but aggregate is LabelProportions"):
        same.fit(X, seen)
    with pytest.raises(ValueError, match="checked for 2 classes, but there are 3"):
        clf.set_params(n_classes=3, aggregate="pairwise_similarity").fit(
            X, Observations(unbag.PairwiseSimilarity(), Groups.from_sizes([2] * 60), np.arange(60) % 2, 2)
        )
    with pytest.raises(ValueError, match="group_weights must not all be zero"):
        seen.with_weights(np.zeros(N_GROUPS))


def test_files_are_checked_once_by_a_fit_and_once_by_disaggregate(tmp_path, monkeypatch):
    checked = []

    def check(self, z, groups, n_classes):
        checked.append(len(groups))
        return real(self, z, groups, n_classes)

    real = unbag.LabelProportions.check
    monkeypatch.setattr(unbag.LabelProportions, "check", check)
    rng = np.random.default_rng(0)
    n_labels = 35
    known = [*(["ill", "well"] * n_labels)[:n_labels], *[""] * (3 * N_GROUPS - n_labels)]
    rows = [f"{row // 3},{rng.normal()},{rng.normal()},{label}" for row, label in enumerate(known)]
    (tmp_path / "people.csv").write_text("\n".join(["ward,x,y,known", *rows]))
    counts = [f"{ward},{ward % 4},{3 - ward % 4},{1 + ward % 2}" for ward in range(N_GROUPS)]
    (tmp_path / "wards.csv").write_text("\n".join(["ward,ill,well,times", *counts]))
    given = {"instances": tmp_path / "people.csv", "groups": tmp_path / "wards.csv", "group_weight": "times"}
    fit_tables(make_plan({**given, "labelled": "known", "model": "linear"}), Run(tmp_path / "run"))
    assert (checked.count(N_GROUPS), checked.count(n_labels)) == (1, 1)  # others are made to try something on
    checked.clear()
    disaggregate_table(Run(tmp_path / "run"), given["instances"], given["groups"], tmp_path / "labels.csv")
    assert checked.count(N_GROUPS) == 1


def test_a_run_of_the_loop_checks_nothing(problem):
    X, groups, z = problem
    seen = Observations(Counting(), groups, z, 2)
    kept, held_out = seen.to("cpu").split(0.5, torch.Generator().manual_seed(0))
    assert seen.aggregate.calls() == 1
    rows = torch.from_numpy(X).float()
    train(
        lambda: torch.nn.Linear(X.shape[1], 2),
        rows,
        [kept],
        Settings(epochs=2),
        seeds=[0, 1],
        score=held_out_likelihood(rows, [held_out]),
    )
    assert seen.aggregate.calls() == 0
    torch.testing.assert_close(kept.checked, seen.aggregate.check(kept.z, kept.groups, 2))
