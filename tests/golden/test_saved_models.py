"""Load classifiers that were saved once, and compare what they predict with what was recorded.

They are in tests/data/saved, written by ``PYTHONPATH=src:tests/helpers python tests/golden/test_saved_models.py``. Once
a version of unbag is released, later versions must not write its files again, but load them or name it in an error.
"""

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from golden_files import write_json
from table_files import blobs, call

import unbag
from unbag import AggregateClassifier, CrossFitting, Groups, NetworkTraining

DATA = Path(__file__).parents[1] / "data"
FOLDER = DATA / "saved"
RECORDED: dict[str, Any] = json.loads(path.read_text()) if (path := FOLDER / "expected.json").exists() else {}
NEW_ROWS, FIRST_GROUPS = slice(180, 192), 4


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
LINEAR = {"model": "linear"}

# The aggregate, the number of classes, the groups, and the settings of the classifier.
CASES: dict[str, tuple[unbag.Aggregate, int, Groups, dict[str, Any]]] = {
    "linear": (unbag.LabelProportions(), 3, FOURS, LINEAR),
    "mlp": (unbag.LabelProportions(), 3, FOURS, {"model": "mlp", "training": NetworkTraining(8)}),
    "rbf": (unbag.LabelProportions(), 3, FOURS, {"model": "rbf", "training": NetworkTraining(8)}),
    "trees": (unbag.LabelProportions(), 3, FOURS, {"model": "trees"}),
    "mixture": (unbag.LabelProportions(), 2, FOURS, {}),
    "bags": (unbag.MultipleInstance(), 2, FOURS, {}),
    "pairs": (unbag.PairwiseSimilarity(), 3, TUPLES[0], {"n_classes": 3, **LINEAR}),
    "triplets": (unbag.TripletComparison(), 3, TUPLES[1], {"n_classes": 3, **LINEAR}),
    "noisy_ranks": (unbag.Noisy(unbag.OrdinalRank(">="), rate="fit"), 3, TUPLES[0], {"n_classes": 3, **LINEAR}),
    "published": (unbag.PublishedCounts(rounded_to=3), 3, FOURS, LINEAR),
}


def observe(name: str) -> tuple[pd.DataFrame, np.ndarray, Groups, Any]:
    """Return the table, the labels, the groups and their observations."""
    aggregate, k, groups, _ = CASES[name]
    X, labels = make_rows(k)
    return X, labels, groups, aggregate.observe(labels[: groups.n_rows], groups, k)


def predict(name: str, classifier: AggregateClassifier) -> dict[str, Any]:
    """Return what the file records of a classifier."""
    X, _, groups, z = observe(name)
    results = {
        "new rows": classifier.predict_proba(X[NEW_ROWS]),
        "rows of groups": classifier.disaggregate(X, z, groups=groups)[:12],
        "score": classifier.score(X, z, groups=groups),
    }
    if name == "bags":
        results["groups"] = classifier.predict_groups(X, groups)[:FIRST_GROUPS]
    accuracy = classifier.estimated_accuracy_
    results["estimated accuracy"] = -1.0 if accuracy is None else accuracy.value
    return {key: np.round(value, 8).tolist() for key, value in results.items()}


@pytest.mark.parametrize("name", CASES)
def test_saved_classifier(name: str) -> None:
    found = predict(name, unbag.load(FOLDER / name))
    assert found.keys() == RECORDED[name].keys()
    for key, values in RECORDED[name].items():
        np.testing.assert_allclose(np.array(found[key]), np.array(values), atol=2e-6)


def test_what_0_2_0_saved_is_refused_with_advice(tmp_path: Path) -> None:
    message = r"was saved by unbag 0\.2\.0 or earlier; fit the classifier again and save it, or load it by unbag 0\.2"
    with pytest.raises(ValueError, match=message):
        unbag.load(DATA / "saved_by_0.2.0" / "linear")
    blobs(tmp_path)
    shutil.copytree(DATA / "saved_by_0.2.0" / "run", tmp_path / "run")
    for arguments in (("predict", tmp_path / "run", tmp_path / "people.csv"), ("report", tmp_path / "run")):
        done = call(*arguments, "--out", tmp_path / "out")
        assert done.exit_code == 2
        text = " ".join(done.output.split())
        assert "the run was saved by another version of unbag, such as 0.2.0; repeat the run with unbag fit" in text


def write_all() -> None:
    """Fit and save all classifiers, and record what they predict."""
    results: dict[str, Any] = {}
    for name, (aggregate, k, *_, settings) in CASES.items():
        X, labels, groups, z = observe(name)
        classifier = AggregateClassifier(aggregate, validation=CrossFitting(2), random_state=0, **settings)
        classifier.fit(X, z, groups=groups)
        if classifier.symmetry_ != "none":
            classifier.name_classes(X[:9], np.array(["low", "middle", "high"])[:k][labels[:9]])
        classifier.save(FOLDER / name, overwrite=True)
        results[name] = predict(name, classifier)
    write_json(FOLDER / "expected.json", results)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    write_all()
