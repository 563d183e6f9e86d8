"""Saved classifiers: what comes back, what is refused, and that a folder always holds the earlier or the new one."""

import copy
import errno
import json
import os
import re
import resource
import signal
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from killed_runs import PLACES, attempt, die_at
from problems_of_groups import blobs, count, tuples
from saved_folders import arrays_in, read_content
from sklearn.linear_model import LogisticRegression
from torch import nn

import unbag
from unbag import AggregateClassifier, CrossFitting, Groups, NetworkTraining
from unbag.aggregates.registry import find_aggregate
from unbag.persistence.saved_models import LOCAL, SETTINGS
from unbag.persistence.schema import FORMAT

LINEAR = {"model": "linear", "validation": CrossFitting(2), "random_state": 0}
SOURCES = sorted(Path(unbag.__file__).parent.rglob("*.py"))
FITTED = (
    *("candidates_", "history_", "folds_", "error_rates_", "symmetry_", "diagnosis_", "estimated_accuracy_"),
    "estimated_performance_",
)
PAIRS = Groups.from_sizes([2] * 40)


@pytest.fixture(scope="module")
def fitted():
    X, labels = blobs(60)
    return AggregateClassifier(**LINEAR).fit(X, labels), X


@pytest.fixture
def saved(fitted, tmp_path):
    fitted[0].save(tmp_path / "model")
    return tmp_path / "model"


def load_equal(classifier, folder, X, **code):
    """Save and load, and return the loaded classifier, which must predict and describe the same."""
    classifier.save(folder)
    again = unbag.load(folder, **code)
    np.testing.assert_array_equal(again.predict_log_proba(X), classifier.predict_log_proba(X))
    np.testing.assert_array_equal(again.predict(X), classifier.predict(X))
    assert again.classes_.dtype == classifier.classes_.dtype
    assert again.feature_statistics_ == classifier.feature_statistics_
    assert repr(again.aggregate_) == repr(classifier.aggregate_)
    for name in FITTED:
        assert getattr(again, name) == getattr(classifier, name), name
    assert [repr(value) for value in again.get_params().values()] == [
        repr(value) for value in classifier.get_params().values()
    ]
    return again


@pytest.mark.parametrize("model", ["auto", "linear", "mlp", "rbf", "trees"])
def test_models_by_name(model, tmp_path):
    X, labels = blobs(80)
    X[::7, 1] = np.nan
    settings = {**LINEAR, "model": model}
    classifier = AggregateClassifier(**settings).fit(X, count(labels, np.arange(80) // 2, 3), groups=PAIRS)
    again = load_equal(classifier, tmp_path / "model", X)
    for fold in range(2):
        np.testing.assert_array_equal(*(one._predict_rows(one._read_rows(X), fold=fold) for one in (again, classifier)))
    load_equal(again, tmp_path / "again", X)


def test_tables(tmp_path):
    X, labels = blobs(80)
    table = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "town": np.array(["Ulm", "Bonn"])[labels % 2]})
    table.loc[3, ["a", "town"]] = None
    names = np.array(["kiwi", "apple", "fig"], dtype=object)[labels]
    classifier = AggregateClassifier(**LINEAR).fit(table, names)
    again = load_equal(classifier, tmp_path / "deep" / "model", table)
    assert again.preparation_ == classifier.preparation_
    features = read_content(tmp_path / "deep" / "model")["features"]
    assert features[1] == {"name": "b", "kind": "number"}  # 100,000 columns fit into the file
    with pytest.raises(ValueError, match="in the same order as they were in fit"):
        again.predict(table[["b", "a", "town"]])
    assert again.fit(table, names).score(table, names) > 0.6  # it can be fitted again


def test_bags(tmp_path):
    X, labels = blobs(80, 2)
    z = (labels.reshape(-1, 2) == 1).any(1).astype(int)
    settings = {"validation": CrossFitting(2), "random_state": 0, "sampling": {0: 0.5, 1: 1.0}}
    classifier = AggregateClassifier("multiple_instance", **settings).fit(X, z, groups=PAIRS)
    assert classifier.bag_model_ is not None
    again = load_equal(classifier, tmp_path / "model", X)
    np.testing.assert_array_equal(again.predict_groups(X, PAIRS), classifier.predict_groups(X, PAIRS))
    assert again.score(X, z, groups=PAIRS) == classifier.score(X, z, groups=PAIRS)


