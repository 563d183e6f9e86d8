"""Default fits beside single methods: groups, what is measured of a fit, lines of results, and the page of them."""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ET
from functools import partial
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import unbag
from unbag.cli import app
from unbag_experiments.fits import cells, methods, page, runner, sets
from unbag_experiments.fits.comparison import places, scopes, standing
from unbag_experiments.fits.grouping import SIZES, count, group, n_training_rows, sizes_of, split
from unbag_experiments.fits.methods import Learned, learn, why_not
from unbag_experiments.fits.plan import Cell, cells_of, effort, select, skipped
from unbag_experiments.fits.sets import SETS, TABLES, Data, load
from unbag_experiments.work_claims import claim

ROOT = Path(__file__).parents[2]


def blobs(n=400, k=2, apart=4.0, seed=0):
    """Make rows around one centre for each class; a third column says nothing."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % k
    centres = apart * np.eye(3)[:k, :2]
    return Data(np.c_[centres[y] + rng.standard_normal((n, 2)), rng.standard_normal(n)].astype(np.float32), y)


def bags(n=40):
    """Make bags of two to four rows, positive where one of them is large."""
    sizes = 2 + np.arange(n) % 3
    X = np.random.default_rng(0).standard_normal((sizes.sum(), 3)).astype(np.float32)
    y = np.arange(n) % 2
    X[sizes.cumsum() - 1, 0] += 6 * y
    return Data(X, y, np.repeat(np.arange(n), sizes))


def test_a_set_is_of_development_or_looked_at_once():
    development = [name for name, one in SETS.items() if one.development]
    assert development == ["vehicle", "pendigits", "usps", "breast_cancer", "digits", "musk1", "elephant"]
    assert len(TABLES) >= 8
    assert {cell.set for cell in select()} == set(development)
    assert {cell.set for cell in select(final=True)} == set(SETS)


@pytest.mark.parametrize("name", ["breast_cancer", "wine", "digits", "diabetes"])
def test_sets_that_come_with_scikit_learn_are_as_declared(name):
    data = load(name)
    assert len(data.X) == len(data.y) == SETS[name].rows
    assert set(data.y) == set(range(data.n_classes))


def test_a_set_with_other_rows_than_declared_is_refused(monkeypatch):
    monkeypatch.setitem(SETS, "wine", SETS["digits"])
    with pytest.raises(ValueError, match="wine should have 1797 rows, or bags, and has 178"):
        load("wine")


def test_rows_of_images_are_means_of_squares(monkeypatch):
    X = np.random.default_rng(0).integers(0, 256, (12, 1, 4, 6), np.uint8)
    monkeypatch.setattr(sets.datasets, "load", lambda name: Data(X, np.arange(12)))
    monkeypatch.setattr(sets, "IMAGES", 5)
    found = sets._load("mnist")
    assert found.X.shape == (5, 6)
    for row, label in zip(found.X, found.y, strict=True):
        assert row[1] == pytest.approx(X[label, 0, :2, 2:4].mean() / 255)


def test_test_rows_are_a_quarter_with_the_shares_of_the_classes():
    y = np.repeat([0, 1, 2], [200, 120, 80])
    train, test = split(y, seed=3)
    assert sorted([*train, *test]) == list(range(400))
    assert (len(train), len(test)) == (n_training_rows(400), 100)
    assert np.bincount(y[test]).tolist() == [50, 30, 20]
    assert not np.array_equal(test, split(y, seed=4)[1])


@given(st.integers(1, 40), st.integers(1, 12), st.sampled_from(["random", "similar"]), st.integers(0, 5))
def test_groups_have_their_size_and_what_is_left_over_is_one_smaller_group(n, size, grouping, seed):
    X = np.random.default_rng(n).standard_normal((n, 2))
    ids = group(X, size, grouping, seed)
    whole, left = divmod(n, size)
    assert sorted(np.bincount(ids), reverse=True) == [size] * whole + [left] * bool(left)
    assert np.array_equal(ids, group(X, size, grouping, seed))


def test_groups_of_similar_rows_have_more_varied_proportions():
    data = blobs(n=800)

    def spread(grouping):
        """Return the variance of proportions, over that of independent rows; a projection may miss what differs."""
        ids = [group(data.X, 16, grouping, seed) for seed in range(10)]
        return np.mean([(count(one, data.y, 2)[:, 0] / 16).var() for one in ids]) / (0.25 / 16)

    assert spread("random") == pytest.approx(1, abs=0.3)
    assert spread("similar") > 3


def test_similar_rows_are_near_each_other_in_columns_that_vary_whatever_their_units():
    X = blobs().X.astype(np.float64)
    other = np.c_[X * [1024, 1 / 1024, 1], np.full(len(X), 7.0)][:, :3]
    found = group(X, 10, "similar", seed=0)
    assert np.array_equal(found, group(other, 10, "similar", seed=0))
    inside = np.mean([X[found == one].var(0) / X.var(0) for one in range(40)])
    apart = np.mean([X[np.arange(400) // 10 == one].var(0) / X.var(0) for one in range(40)])
    assert inside < 0.9 * apart
    constant = np.full((20, 1), 7.0)
    assert np.bincount(group(constant, 4, "similar", seed=0)).tolist() == [4] * 5


def test_sizes_of_which_too_few_groups_come_out_are_skipped_and_named():
    for name in TABLES:
        assert sorted([*sizes_of(name), *skipped().get(name, ())]) == list(SIZES)
        assert all(n_training_rows(SETS[name].rows) // size >= 5 for size in sizes_of(name))
    assert skipped()["digits"] == (1024,)


def test_cells_are_chosen_by_set_size_method_and_draw():
    assert len(cells_of("vehicle")) == 3 * 2 * 5 + 1
    assert len(cells_of("musk1")) == 3 * 10
    chosen = select(["vehicle"], [64], ["linear"], draws=2)
    assert [(cell.grouping, cell.seed) for cell in chosen] == [
        ("random", 0),
        ("similar", 0),
        ("random", 1),
        ("similar", 1),
    ]
    assert {cell.seed for cell in select(["musk1"], draws=2)} == set(range(20))
    efforts = [effort(cell) for cell in select(draws=1)]
    assert efforts == sorted(efforts, reverse=True)
    assert {cell.seed for cell in select(["pendigits"], [256])} == {0}
    assert {cell.seed for cell in select(["pendigits"], [1024])} == {0, 1, 2}  # five groups
    for name, size, draws in (("vehicle", 4, 6), ("breast_cancer", 64, 9), ("diabetes", 16, 12), ("wine", 16, 12)):
        assert {cell.seed for cell in select([name], [size])} == {*range(draws)}
        rows = SETS[name].rows
        assert draws == 12 or 1250 <= draws * (rows - n_training_rows(rows)) < 1250 + rows
    assert len({cell.key for cell in select(final=True, draws=2)}) == len(select(final=True, draws=2))
    for wrong in ({"sets": ["iris"]}, {"sizes": [5]}, {"methods": ["forests"]}):
        with pytest.raises(ValueError, match="must be one of"):
            select(**wrong)


def test_accuracy_area_and_calibration():
    probs = np.array([[0.9, 0.1], [0.6, 0.4], [0.7, 0.3], [0.2, 0.8]])
    assert cells.measure(probs, np.array([0, 0, 1, 1])) == pytest.approx(
        {"accuracy": 0.75, "auc": 0.75, "calibration": 0.0}
    )
    three = np.eye(3)[[0, 1, 2, 0]] * 0.7 + 0.1
    assert cells.measure(three, np.array([0, 1, 2, 1]))["accuracy"] == 0.75


def test_groups_of_test_rows_are_explained_by_their_likelihood():
    probs = np.array([[0.9, 0.1], [0.4, 0.6], [0.5, 0.5]])
    ids, counts = np.array([0, 0, 1]), np.array([[1, 1], [1, 0]])
    expected = (np.log(0.9 * 0.6 + 0.1 * 0.4) + np.log(0.5)) / 2
    assert cells.explain(probs, ids, counts) == pytest.approx(expected)
    assert cells.explain(np.array([[1.0, 0.0]]), np.array([0]), np.array([[0, 1]])) is None


@pytest.mark.parametrize("size", [2, 20])  # with groups to choose by, and without
def test_the_match_of_mean_proportions_learns(size, monkeypatch):
    monkeypatch.setattr(methods, "STEPS", 100)
    data = blobs(k=3)
    ids = group(data.X, size, "random", seed=0)
    learned = learn("mean_proportions", data.X, ids, count(ids, data.y, 3), data.X, seed=0)
    assert (learned.probs.argmax(1) == data.y).mean() > 0.9
    assert np.allclose(learned.probs.sum(1), 1)


def test_an_estimator_is_told_its_model_and_what_it_says_of_itself_is_kept(monkeypatch):
    given = {}

    class Estimator:
        estimated_accuracy_ = SimpleNamespace(value=0.75, low=0.7, high=0.8)

        def __init__(self, **parameters):
            given.update(parameters)

        def fit(self, X, counts, groups):
            assert len(groups) == len(counts)
            return self

        def predict_proba(self, X):
            return np.tile([0.25, 0.75], (len(X), 1))

    monkeypatch.setattr(methods, "AggregateClassifier", Estimator)
    found = cells.run(Cell("vehicle", "linear", 4, "random", 5), blobs())
    assert given == {"model": "linear", "random_state": 5}
    assert (found["accuracy"], found["calibration"]) == (0.5, 0.25)
    assert (found["estimated_accuracy"], found["interval"]) == (0.75, [0.7, 0.8])
    assert (found["groups"], found["rows"]) == (75, {"train": 300, "test": 100})
    Estimator.estimated_accuracy_ = 0.5
    assert cells.run(Cell("vehicle", "linear", 4, "random"), blobs())["estimated_accuracy"] == 0.5
    del Estimator.estimated_accuracy_
    assert cells.run(Cell("vehicle", "linear", 4, "random"), blobs())["estimated_accuracy"] is None


def test_a_method_that_cannot_be_had_says_why(monkeypatch):
    monkeypatch.setitem(sys.modules, "lightgbm", None)  # as where it is not installed
    assert why_not("trees").startswith("trees cannot be had: ")
    assert why_not("default") is None


@pytest.mark.parametrize("method", ["forest", "svm", "default"])
def test_bags_are_ranked(method, monkeypatch):
    quick = {"model": "linear", "training": unbag.NetworkTraining(60, learning_rate=0.1)}
    monkeypatch.setattr(methods, "AggregateClassifier", partial(methods.AggregateClassifier, **quick))
    forest = methods.RandomForestClassifier
    monkeypatch.setattr(methods, "RandomForestClassifier", lambda n, **options: forest(20, **options))
    found = cells.run(Cell("musk1", method, seed=3), bags())
    assert found["auc"] > 0.9
    assert found["accuracy"] >= 0.75
    assert found["groups"] == 36


def test_the_rows_of_a_fold_belong_to_their_bags(monkeypatch):
    data = bags()
    data.X[:, 1] = data.bags

    def rank(method, X, sizes, y, *, X_new, new_sizes, seed):
        for rows, own in ((X, sizes), (X_new, new_sizes)):
            numbers = np.unique(rows[:, 1], return_counts=True)[1]
            assert numbers.tolist() == own.tolist()
        held_out = np.unique(X_new[:, 1]).astype(int)
        assert len(held_out) == 4
        assert not set(held_out) & set(np.unique(X[:, 1]).astype(int))
        assert y.tolist() == data.y[np.unique(X[:, 1]).astype(int)].tolist()
        return data.y[held_out], 0.5

    monkeypatch.setattr(cells, "rank_bags", rank)
    assert cells.run(Cell("musk1", "svm", seed=1), data)["accuracy"] == 1.0


@pytest.fixture
def fake(monkeypatch):
    """Have methods predict the shares of all classes, at once; return what was asked of them."""
    asked = []

    def guess(method, X, ids, counts, X_new, *, seed):
        asked.append(method)
        if method == "linear":
            raise RuntimeError("no luck")
        return Learned(np.tile(counts.sum(0) / counts.sum(), (len(X_new), 1)))

    monkeypatch.setattr(cells, "learn", guess)
    monkeypatch.setattr(runner, "why_not", lambda method: f"{method} cannot be had" if method == "trees" else None)
    return asked


def test_what_is_there_is_not_run_again(fake, tmp_path):
    told = []
    wanted = select(["vehicle"], [4], ["network", "default"], draws=1)
    ended = runner.fill(wanted[:3], tmp_path, load=lambda name: blobs(), tell=told.append)
    assert ended == {"done": 3}
    assert told[0].startswith("3 cells are missing")
    assert told[1].startswith("1 of 3: vehicle, 4 random rows a group, draw 0, default: accuracy 50.0 %, AUC 50.0")
    ended = runner.fill(wanted, tmp_path, load=lambda name: blobs(), tell=told.append)
    assert ended == {"done": 1}
    assert len(fake) == 4
    lines = [json.loads(line) for line in (tmp_path / "fits.jsonl").read_text().splitlines()]
    assert {line["table"] for line in lines} == {"fits"}
    assert all(line["commit"] and line["versions"]["sklearn"] and line["hardware"] for line in lines)
    assert list(runner.read(tmp_path)) == [*wanted]
    assert runner.fill(wanted, tmp_path, tell=told.append) == {}
    assert told[-1] == "nothing is missing"


def test_one_cell_that_fails_does_not_end_the_others(fake, tmp_path, caplog):
    told = []
    wanted = select(["vehicle"], [4], ["linear", "trees", "network"], draws=1)
    ended = runner.fill(wanted, tmp_path, load=lambda name: blobs(), tell=told.append)
    assert ended == {"failed": 2, "done": 2, "trees cannot be had": 2}
    assert "failed: vehicle, 4 random rows a group, draw 0, linear: RuntimeError: no luck" in told
    assert told.count("trees cannot be had") == 1
    assert "no luck" in caplog.text


def test_a_set_that_is_not_there_is_named_once(fake, tmp_path):
    def load(name):
        raise FileNotFoundError("put it there")

    told = []
    ended = runner.fill(select(["usps"], [4], ["network"]), tmp_path, load=load, tell=told.append)
    assert ended == {"usps cannot be loaded: put it there": 2}
    assert told.count("usps cannot be loaded: put it there") == 1


def test_what_another_process_does_is_left_to_it(fake, tmp_path):
    first, second = select(["vehicle"], [4], ["network"], draws=1)
    with claim(tmp_path, first.key):
        ended = runner.fill([first, second], tmp_path, load=lambda name: blobs(), tell=lambda text: None)
    assert ended == {"done elsewhere": 1, "done": 1}
    assert list(runner.read(tmp_path)) == [second]


def test_nothing_is_begun_that_would_not_end_in_time(fake, tmp_path):
    wanted = select(["vehicle"], [4], ["network"], draws=1)
    runner.fill(wanted[:1], tmp_path, load=lambda name: blobs(), tell=lambda text: None)
    path = tmp_path / "fits.jsonl"
    line = json.loads(path.read_text())
    for seconds, ended in ((50.0, {"left for lack of time": 1}), (20.0, {"done": 1})):
        path.write_text(json.dumps({**line, "seconds": seconds}) + "\n")
        assert runner.fill(wanted, tmp_path, budget="1m", load=lambda name: blobs(), tell=lambda text: None) == ended


def line(cell, accuracy=0.8, **changes):
    made = {"table": "fits", **vars(cell), "accuracy": accuracy, "auc": accuracy, "warnings": [], "seconds": 2.0}
    known = {"hardware": "one CPU", "versions": {"torch": "2.11"}, "commit": "0123abc", "date": "2026-01-31T12:00:00"}
    return {**made, **known, **changes}


def made_lines():
    """Return lines of all methods on two tables and on one set of bags."""
    accuracies = {"default": 0.80, "linear": 0.70, "network": 0.79, "trees": 0.805, "mean_proportions": 0.75}
    found = {}
    for (method, accuracy), draw in product(accuracies.items(), (0, 1)):
        cell = Cell("vehicle", method, 64, "random", draw)
        found[cell] = line(cell, accuracy + 0.01 * draw, estimated_accuracy=0.86)
    found[Cell("vehicle", "all_labels", 1, "random")] = line(Cell("vehicle", "all_labels", 1, "random"), 0.9)
    for method, accuracy in {**accuracies, "linear": 0.84, "default": 0.6}.items():
        cell = Cell("wine", method, 16, "similar")
        found[cell] = line(cell, accuracy, estimated_accuracy=0.71)
    for method, area in {"default": 0.93, "forest": 0.90, "svm": 0.86}.items():
        for fold in range(10):
            found[Cell("fox", method, seed=fold)] = line(Cell("fox", method, seed=fold), auc=area)
    return found


def test_the_default_is_compared_with_the_best_single_method():
    found = places(made_lines())
    assert len(found) == sum(len(sizes_of(name)) for name in TABLES) * 2
    near, far = (next(one for one in found if one.set == name and one.fits["default"]) for name in ("vehicle", "wine"))
    assert (near.accuracy("default"), near.accuracy("all_labels")) == pytest.approx((80.5, 90))
    assert (near.to_best, far.to_best) == pytest.approx((-0.5, -24))
    assert near.difference("mean_proportions") == pytest.approx(5)
    whole = standing(found)
    assert (whole.compared, whole.near, whole.incomplete) == (2, 1, 0)
    assert whole.worst == (pytest.approx(-24), far)
    assert whole.to_match == (pytest.approx((5 - 15) / 2), 1, 2)
    # 6 and 5 points too much, and 11 without a warning.
    assert (whole.estimated, whole.estimated_near, whole.silent) == (3, 1, 1)
    by_scope = {name: standing(chosen) for name, chosen in scopes(found).items()}
    assert [one.compared for one in by_scope.values()] == [2, 1, 1]
    assert sum(one.planned for one in by_scope.values()) == 2 * whole.planned


def test_differences_are_over_draws_that_both_methods_have():
    found = made_lines()
    del found[Cell("vehicle", "default", 64, "random", 0)]
    (place,) = (one for one in places(found) if (one.set, one.size, one.grouping) == ("vehicle", 64, "random"))
    assert place.difference("trees") == pytest.approx(-0.5)
    assert place.accuracy("default") == pytest.approx(81)


def test_a_warning_excuses_what_is_said_too_high_and_a_missing_method_is_counted():
    found = made_lines()
    cell = Cell("wine", "default", 16, "similar")
    found[cell] = {**found[cell], "warnings": ["do not rely on it"]}
    del found[Cell("wine", "trees", 16, "similar")]
    whole = standing(places(found))
    assert (whole.silent, whole.incomplete) == (0, 1)


EXPECTED = """
1. Run: 2 of 86 cells.
2. The default is at most one point below the best single method in 1 of 2 cells; at worst: -24.0 points (wine, groups of 16 similar rows).
3. Above the match of mean proportions, in points on average, in groups of 4: -, 16: -15.0, 64: +5.0, 256: -, 1,024: -.
4. Of 3 estimates of accuracy, 1 are within five points of the actual one (25 % with equal weights of 2 cells), and 1 are more than ten points too high without a warning; on average over draws, 0 of 2 cells are within five points. 0 fits have too few groups for an estimate.
5. Bags: mean area under the ROC curve, less that of the better of a forest and an SVM on bag statistics: +3.0 points (mean of 1 sets).
| all sets            | 2 of 86 |  1 of 2 (50 %) | -24.0 |       -12.2 |         -5.0 |  0 of 2 (0 %) |        1 |
| vehicle       | random  |    80.5 |    70.5 |    79.5 |    81.0 |    75.5 |       90.0 |        -0.5 |      +5.5 |     2 |
| vehicle       | similar | missing | missing | missing | missing | missing |       90.0 |           - |         - |     0 |
| wine          | similar |    60.0 |    84.0 |    79.0 |    80.5 |    75.0 |    missing |       -24.0 |     +11.0 |     1 |
| fox            |    93.0 |    90.0 |    86.0 |          +3.0 |    10 |
| tiger          | missing | missing | missing |             - |     0 |
| mean of 1 sets |    93.0 |    90.0 |    86.0 |          +3.0 |     - |
"""  # noqa: E501 (lines of a page)


def test_the_page_shows_what_the_lines_say():
    text = page.render(made_lines())["defaults.md"]
    for expected in EXPECTED.strip().splitlines():
        assert expected in text.splitlines(), expected


def test_the_page_is_made_from_the_lines_alone_whatever_their_order(tmp_path):
    found = made_lines()
    for name, lines in (("once", found.values()), ("again", reversed(found.values()))):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "fits.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
        assert page.write(folder, folder / "docs") == [
            folder / "docs" / "defaults.md",
            folder / "docs" / "results" / "defaults.svg",
            folder / "docs" / "results" / "defaults_said.svg",
        ]
    for path in ("defaults.md", "results/defaults.svg", "results/defaults_said.svg"):
        assert (tmp_path / "once" / "docs" / path).read_bytes() == (tmp_path / "again" / "docs" / path).read_bytes()
    root = ET.parse(tmp_path / "once" / "docs" / "results" / "defaults.svg").getroot()
    assert "1 of 2 at most one point below" in root.attrib["aria-label"]


def test_the_page_of_the_documents_is_that_of_the_committed_results():
    pages = page.render(runner.read(ROOT / "experiments" / "results"))
    assert (ROOT / "docs" / "defaults.md").read_text("utf-8") == pages["defaults.md"], "unbag bench fits --render"


def test_the_command(fake, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runner.fill, "__kwdefaults__", {**runner.fill.__kwdefaults__, "load": lambda name: blobs()})
    words = "bench fits --set vehicle --size 4 --draws 2"
    done = CliRunner().invoke(app, [*words.split(), "--method", "network"])
    assert done.exit_code == 0, done.output
    assert len(runner.read(Path("results"))) == 4
    assert CliRunner().invoke(app, [*words.split(), "--method", "linear"]).exit_code == 1
    assert CliRunner().invoke(app, ["bench", "fits", "--set", "iris"]).exit_code == 2
    assert CliRunner().invoke(app, ["bench", "fits", "--render"]).exit_code == 0
    assert "missing" in Path("docs/defaults.md").read_text()
