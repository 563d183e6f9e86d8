"""Load classifiers and a run folder that version 0.2.0 has saved, and compare what they predict with what was recorded.

They are in tests/data/saved_by_0.2.0, written with that version by ``PYTHONPATH=src:tests/helpers python
tests/golden/test_saved_models.py``; a later version, which saves otherwise, must not write them again.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.csv as pacsv
import pytest
from golden_files import write_json
from table_files import blobs, call

import unbag
from unbag import AggregateClassifier, Groups

FOLDER = Path(__file__).parents[1] / "data" / "saved_by_0.2.0"
RECORDED: dict[str, Any] = json.loads(path.read_text()) if (path := FOLDER / "expected.json").exists() else {}
NEW_ROWS, FIRST_GROUPS = slice(180, 192), 4

# Folders that a later version refuses, with an error that names 0.2.0 and says what to do.
REFUSED: tuple[str, ...] = ()


def make_rows(k: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Return a table with numbers, missing values and text, and the labels of its rows, without random numbers."""
    rows = np.arange(192)
    labels = (rows * rows // 7 + rows // 3) % k
    table = pd.DataFrame(
        {
            "height": np.round(3 * np.cos(2 * np.pi * labels / k) + np.sin(rows * 1.7), 4),
            "width": np.round(3 * np.sin(2 * np.pi * labels / k) + np.sin(rows * 2.9), 4),
            "town": np.array(["Bonn", "Ulm", "Kiel"])[rows % 3],
        }
    )
    table.loc[rows % 11 == 5, "height"] = np.nan
    return table, labels


TUPLES = [Groups.from_tuples([[(7 * i + size * i * j + j) % 180 for j in range(size)] for i in range(120)], 192)
          for size in (2, 3)]  # fmt: skip
FOURS = Groups.from_ids(np.where(np.arange(192) < 180, np.arange(192) // 4, 45))
TRAINED = {"epochs": 8, "learning_rate": 0.05, "random_state": 0}
MIXED = {"random_state": 0, "n_folds": 2, "epochs": 8, "learning_rate": 0.05}

# The aggregate, the number of classes, the groups, and the settings of the classifier.
CASES: dict[str, tuple[unbag.Aggregate, int, Groups, dict[str, Any]]] = {
    "linear": (unbag.LabelProportions(), 3, FOURS, {"model": "linear", **TRAINED}),
    "mlp": (unbag.LabelProportions(), 3, FOURS, {"model": "mlp", **TRAINED}),
    "rbf": (unbag.LabelProportions(), 3, FOURS, {"model": "rbf", **TRAINED}),
    "trees": (unbag.LabelProportions(), 3, FOURS, {"model": "trees", "epochs": 6, "random_state": 0}),
    "mixture": (unbag.LabelProportions(), 2, FOURS, MIXED),
    "bags": (unbag.MultipleInstance(), 2, FOURS, MIXED),
    "pairs": (unbag.PairwiseSimilarity(), 3, TUPLES[0], {"model": "linear", "n_classes": 3, **TRAINED}),
    "triplets": (unbag.TripletComparison(), 3, TUPLES[1], {"model": "linear", "n_classes": 3, **TRAINED}),
    "noisy_ranks": (
        unbag.Noisy(unbag.OrdinalRank(">="), rate="fit"), 3, TUPLES[0], {"model": "linear", "n_classes": 3, **TRAINED}
    ),
    "published": (unbag.PublishedCounts(rounded_to=3), 3, FOURS, {"model": "linear", **TRAINED}),
    "few_labels": (unbag.LabelProportions(), 2, Groups.from_sizes([1] * 24), {"random_state": 0, "n_folds": 2}),
}  # fmt: skip


def observe(name: str) -> tuple[pd.DataFrame, np.ndarray, Groups, Any]:
    """Return the table, the labels, the groups and what is observed of them."""
    aggregate, k, groups, _ = CASES[name]
    X, labels = make_rows(k)
    z = aggregate.observe(labels[: groups.n_rows], groups, k)
    return X[: groups.n_rows] if name == "few_labels" else X, labels, groups, z


def predict(name: str, classifier: AggregateClassifier) -> dict[str, Any]:
    """Return what the file records of a classifier."""
    X, _, groups, z = observe(name)
    aggregate, k, *_ = CASES[name]
    new = make_rows(k)[0][NEW_ROWS]
    results = {
        "new rows": classifier.predict_proba(new),
        "rows of groups": classifier.disaggregate(X, z, groups=groups)[:12],
        "score": classifier.score(X, z, groups=groups),
    }
    if isinstance(aggregate, unbag.MultipleInstance):
        results["groups"] = classifier.predict_groups(X, groups)[:FIRST_GROUPS]
    accuracy = classifier.estimated_accuracy_
    results["estimated accuracy"] = -1.0 if accuracy is None else accuracy.value
    return {key: np.round(value, 8).tolist() for key, value in results.items()}


@pytest.mark.parametrize("name", [name for name in CASES if name in RECORDED])
def test_saved_classifier(name: str) -> None:
    if name in REFUSED:
        with pytest.raises(ValueError, match=r"0\.2\.0"):
            unbag.load(FOLDER / name)
        return
    found = predict(name, unbag.load(FOLDER / name))
    assert found.keys() == RECORDED[name].keys()
    for key, values in RECORDED[name].items():
        np.testing.assert_allclose(np.array(found[key]), np.array(values), atol=2e-6)


def predict_by_run(folder: Path) -> np.ndarray:
    """Write files of the run, and return the probabilities that the command predicts."""
    blobs(folder)
    done = call("predict", folder / "run", folder / "people.csv", "--out", folder / "predicted.csv")
    assert done.exit_code == 0, done.output
    return np.array(pacsv.read_csv(folder / "predicted.csv")["p_1"])[:12]


def test_saved_run_folder(tmp_path: Path) -> None:
    shutil.copytree(FOLDER / "run", tmp_path / "run")
    if "run" in REFUSED:
        done = call("predict", tmp_path / "run", tmp_path / "people.csv", "--out", tmp_path / "predicted.csv")
        assert done.exit_code == 2
        assert "0.2.0" in done.output
        return
    np.testing.assert_allclose(predict_by_run(tmp_path), RECORDED["run"], atol=2e-6)
    assert call("report", tmp_path / "run").exit_code == 0
    assert (tmp_path / "run" / "report.html").stat().st_size > 10_000


def write_all() -> None:
    """Fit and save all classifiers and the run folder, and record what they predict."""
    results: dict[str, Any] = {}
    for name, (aggregate, k, *_, settings) in CASES.items():
        X, labels, groups, z = observe(name)
        classifier = AggregateClassifier(aggregate, **settings).fit(X, z, groups=groups)
        if classifier.symmetry_ != "none":
            classifier.name_classes(X[:9], np.array(["low", "middle", "high"])[:k][labels[:9]])
        classifier.save(FOLDER / name, overwrite=True)
        results[name] = predict(name, classifier)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        blobs(Path(folder))
        call("fit", "people.csv", "counts.csv", "--out", "run", "--model", "linear", "--epochs", 2)
        results["run"] = np.round(predict_by_run(Path(folder)), 8).tolist()
        kept = shutil.ignore_patterns("report.html", ".lock")
        shutil.copytree("run", FOLDER / "run", ignore=kept, dirs_exist_ok=True)
    write_json(FOLDER / "expected.json", results)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    write_all()