@pytest.mark.filterwarnings("ignore:the groups contain")  # pairs drawn at random leave some rows out
def test_names_that_were_assigned_after_fit(tmp_path):
    X, labels = blobs()
    pairs = tuples(len(X), 200, 2)
    z = unbag.PairwiseSimilarity().observe(labels, pairs, 3)
    classifier = AggregateClassifier(unbag.PairwiseSimilarity(), n_classes=3, **LINEAR).fit(X, z, groups=pairs)
    classifier.name_classes(X[:20], np.array(["x", "y", "z"])[labels[:20]])
    again = load_equal(classifier, tmp_path / "model", X)
    np.testing.assert_array_equal(again.disaggregate(X, z, groups=pairs), classifier.disaggregate(X, z, groups=pairs))


@pytest.mark.parametrize(
    "aggregate",
    [
        unbag.LabelProportions(method="exact", max_states=99),
        unbag.PublishedCounts(noise="laplace:0.5", seed=3),
        unbag.OrdinalRank(">="),
        unbag.AtLeast(2, label=1),
        unbag.Majority(),
        unbag.Noisy(unbag.MultipleInstance(), rate="fit"),
        unbag.Noisy(unbag.PairwiseSimilarity(), rate=(0.1, 0.2)),
        ["label_proportions", unbag.CountOf(1)],
    ],
    ids=repr,
)
def test_kinds_of_observations(aggregate, tmp_path):
    X, labels = blobs(80, 2)
    kinds = [find_aggregate(kind) for kind in (aggregate if isinstance(aggregate, list) else [aggregate])]
    z = [kind.observe(labels, PAIRS, 2) for kind in kinds]
    classifier = AggregateClassifier(aggregate, n_classes=2, **LINEAR)
    if isinstance(aggregate, list):
        classifier.fit(X, z, groups=[PAIRS] * len(z))
    else:
        classifier.fit(X, z[0], groups=PAIRS)
    load_equal(classifier, tmp_path / "model", X)


def test_code_is_passed_again(tmp_path):
    X, labels = blobs(80, 2)
    code = {"model": nn.Linear(2, 1), "aggregate": unbag.FromFunction(sum), "loss": unbag.losses.mae}
    training = NetworkTraining(2, loss=code["loss"])
    classifier = AggregateClassifier(code["aggregate"], code["model"], training=training, n_classes=2, random_state=0)
    classifier.fit(X, code["aggregate"].observe(labels, PAIRS, 2), groups=PAIRS).save(tmp_path / "model")
    again = unbag.load(tmp_path / "model", **code)
    np.testing.assert_array_equal(again.predict_proba(X), classifier.predict_proba(X))
    for name in code:
        with pytest.raises(ValueError, match=rf"with the {name} of a caller.*unbag\.load\(folder, {name}=\.\.\.\)"):
            unbag.load(tmp_path / "model", **{**code, name: None})
    with pytest.raises(ValueError, match=r"is damaged: Error\(s\) in loading state_dict"):
        unbag.load(tmp_path / "model", **{**code, "model": nn.Sequential(nn.Linear(2, 1))})


def test_code_that_was_saved_by_name_is_refused(saved):
    with pytest.raises(ValueError, match="the model was saved with the classifier; leave model= out"):
        unbag.load(saved, model=nn.Linear(3, 3))


def test_classifiers_of_scikit_learn_need_pickle(tmp_path):
    X, labels = blobs(60)
    classifier = AggregateClassifier(model=LogisticRegression(), validation=CrossFitting(2)).fit(X, labels)
    with pytest.raises(ValueError, match="cannot be saved without pickle"):
        classifier.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_every_parameter_is_saved(saved):
    parameters = read_content(saved)["parameters"]
    assert {*parameters} == {*AggregateClassifier().get_params()} - {*LOCAL}
    assert {*SETTINGS} == {"CrossFitting", "NetworkTraining"}


def test_generators_and_numbers_of_numpy(tmp_path):
    X, labels = blobs(60)
    settings = {"n_classes": np.int64(3), "classes": np.arange(3), "class_shares": ({0: 0.3, 1: 0.3, 2: 0.4}, 0.1)}
    classifier = AggregateClassifier(**{**LINEAR, "random_state": np.random.RandomState(0)}, **settings).fit(X, labels)
    classifier.set_params(device="cpu").save(str(tmp_path / "model"))
    again = unbag.load(str(tmp_path / "model"))
    assert (again.random_state, again.n_classes, again.classes) == (None, 3, [0, 1, 2])
    assert [*again.class_shares] == [*settings["class_shares"]]
    with pytest.raises(TypeError, match=r"a parameter that cannot be saved as JSON: .*<object .* of object"):
        classifier.set_params(verbose=object()).save(tmp_path / "other")


