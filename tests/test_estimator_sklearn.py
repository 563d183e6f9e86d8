import numpy as np
import pytest
import sklearn
from problems_of_groups import FAST, blobs, count, fast
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold, GroupShuffleSplit, KFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

import unbag
from unbag import AggregateClassifier, CrossFitting

# Enough for the tables of the checks, which are small and easy.
CHECKED = AggregateClassifier(**fast(epochs=8, learning_rate=0.03) | {"random_state": None})
CHECKS = [check for _, check in estimator_checks_generator(CHECKED)]
EXPECTED_FAILURES = dict.fromkeys(
    ("check_sample_weight_equivalence_on_dense_data", "check_sample_weight_equivalence_on_sparse_data"),
    "which groups are held out, how the others are visited, and the scale of features follow from the rows that are "
    "there, repeated or not; with all groups in one step, none held out and no scaling, weights and repetition agree "
    "up to rounding in float32 (tests/test_weights.py)",
)

# What may differ between one model and a mixture; the rest would say the same again, at length.
QUICK_MIXTURE = AggregateClassifier(validation=CrossFitting(2), random_state=0)
OF_MIXTURE = (
    *("check_fit_idempotent", "check_estimators_pickle", "check_methods_subset_invariance", "check_dict_unchanged"),
    *("check_n_features_in", "check_no_attributes_set_in_init", "check_fit2d_1sample"),
    *("check_estimator_sparse_tag", "check_estimators_dtypes", "check_parameters_default_constructible"),
)


def name_of(check) -> str:
    settings = ",".join(f"{name}={value}" for name, value in check.keywords.items())
    return f"{check.func.__name__}({settings})"


@pytest.mark.parametrize("check", [one for one in CHECKS if "array_api" not in name_of(one)], ids=name_of)
def test_scikit_learns_own_checks(check):
    if (reason := EXPECTED_FAILURES.get(check.func.__name__)) is None:
        check(clone(CHECKED))
        return
    with pytest.raises(AssertionError):
        check(clone(CHECKED))
    pytest.xfail(reason)


@pytest.mark.parametrize(
    "check",
    [one for _, one in estimator_checks_generator(QUICK_MIXTURE) if one.func.__name__ in OF_MIXTURE],
    ids=name_of,
)
def test_scikit_learns_own_checks_of_a_mixture(check):
    check(clone(QUICK_MIXTURE))


@pytest.fixture(scope="module")
def problem():
    X, labels = blobs(n=240, k=3)
    ids = np.repeat(np.arange(60), 4)
    order = np.random.default_rng(1).permutation(len(X))
    X, labels, ids = X[order], labels[order], ids[order]
    return X, labels, ids, unbag.target(ids, count(labels, ids, 3))


def test_cross_validation_by_group(problem):
    X, _, ids, y = problem
    found = cross_validate(
        AggregateClassifier(**FAST), X, y, groups=ids, cv=GroupKFold(3), return_estimator=True, error_score="raise"
    )
    assert (found["test_score"] > -0.5).all()  # a guess has about -2.5
    assert (found["estimator"][0].predict(X) == problem[1]).mean() > 0.95


def test_pipelines_and_searches_by_group(problem):
    X, labels, ids, y = problem
    pipeline = make_pipeline(StandardScaler(), AggregateClassifier(**FAST))
    grid = {"aggregateclassifier__training__epochs": np.array([1, 30]), "aggregateclassifier__model": ["mlp"]}
    search = GridSearchCV(pipeline, grid, cv=GroupShuffleSplit(2, random_state=0), error_score="raise")
    search.fit(X, y, groups=ids)
    assert search.best_params_["aggregateclassifier__training__epochs"] == 30
    assert search.best_estimator_.score(X, labels) > 0.95
    assert search.score(X, y) == pytest.approx(search.best_estimator_.score(X, y))


def test_groups_for_the_last_step_of_a_pipeline(problem):
    X, labels, ids, _ = problem
    pipeline = make_pipeline(StandardScaler(), AggregateClassifier(**FAST))
    pipeline.fit(X, count(labels, ids, 3), aggregateclassifier__groups=unbag.Groups.from_ids(ids))
    assert pipeline.score(X, labels) > 0.95


def test_with_metadata_routing_groups_go_to_the_splitter(problem):
    X, _, ids, y = problem
    with sklearn.config_context(enable_metadata_routing=True):
        found = cross_validate(
            AggregateClassifier(**FAST), X, y, params={"groups": ids}, cv=GroupKFold(2), error_score="raise"
        )
    assert len(found["test_score"]) == 2


def test_a_fold_with_part_of_a_group_is_refused_with_advice(problem):
    X, _, _, y = problem
    with pytest.raises(ValueError, match=r"groups must be whole.*GroupKFold"):
        cross_validate(AggregateClassifier(**FAST), X, y, cv=KFold(3), error_score="raise")


@pytest.mark.parametrize("cv", [3, None])
def test_folds_by_number_alone_are_refused(problem, cv):
    X, _, _, y = problem
    with pytest.raises(TypeError, match=r"no labels to stratify .*GroupKFold\(\)"):
        cross_validate(AggregateClassifier(**FAST), X, y, cv=cv, error_score="raise")


def test_scores_of_labels_are_refused_with_advice(problem):
    X, _, ids, y = problem
    settings = {"groups": ids, "cv": GroupKFold(2), "error_score": "raise"}
    with pytest.raises(TypeError, match=r"no labels to stratify or score by; .* omit scoring="):
        cross_validate(AggregateClassifier(**fast(epochs=1)), X, y, scoring="accuracy", **settings)


def test_observations_that_lost_their_groups_are_refused(problem):
    X, labels, ids, _ = problem
    with pytest.raises(ValueError, match=r"y has 60 entries for 240 rows of X.*groups=groups"):
        AggregateClassifier().fit(X, count(labels, ids, 3))
    bags = AggregateClassifier("multiple_instance")
    with pytest.raises(ValueError, match=r"MultipleInstance observes groups.*to splitters, not to fit"):
        cross_validate(bags, X, labels > 0, groups=ids, cv=GroupKFold(2), error_score="raise")


def test_clones_keep_what_they_were_given():
    given = {"aggregate": unbag.OrdinalRank(">"), "classes": ["a", "b"], "random_state": np.random.RandomState(0)}
    for name, value in given.items():
        assert AggregateClassifier(**given).get_params()[name] is value
    assert clone(AggregateClassifier(**given)).aggregate.relation == ">"
