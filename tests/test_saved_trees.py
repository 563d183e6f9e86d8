"""Saved trees: LightGBM's own text, which is read as it was written or not at all."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hostile_folders import put, read_content, write_content
from problems_of_groups import blobs

import unbag
from unbag import AggregateClassifier
from unbag.saved_trees import read_trees

lightgbm = pytest.importorskip("lightgbm")

SETTINGS = {"model": "trees", "epochs": 6, "random_state": 0}


def saved(folder, k=3, **settings):
    X, y = blobs(120, k=k)
    X[::5, 0] = np.nan
    clf = AggregateClassifier(**SETTINGS | settings).fit(X, np.array(list("abcdef"))[y])
    clf.save(folder)
    return clf, X


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("settings", [{}, {"n_restarts": 2, "ensemble": True}, {"epochs": 1}])
def test_loaded_trees_say_the_same(k, settings, tmp_path):
    clf, X = saved(tmp_path / "model", k, **settings)
    again = unbag.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(X), clf.predict_proba(X))
    assert again.get_params() == clf.get_params()
    assert sorted(path.suffix for path in (tmp_path / "model").iterdir()) == [".json", ".txt"]


def test_lightgbm_itself_reads_the_file(tmp_path):
    clf, X = saved(tmp_path, k=2)
    (path,) = tmp_path.glob("weights-*.txt")
    raw = lightgbm.Booster(model_file=path).predict(X, raw_score=True)
    np.testing.assert_allclose(1 / (1 + np.exp(-raw)), clf.predict_proba(X)[:, 1])


def test_another_kind_of_model_takes_the_place_of_trees(tmp_path):
    saved(tmp_path)
    X, y = blobs(120)
    AggregateClassifier(model="mlp", epochs=1, random_state=0).fit(X, y).save(tmp_path, overwrite=True)
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".safetensors"]
    unbag.load(tmp_path)


def test_truncated_files_and_wrong_devices_are_refused(tmp_path):
    saved(tmp_path)
    with pytest.raises(ValueError, match="runs on the processor"):
        unbag.load(tmp_path, device="meta")
    (path,) = tmp_path.glob("weights-*.txt")
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(ValueError, match="truncated, or was altered"):
        unbag.load(tmp_path)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trees")
    saved(folder)
    (path,) = folder.glob("weights-*.txt")
    return path, path.read_text()


def line(text: str, name: str) -> str:
    return next(one for one in text.split("\n") if one.startswith(f"{name}=") and len(one) > len(name) + 1)


def changed(name: str, value: str):
    """Replace the first number of the first line of a name."""

    def change(text: str) -> str:
        old = line(text, name)
        _, _, numbers = old.partition("=")
        return text.replace(old, f"{name}={' '.join([value, *numbers.split(' ')[1:]])}", 1)

    return change


ALTERED = {
    "no text": lambda text: "é",
    "nothing": lambda text: "",
    "no end": lambda text: text.replace("end of trees\n", ""),
    "a second end": lambda text: text + "end of trees\n",
    "something after the end": lambda text: text + "parameters:\n",
    "sizes of trees": lambda text: text.replace("feature_infos", "tree_sizes=99999999 1 1\nfeature_infos", 1),
    "other features": changed("max_feature_idx", "9"),
    "more trees a round": changed("num_tree_per_iteration", "4"),
    "a tree too few": lambda text: text[: text.rindex("\n\nTree=")] + "\n\n\nend of trees\n",
    "an objective": lambda text: text.replace("feature_names", "objective=binary\nfeature_names", 1),
    "a line too many": lambda text: text.replace("is_linear=0", "is_linear=0\nnum_features=3", 1),
    "lines in another order": lambda text: text.replace("num_cat=0\n", "", 1).replace(
        "is_linear", "num_cat=0\nis_linear"
    ),
    "linear leaves": changed("is_linear", "1"),
    "categories": changed("num_cat", "1"),
    "too many leaves": changed("num_leaves", "1000000000"),
    "too few leaves": changed("num_leaves", "1"),
    "no leaves": changed("num_leaves", "0"),
    "half a leaf": changed("num_leaves", "2.5"),
    "a feature that is not there": changed("split_feature", "3"),
    "a negative feature": changed("split_feature", "-1"),
    "a category's decision": changed("decision_type", "1"),
    "a child that is not there": changed("left_child", "99"),
    "a leaf that is not there": changed("right_child", "-99"),
    "a circle": changed("left_child", "0"),
    "the same child twice": lambda text: changed("left_child", line(text, "right_child").split("=")[1].split()[0])(
        text
    ),
    "NaN": changed("leaf_value", "nan"),
    "infinity": changed("leaf_value", "1e999"),
    "no number": changed("threshold", "1e"),
    "a long number": changed("leaf_count", "9" * 400),
    "a word": changed("threshold", "far"),
    "too many numbers": changed("leaf_value", "1 2"),
}


@pytest.mark.parametrize("case", ALTERED)
def test_altered_texts_are_refused_before_lightgbm_reads_them(text, case, monkeypatch):
    path, original = text
    altered = ALTERED[case](original)
    assert altered != original
    monkeypatch.setattr(lightgbm, "Booster", None)
    with pytest.raises(ValueError, match="holds no trees of this classifier") as caught:
        read_trees(path, altered.encode(), 1, 3, 3)
    assert str(caught.value).isprintable()


def test_any_change_of_a_character_is_refused_or_harmless(text):
    path, original = text
    X = np.random.default_rng(0).normal(size=(20, 3))
    draw = random.Random(0)
    for _ in range(150):
        place = draw.randrange(len(original))
        altered = original[:place] + draw.choice("0123456789-.e =\n[]:") + original[place + 1 :]
        try:
            (model,) = read_trees(path, altered.encode(), 1, 3, 3)
        except ValueError as error:
            assert "holds no trees" in str(error)  # noqa: PT017 (either is right)
        else:
            assert np.isfinite(model.booster.predict(X, raw_score=True)).all()


def test_settings_of_another_family_are_refused(tmp_path):
    saved(tmp_path)
    put(tmp_path, "settings.model", "mlp")
    with pytest.raises(ValueError, match="one of \\['mlp'\\], got 'trees'"):
        unbag.load(tmp_path)
    content = read_content(tmp_path)
    content["settings"]["model"] = "forest"
    write_content(tmp_path, content)
    with pytest.raises(ValueError, match=r"one of .*, trees"):
        unbag.load(tmp_path)