def test_no_place_on_the_computer_is_saved(fitted, tmp_path):
    classifier = copy.copy(fitted[0]).set_params(training=NetworkTraining(checkpoint=tmp_path), device="meta")
    classifier.save(tmp_path / "model")
    again = unbag.load(tmp_path / "model")
    assert (again.training.checkpoint, again.device) == (None, "cpu")  # the next fit must not write there
    assert str(tmp_path) not in (tmp_path / "model" / "model.json").read_text()


def test_scores_that_are_not_finite_become_none(fitted, tmp_path):
    classifier = copy.copy(fitted[0])
    classifier.history_ = [{"step": 0, "score": float("nan")}]
    classifier.save(tmp_path / "model")
    assert unbag.load(tmp_path / "model").history_ == [{"step": 0, "score": None}]


@pytest.mark.parametrize(
    "names",
    [
        np.array(["été", "夏天", "🌞\u200d"]),
        np.array(["a", "b", "c"], dtype="<U99"),
        np.array(["a", "b", "c"], dtype=">U3"),
        np.array([True, "b", 2.5], dtype=object),
        np.array([-5, 0, 2**62]),
        np.array([1, 2, 3], dtype=np.uint8),
        np.array([1, 2, 3], dtype=">i4"),
        np.array([0.1, 1e-300, 5.0]),
        np.array([0.1, 0.2, 0.3], dtype=np.float32),
        np.array([10**30, -(10**30), 0], dtype=object),
    ],
    ids=lambda names: f"{names.dtype.str} {names.tolist()}",
)
def test_classes_of_any_type(fitted, names, tmp_path):
    classifier = copy.copy(fitted[0])
    classifier.classes_ = names
    classifier.save(tmp_path / "model")
    again = unbag.load(tmp_path / "model").classes_
    assert (again.dtype, again.tolist()) == (names.dtype, names.tolist())
    assert [type(name) for name in again.tolist()] == [type(name) for name in names.tolist()]


@pytest.mark.parametrize("wrong", [[("a", 1), "b", "c"], [np.datetime64(f"202{n}-01-01") for n in range(3)]], ids=str)
def test_classes_that_json_cannot_hold(fitted, wrong, tmp_path):
    classifier = copy.copy(fitted[0])
    classifier.classes_ = np.empty(3, dtype=object if isinstance(wrong[0], tuple) else "M8[D]")
    classifier.classes_[:] = wrong
    with pytest.raises(TypeError, match=r"the class .* cannot be saved as JSON; name classes by strings or numbers"):
        classifier.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_what_could_not_be_loaded_is_not_saved(fitted, tmp_path):
    classifier = copy.copy(fitted[0])
    classifier.n_features_in_ = 4
    with pytest.raises(
        ValueError, match=r"is not saved, because it could not be loaded again: .*n_features_in must be"
    ):
        classifier.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


# Replacing


def test_folders_with_files_are_replaced_on_request_only(fitted, saved):
    classifier, X = fitted
    other = AggregateClassifier(**{**LINEAR, "random_state": 1}).fit(X, classifier.predict(X))
    with pytest.raises(FileExistsError, match=r"is not empty; .* overwrite=True"):
        other.save(saved)
    np.testing.assert_array_equal(unbag.load(saved).predict_proba(X), classifier.predict_proba(X))
    (saved / "README").write_text("mine")
    for _ in range(2):
        other.save(saved, overwrite=True)
        np.testing.assert_array_equal(unbag.load(saved).predict_proba(X), other.predict_proba(X))
        assert {path.name for path in saved.iterdir()} == {"README", "model.json", arrays_in(saved).name}


def test_a_file_is_no_folder(fitted, tmp_path):
    (tmp_path / "model").write_text("mine")
    with pytest.raises(NotADirectoryError, match="model is a file; name a folder for the classifier"):
        fitted[0].save(tmp_path / "model", overwrite=True)
    with pytest.raises(FileNotFoundError, match="there is no saved classifier in"):
        unbag.load(tmp_path / "model")


