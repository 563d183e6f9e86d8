"""Targets: there and back, what they refuse, and what scikit-learn does with them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import BaggingClassifier
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    GroupShuffleSplit,
    HalvingGridSearchCV,
    KFold,
    LeaveOneGroupOut,
    StratifiedGroupKFold,
    cross_val_predict,
    cross_val_score,
    cross_validate,
    learning_curve,
    train_test_split,
)
from sklearn.multiclass import OneVsOneClassifier
from sklearn.utils.multiclass import type_of_target

from unbag import Groups
from unbag.data.targets import is_target, read_target, target


def members_of(groups: Groups) -> list[list[int]]:
    return [part.tolist() for part in groups.members.split(groups.sizes.tolist())]


# There and back.


def test_a_target_has_one_row_per_id():
    y = target([7, 3, 7, 7], [[1, 0], [2, 1]])
    assert y.dtype.names == ("group", "size", "place", "z")
    assert y["group"].tolist() == [1, 0, 1, 1]
    assert y["size"].tolist() == [3, 1, 3, 3]
    assert y["place"].tolist() == [0, 0, 1, 2]
    assert y["z"].tolist() == [[2, 1], [1, 0], [2, 1], [2, 1]]


@given(st.data())
def test_shuffled_rows_give_the_same_groups(data):
    ids = data.draw(st.lists(st.integers(-4, 4), min_size=1, max_size=30))
    n_groups = len(set(ids))
    width = data.draw(st.integers(1, 3))
    z = np.array(data.draw(st.lists(st.integers(-9, 9), min_size=n_groups * width, max_size=n_groups * width)))
    z = z.reshape(n_groups, width) if data.draw(st.booleans()) else z[:n_groups]
    order = data.draw(st.permutations(range(len(ids))))
    groups, back = read_target(target(ids, z)[order])
    expected = Groups.from_ids(ids)
    assert groups.n_rows == len(ids)
    assert groups.ids == list(range(n_groups))
    assert groups.offsets.tolist() == expected.offsets.tolist()
    # The members are the same rows in the same order, wherever those rows are now.
    assert [order[row] for row in groups.members.tolist()] == expected.members.tolist()
    assert back.tolist() == z.tolist()


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.sets(st.integers(0, 5), min_size=1))
def test_whole_groups_may_be_left_out(ids, chosen):
    names = sorted(set(ids))
    kept = [row for row, name in enumerate(ids) if name in chosen]
    y = target(ids, names)[kept]
    if not kept:
        with pytest.raises(ValueError, match="y has no rows"):
            read_target(y)
        return
    groups, z = read_target(y)
    assert z.tolist() == [name for name in names if name in chosen]
    assert groups.ids == [names.index(name) for name in z]
    assert [[ids[kept[row]] for row in rows] for rows in members_of(groups)] == [[n] * ids.count(n) for n in z]


@pytest.mark.parametrize(
    "z",
    [
        np.array([1, 0], dtype=np.int8),
        np.array([True, False]),
        np.array([0.25, 0.5], dtype=np.float32),
        np.array([[0.25, 0.75], [0.5, 0.5]]),
        np.array([[1], [2]], dtype=np.uint16),
        np.arange(8).reshape(2, 2, 2),
    ],
)
def test_observations_keep_type_and_shape(z):
    back = read_target(target(["a", "b", "a"], z))[1]
    assert back.dtype == z.dtype
    assert back.tolist() == z.tolist()


@pytest.mark.parametrize(
    "z", [((1, 2), (0, 3)), torch.tensor([[1, 2], [0, 3]]), [torch.tensor([1, 2]), torch.tensor([0, 3])]]
)
def test_observations_come_in_many_forms(z):
    y = target(["b", "a", "b"], z)
    assert y["z"].dtype == np.int64
    assert read_target(y)[1].tolist() == [[1, 2], [0, 3]]


@pytest.mark.parametrize(
    "ids",
    [(i for i in "bab"), np.array(list("bab")), [(1, 0), (0, 1), (1, 0)], pandas.Series([*"bab"], dtype="category")],
)
def test_ids_of_any_type(ids):
    assert members_of(read_target(target(ids, [0, 1]))[0]) == [[1], [0, 2]]


def test_a_target_may_be_read_only():
    # As joblib hands arrays to its workers.
    y = target([0, 0, 1], [1, 0])
    y.flags.writeable = False
    groups, z = read_target(y)
    assert members_of(groups) == [[0, 1], [2]]
    z[0] = 5


@pytest.mark.parametrize("y", [[0, 1], np.zeros(3), np.zeros((2, 4)), None, np.zeros(3, [("group", int), ("z", int)])])
def test_what_is_no_target(y):
    assert not is_target(y)
    with pytest.raises(TypeError, match=r"rows of a target made by unbag.target, got .+"):
        read_target(y)


# What target refuses.


@pytest.mark.parametrize(
    ("z", "error", "message"),
    [
        ([1, 0], ValueError, r"one observation per group, 3 in all; got shape \(2,\)"),
        ([1, 0, 0, 1], ValueError, r"got shape \(4,\); from one observation per row, make a dict with dict\(zip"),
        (1, ValueError, r"got shape \(\)"),
        ({"a": 1, "b": 0}, ValueError, "exactly one entry for each id: 'c' missing, none not among the ids"),
        (dict.fromkeys("abcdefgh", 0), ValueError, "none missing, 'd', 'e', 'f' and 2 more not among the ids"),
        ({"A": 1, "b": 0, "c": 0}, ValueError, "'a' missing, 'A' not among the ids"),
        ([1.0, float("nan"), 0.0], ValueError, r"z is NaN for group 1 \(id 'b'\); leave out the rows"),
        ([[1.0, 0.0], [0.5, 0.5], [float("nan"), 1.0]], ValueError, r"group 2 \(id 'c'\)"),
        ([[1, 0], [1], [0, 1]], TypeError, "z cannot be made into a tensor: .* lists of equal length"),
        (
            ["yes", "no", "no"],
            TypeError,
            "z must be numbers, got <U3 of shape .*, for example 'yes'; make ids the index",
        ),
    ],
)
def test_wrong_observations_are_refused(z, error, message):
    with pytest.raises(error, match=message):
        target(["c", "a", "b", "a"], z)


@pytest.mark.parametrize(
    "ids", [Groups.from_tuples([[0, 1], [1, 2]]), np.array([[0, 1], [1, 2]]), torch.tensor([[0, 1], [1, 2]])]
)
def test_groups_that_share_rows_go_another_way(ids):
    with pytest.raises(TypeError, match=r"share rows, .* use fit\(X, z, groups=groups\)"):
        target(ids, [1, 0])


def test_missing_ids_are_refused():
    with pytest.raises(ValueError, match="ids has no value for row 1"):
        target(["a", None, "b"], [1, 0])


# What read_target refuses.


def test_a_part_of_a_group_is_refused_with_advice():
    y = target(np.repeat([10, 20, 30], 4), [0, 1, 0])
    message = (
        r"groups must be whole, but groups 1, 2 are incomplete: 3 of 4 rows of group 1 are in y; "
        r"split by group, with cv=GroupKFold\(\) or GroupShuffleSplit\(\) and groups=ids"
    )
    with pytest.raises(ValueError, match=message):
        read_target(np.delete(y, [5, 8, 9]))


def test_repeated_rows_are_refused():
    y = target([0, 0, 1, 1, 2], [0, 1, 0])
    message = "2 of 7 are repetitions, in groups 0, 2; draw whole groups, not rows with replacement; if targets were"

    with pytest.raises(ValueError, match=message):
        read_target(y[[0, 1, 1, 2, 3, 4, 4]])
    with pytest.raises(ValueError, match="in group 1;"):
        read_target(y[[2, 2]])  # as many rows as the group has, but not all of them


@pytest.mark.parametrize("other", [target([5, 5], [1]), target([5, 5, 5], [0])])
def test_joined_targets_are_refused(other):
    y = np.concatenate([target([0, 0, 1], [0, 1]), other])
    with pytest.raises(ValueError, match="have the same z and size, but those of group 0 do not; if targets were"):
        read_target(y)
    mixed = target([0, 0, 1], [[0, 1], [1, 0]])
    mixed["z"][1, 1] = 0
    with pytest.raises(ValueError, match="those of group 0 do not"):
        read_target(mixed)


# What scikit-learn does. 12 groups of 5, whose rows lie anywhere.

RNG = np.random.default_rng(0)
IDS = RNG.permutation(np.repeat([f"group {i}" for i in range(12)], 5))
X = np.stack([np.argsort(np.argsort(IDS, kind="stable")), RNG.normal(size=60)], 1)  # first, the order by group and row
COUNTS = RNG.multinomial(5, [0.2, 0.3, 0.5], size=12)
OBSERVED = {1: COUNTS[:, 0], 2: COUNTS}
GRID = {"strength": [1.0, 2.0]}
GIVEN: dict[str, Any] = {"groups": IDS, "cv": GroupKFold(3), "error_score": "raise"}


class Reader(ClassifierMixin, BaseEstimator):
    """Reads its target, and checks that rows of X and y have stayed side by side."""

    def __init__(self, strength: float = 1.0) -> None:
        self.strength = strength

    def fit(self, X: np.ndarray, y: np.ndarray) -> Reader:
        groups, z = read_target(y)
        assert groups.n_rows == len(X)
        assert np.array_equal(z, OBSERVED[z.ndim][groups.ids])
        order = X[groups.members, 0]  # rows of X and y are still side by side
        assert (np.diff(order) > 0).all()
        self.classes_ = np.arange(3)
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return np.zeros(len(X), int)

    def score(self, X: np.ndarray, y: np.ndarray) -> float:
        return self.strength + len(read_target(y)[0])


@pytest.fixture(params=[1, 2], ids=["numbers", "vectors"])
def y(request: pytest.FixtureRequest) -> np.ndarray:
    return target(IDS, OBSERVED[request.param])


@pytest.mark.parametrize("cv", [GroupKFold(3), GroupShuffleSplit(3, random_state=0), LeaveOneGroupOut()], ids=repr)
def test_splits_by_group_pass(cv, y):
    scores = cross_validate(Reader(), X, y, **GIVEN | {"cv": cv}, return_train_score=True)
    assert (scores["train_score"] + scores["test_score"] == 14).all()  # 12 groups, each on one side, and twice 1
    search = GridSearchCV(Reader(), GRID, cv=list(cv.split(X, groups=IDS)), error_score="raise").fit(X, y)
    assert search.best_params_ == {"strength": 2.0}
    assert search.score(X, y) == 14


def test_a_split_by_row_that_keeps_groups_whole_passes():
    order = np.argsort(IDS, kind="stable")
    assert len(cross_val_score(Reader(), X[order], target(IDS, COUNTS)[order], cv=KFold(4), error_score="raise")) == 4


def test_a_search_inside_a_validation_needs_groups_twice(y):
    search = GridSearchCV(Reader(), GRID, cv=GroupKFold(2), error_score="raise")
    with pytest.raises(ValueError, match="'groups' parameter should not be None"):
        cross_validate(search, X, y, **GIVEN)
    assert cross_validate(search, X, y, **GIVEN, params={"groups": IDS})["test_score"].tolist() == [6, 6, 6]
    with config_context(enable_metadata_routing=True):
        routed = cross_validate(search, X, y, cv=GroupKFold(3), error_score="raise", params={"groups": IDS})
    assert routed["test_score"].tolist() == [6, 6, 6]


PART = r"groups must be whole, .* cv=GroupKFold"
NUMBERED = r"rows of a target made by unbag.target, got int64 of shape"
REFUSED: dict[str, tuple[type[Exception], str, Callable[[np.ndarray], Any]]] = {
    "rows": (ValueError, PART, lambda y: cross_validate(Reader(), X, y, **GIVEN | {"cv": KFold(3)})),
    "rows in a search": (
        ValueError, "(?s)All the .* fits failed.*" + PART, lambda y: GridSearchCV(Reader(), GRID, cv=KFold(3)).fit(X, y)
    ),
    "classes": (
        ValueError, "n_splits=5 cannot be greater than the number of members in each class",
        lambda y: cross_validate(Reader(), X, y, **GIVEN | {"cv": StratifiedGroupKFold(5)}),
    ),
    "train_test_split": (ValueError, PART, lambda y: Reader().fit(*train_test_split(X, y, random_state=0)[::2])),
    "learning_curve": (ValueError, PART, lambda y: learning_curve(Reader(), X, y, train_sizes=[0.5], **GIVEN)),
    "halving": (
        ValueError, PART,
        lambda y: HalvingGridSearchCV(Reader(), GRID, cv=GroupKFold(3), min_resources=30, error_score="raise").fit(
            X, y, groups=IDS
        ),
    ),
    "cross_val_predict": (
        TypeError, NUMBERED,
        lambda y: cross_val_predict(Reader(), X, y, groups=IDS, cv=GroupKFold(3), method="predict_proba"),
    ),
    "BaggingClassifier": (TypeError, NUMBERED, lambda y: BaggingClassifier(Reader()).fit(X, y)),
    "OneVsOneClassifier": (TypeError, NUMBERED, lambda y: OneVsOneClassifier(Reader()).fit(X, y)),
}  # fmt: skip


@pytest.mark.parametrize("how", REFUSED)
@pytest.mark.filterwarnings(
    *(f"ignore:{start}" for start in ("The groups parameter", "The number of unique classes", "Number of classes in"))
)
def test_what_divides_groups_or_reads_rows_as_labels_is_refused(how, y):
    error, message, split = REFUSED[how]
    with pytest.raises(error, match=message):
        split(y)


def test_parts_of_a_target_say_so_too_and_its_fields_are_arrays(y):
    message = r"y is a target made by unbag.target, .* no labels .* with cv=GroupKFold\(\) .* omit scoring="
    for same in (y[[3, 4]], np.take(y, [1, 2]), pickle.loads(pickle.dumps(y)), y.copy()):
        assert is_target(same)
        with pytest.raises(TypeError, match=message):
            type_of_target(same)
    assert type_of_target(y["group"]) == "multiclass"
    assert type(read_target(y)[1]) is np.ndarray