@pytest.mark.parametrize("text", ["", "{}", '{"format": 6}', "[1]"])
def test_files_that_are_no_classifier_are_not_replaced(fitted, tmp_path, text):
    (tmp_path / "model.json").write_text(text)
    with pytest.raises(FileExistsError, match=r"model\.json is no saved classifier, or damaged, and is not replaced"):
        fitted[0].save(tmp_path, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["model.json"]


@pytest.mark.parametrize("fits", [0, 1])
def test_a_full_disk_leaves_the_earlier_classifier(fitted, saved, fits):
    """A limit on the size of files stands for a full disk: nothing fits, or the arrays alone."""
    classifier, X = fitted
    other = AggregateClassifier(**{**LINEAR, "random_state": 1}).fit(X, classifier.predict(X))
    other.history_ = 100 * other.history_  # larger than the arrays
    limit = arrays_in(saved).stat().st_size + 10 if fits else 100
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        with pytest.raises(OSError) as caught:  # noqa: PT011 (the number is checked)
            other.save(saved, overwrite=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert caught.value.errno == errno.EFBIG
    np.testing.assert_array_equal(unbag.load(saved).predict_proba(X), classifier.predict_proba(X))
    other.save(saved, overwrite=True)
    assert len([*saved.iterdir()]) == 2  # what the failed attempt left is gone


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("write", [1, 2], ids=["arrays", "text"])
@pytest.mark.parametrize("place", PLACES)
def test_a_kill_leaves_the_earlier_or_the_new_classifier(fitted, saved, place, write):
    classifier, X = fitted
    other = AggregateClassifier(**{**LINEAR, "random_state": 1}).fit(X, classifier.predict(X))
    assert attempt(lambda folder: other.save(folder, overwrite=True), saved, partial(die_at, place, write))
    is_new = (place, write) == ("replaced", 2)
    found = unbag.load(saved).predict_proba(X)
    np.testing.assert_array_equal(found, (other if is_new else classifier).predict_proba(X))
    other.save(saved, overwrite=True)
    assert len([*saved.iterdir()]) == 2  # what the killed attempt left is gone


# Refusing


def test_damaged_files(saved):
    arrays, head = arrays_in(saved), saved / "model.json"
    raw, text = arrays.read_bytes(), head.read_bytes()
    for content in (raw[:-1], raw[:10], b"", raw[:-1] + bytes([raw[-1] ^ 1])):
        arrays.write_bytes(content)
        with pytest.raises(ValueError, match=r"is damaged: weights-.* was altered after it was saved"):
            unbag.load(saved)
    arrays.write_bytes(raw)
    for content in (text[:-1], text[: len(text) // 2], text.replace(b'"n_features_in": 3', b'"n_features_in": 4')):
        head.write_bytes(content)
        with pytest.raises(ValueError, match="is no classifier that this version of unbag can load"):
            unbag.load(saved)
    arrays.unlink()
    head.write_bytes(text)
    with pytest.raises(FileNotFoundError, match=r"model\.json needs weights-.*, which is missing in the same folder"):
        unbag.load(saved)
    head.unlink()
    with pytest.raises(FileNotFoundError, match=r"no saved classifier in .*: model.json is missing"):
        unbag.load(saved)


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (FORMAT + 1, f"has format {FORMAT + 1}, which a later version has saved; upgrade unbag"),
        (5, r"was saved by unbag 0\.2\.0 or earlier; fit the classifier again and save it, or load it by unbag 0\.2"),
    ],
)
def test_files_of_other_versions(saved, number, message):
    head = json.loads((saved / "model.json").read_text())
    (saved / "model.json").write_text(json.dumps({**head, "format": number}))
    with pytest.raises(ValueError, match=message):
        unbag.load(saved)


PICKLES = re.compile(
    r"\b(cPickle|_pickle|dill|cloudpickle|shelve|marshal)\b|\b(pickle\.(loads?|dumps?|Unpickler)|joblib\.(load|dump)|"
    r"read_pickle|(?<!safetensors\.)torch\.(load|save)|(?<!\.)eval|(?<!\.)exec|__import__)\((?!.*weights_only=True)|"
    r"allow_pickle=True"
)


def test_nothing_in_the_package_reads_or_writes_files_of_pickles():
    """Except between the processes of one fit, whose folder nobody else can write."""
    assert len(SOURCES) > 100
    assert {path.name for path in SOURCES if PICKLES.search(path.read_text())} <= {"workers.py"}
