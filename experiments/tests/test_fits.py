"""The comparison of default fits with single methods: groups, measures, lines of results, and the page."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from unbag.cli import app
from unbag_experiments.fits import cells, methods, page, runner
from unbag_experiments.fits.comparison import average, collect, is_near, judge_estimates, miscalibration, scopes, worst
from unbag_experiments.fits.grouping import GROUPINGS, MIN_GROUPS, count, group, n_training_rows, sizes_of, split
from unbag_experiments.fits.methods import Learned, learn
from unbag_experiments.fits.plan import METHODS, Cell, choices, effort, places, select
from unbag_experiments.fits.sets import SETS, Data, load
from unbag_experiments.work_claims import claim

ROOT = Path(__file__).parents[2]


def blobs(n=400, k=2, apart=4.0, seed=0):
    """Draw rows around a centre for each class; the third column is noise."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % k
    centres = apart * np.eye(3)[:k, :2]
    return Data(np.c_[centres[y] + rng.standard_normal((n, 2)), rng.standard_normal(n)].astype(np.float32), y)


def test_thresholds_are_chosen_by_half_of_the_tables():
    development = {name for name, declared in SETS.items() if declared.development}
    assert 2 * len(development) == len(SETS)
    assert {cell.set for cell in select()} == development
    assert {cell.set for cell in select(final=True)} == set(SETS)


@pytest.mark.parametrize(
    "name", ["breast_cancer", "wine", "digits", "two_classes", "letters", "blobs", "shells", "rare_1"]
)
def test_tables_of_scikit_learn_are_as_declared(name):
    data = load(name)
    assert len(data.X) == len(data.y) == SETS[name].rows
    assert set(data.y) == set(range(data.n_classes))


def test_a_table_with_an_unexpected_number_of_rows_is_refused(monkeypatch):
    monkeypatch.setitem(SETS, "wine", SETS["digits"])
    with pytest.raises(ValueError, match="wine should have 1797 rows, but has 178"):
        load("wine")


def test_words_become_indicators_and_empty_numbers_missing(tmp_path, monkeypatch):
    (tmp_path / "soybean.csv").write_text("a,b,c,class\n1,x,,no\n,y,,yes\n3,,,no\n")
    monkeypatch.setenv("UNBAG_DATA", str(tmp_path))
    monkeypatch.setitem(SETS, "soybean", type(SETS["wine"])(3, development=True))
    data = load("soybean")
    assert np.array_equal(data.X, [[1, 0, 1, 0], [np.nan, 0, 0, 1], [3, 1, 0, 0]], equal_nan=True)
    assert data.y.tolist() == [0, 1, 0]


def test_test_rows_have_the_shares_of_the_classes():
    y = np.repeat([0, 1, 2], [200, 120, 80])
    train, test = split(y, 3, 300)
    assert sorted([*train, *test]) == list(range(400))
    assert np.bincount(y[test]).tolist() == [50, 30, 20]
    assert not np.array_equal(test, split(y, 4, 300)[1])


@given(st.integers(8, 40), st.integers(1, 4), st.sampled_from(["similar", *GROUPINGS]), st.integers(0, 5))
def test_groups_have_their_size(n, size, grouping, seed):
    X = np.random.default_rng(n).standard_normal((n, 3))
    X[0, 0] = np.nan
    ids = group(X, size, grouping, seed)
    sizes = np.bincount(ids)
    assert len(ids) == n
    assert sizes.min() > 0
    if grouping != "clusters":
        assert sorted(sizes, reverse=True) == [size] * (n // size) + [n % size] * bool(n % size)
    assert np.array_equal(ids, group(X, size, grouping, seed))


def test_groups_of_similar_rows_have_more_varied_shares():
    data = blobs(n=800)

    def spread(grouping):
        """Return the variance of shares relative to that of independent rows, on average over draws."""
        ids = [group(data.X, 16, grouping, seed) for seed in range(10)]
        counts = [count(draw, data.y, 2) for draw in ids]
        return np.mean([(z[:, 0] / z.sum(1)).var() for z in counts]) / (0.25 / 16)

    assert spread("random") == pytest.approx(1, abs=0.3)
    assert min(spread(grouping) for grouping in ("column", "two columns", "clusters", "similar")) > 2


def test_strips_of_two_columns_are_narrow_in_both():
    X = np.random.default_rng(0).standard_normal((900, 2))
    first, second = np.mean([X[group(X, 9, "two columns", 0) == n].var(0) for n in range(100)], 0)
    assert max(first, second) < 0.5


def test_cells_are_selected_by_table_size_method_and_draw():
    assert len(collect({})) == sum(map(len, map(places, SETS)))
    assert all(n_training_rows(SETS[name].rows) // size >= MIN_GROUPS for name in SETS for size in sizes_of(name))
    chosen = select(["vehicle"], [64], ["linear"], draws=2)
    assert [(cell.grouping, cell.seed) for cell in chosen] == [("two columns", 0), ("two columns", 1)]
    efforts = [effort(cell) for cell in select(draws=1)]
    assert efforts == sorted(efforts, reverse=True)
    assert {cell.method for cell in select()} == {*METHODS} - {"release"}
    assert len({cell.key for cell in select(final=True)}) == len(select(final=True))
    assert choices()["method"] == METHODS
    for wrong in ({"sets": ["iris"]}, {"sizes": [5]}, {"methods": ["forests"]}):
        with pytest.raises(ValueError, match="must be one of"):
            select(**wrong)


def test_measures():
    probs = np.array([[0.9, 0.1], [0.6, 0.4], [0.7, 0.3], [0.2, 0.8]])
    found = cells.measure(probs, np.array([0, 0, 1, 1]))
    expected = {"accuracy": 0.75, "auc": 0.75, "confidence": 0.75}
    assert found == pytest.approx({**expected, "log_loss": -np.log([0.9, 0.6, 0.3, 0.8]).mean()})
    three = np.eye(3)[[0, 1, 2, 0]] * 0.7 + 0.1
    assert cells.measure(three, np.array([0, 1, 2, 1]))["accuracy"] == 0.75
    assert cells.measure(three, np.array([0, 1, 0, 1]))["auc"] is None


@pytest.mark.parametrize(("method", "at_least"), [("match", 0.9), ("ridge", 0.75)])
@pytest.mark.parametrize("size", [2, 40])
def test_methods_on_means_learn(method, at_least, size, monkeypatch):
    monkeypatch.setattr(methods, "MIN_STEPS", 300)
    data = blobs(k=3)
    data.X[0, 2] = np.nan
    ids = group(data.X, size, "random", seed=0)
    learned = learn(method, data.X, ids, count(ids, data.y, 3), data.X, seed=0)
    assert (learned.probs.argmax(1) == data.y).mean() > at_least
    assert np.allclose(learned.probs.sum(1), 1)


@pytest.mark.parametrize("method", ["linear", "kernel"])
def test_models_of_the_library_learn(method):
    found = cells.run(Cell("vehicle", method, 4, "random", 5), blobs(n=600))
    assert found["accuracy"] > 0.9
    assert list(found["candidates"]) == [method]
    assert found["held_out"] < 0
    assert found["cpu_seconds"] > 0


def test_an_estimator_receives_its_model_and_its_estimate_is_recorded(monkeypatch):
    received = {}

    class Estimator:
        estimated_accuracy_ = SimpleNamespace(value=0.75, low=0.7, high=0.8)

        def __init__(self, **parameters):
            received.update(parameters)

        def fit(self, X, counts, groups):
            assert len(groups) == len(counts)
            return self

        def predict_proba(self, X):
            return np.tile([0.25, 0.75], (len(X), 1))

    monkeypatch.setattr(methods, "AggregateClassifier", Estimator)
    found = cells.run(Cell("vehicle", "network", 4, "random", 5), blobs())
    assert received == {"model": "mlp", "random_state": 5, "n_jobs": 1}
    assert (found["accuracy"], found["confidence"]) == (67 / 133, 0.75)
    assert (found["estimated_accuracy"], found["interval"]) == (0.75, [0.7, 0.8])
    assert (found["groups"], found["rows"]) == (67, {"train": 267, "test": 133})
    del Estimator.estimated_accuracy_
    assert cells.run(Cell("vehicle", "linear", 4, "random"), blobs())["estimated_accuracy"] is None


def test_an_earlier_version_runs_in_its_own_process(tmp_path, monkeypatch):
    (tmp_path / "unbag.py").write_text(
        "import numpy as np\n__version__ = '0.1'\n"
        "class Groups:\n    from_ids = staticmethod(lambda ids: ids)\n"
        "class AggregateClassifier:\n    estimated_accuracy_ = 0.5\n    def __init__(self, random_state): pass\n"
        "    def fit(self, X, counts, groups): self.p = counts.sum(0) / counts.sum()\n"
        "    def predict_proba(self, X): return np.tile(self.p, (len(X), 1))\n"
    )
    monkeypatch.setenv(methods.RELEASE, str(tmp_path))
    learned = learn(
        "release", np.zeros((3, 1)), np.array([0, 0, 1]), np.array([[2, 0], [0, 1]]), np.ones((2, 1)), seed=0
    )
    assert learned.probs == pytest.approx(np.tile([2 / 3, 1 / 3], (2, 1)))
    assert learned.report == {"estimated_accuracy": 0.5, "interval": None, "version": "0.1"}


def test_a_method_that_is_not_available_is_explained(monkeypatch):
    monkeypatch.setattr(methods, "find_spec", lambda name: None)
    monkeypatch.delenv(methods.RELEASE, raising=False)
    assert "LightGBM is not installed" in methods.why_not("trees")
    assert methods.RELEASE in methods.why_not("release")
    assert methods.why_not("default") is None


@pytest.fixture
def fake(monkeypatch):
    """Let methods predict the shares of all classes at once; return the methods that were called."""
    called = []

    def guess(method, X, ids, counts, X_new, *, seed):
        called.append(method)
        if method == "linear":
            raise RuntimeError("no luck")
        return Learned(np.tile(counts.sum(0) / counts.sum(), (len(X_new), 1)))

    monkeypatch.setattr(cells, "learn", guess)
    monkeypatch.setattr(runner, "why_not", lambda method: "trees are missing" if method == "trees" else None)
    return called


def fill(wanted, folder, messages=None, **options):
    messages = [] if messages is None else messages
    return runner.fill(wanted, folder, **{"load": lambda name: blobs(), "tell": messages.append, **options})


def test_finished_cells_are_not_run_again(fake, tmp_path):
    messages = []
    wanted = select(["vehicle"], methods=["network", "default"], draws=1)
    assert fill(wanted[:3], tmp_path, messages) == {"done": 3}
    assert messages[0].startswith("3 cells are missing")
    assert messages[1].startswith("1 of 3: vehicle, groups of 4 (random), draw 0, default: accuracy ")
    assert fill(wanted, tmp_path, messages) == {"done": 3}
    assert len(fake) == 6
    lines = [json.loads(line) for line in (tmp_path / "fits.jsonl").read_text().splitlines()]
    assert {line["table"] for line in lines} == {"fits"}
    assert all(line["commit"] and line["versions"]["sklearn"] and line["hardware"] for line in lines)
    assert list(runner.read(tmp_path)) == [*wanted]
    assert fill(wanted, tmp_path, messages) == {}
    assert messages[-1] == "nothing is missing"


def test_a_failing_cell_does_not_end_the_rest(fake, tmp_path, caplog):
    messages = []
    wanted = select(["vehicle"], [4], ["linear", "trees", "network"], draws=1)
    assert fill(wanted, tmp_path, messages) == {"failed": 1, "done": 1, "trees are missing": 1}
    assert "failed: vehicle, groups of 4 (random), draw 0, linear: RuntimeError: no luck" in messages
    assert "no luck" in caplog.text


def test_a_table_that_cannot_be_loaded_is_named_once(fake, tmp_path):
    def fail(name):
        raise FileNotFoundError("put it there")

    messages = []
    ended = fill(select(["usps"], [4], ["network"], draws=2), tmp_path, messages, load=fail)
    assert ended == {"usps cannot be loaded: put it there": 2}
    assert messages.count("usps cannot be loaded: put it there") == 1


def test_cells_that_another_process_runs_are_left_to_it(fake, tmp_path):
    first, second = select(["vehicle"], [4, 16], ["network"], draws=1)
    with claim(tmp_path, first.key):
        assert fill([first, second], tmp_path) == {"done elsewhere": 1, "done": 1}
    assert list(runner.read(tmp_path)) == [second]


def test_no_cell_begins_that_would_exceed_the_budget(fake, tmp_path):
    wanted = select(["vehicle"], [4, 16], ["network"], draws=1)
    fill(wanted[:1], tmp_path)
    path = tmp_path / "fits.jsonl"
    line = json.loads(path.read_text())
    for seconds, ended in ((50.0, {"left for lack of time": 1}), (20.0, {"done": 1})):
        path.write_text(json.dumps({**line, "seconds": seconds}) + "\n")
        assert fill(wanted, tmp_path, budget="1m") == ended


def test_processes_share_the_cells(tmp_path):
    wanted = select(["wine"], methods=["ridge"], draws=2)
    ended = runner.fill_in_processes(wanted, tmp_path, jobs=2)
    assert ended["done"] == len(wanted)
    assert {*runner.read(tmp_path)} == {*wanted}


def line(cell, accuracy=0.8, **changes):
    made = {"table": "fits", **vars(cell), "accuracy": accuracy, "auc": None, "confidence": 0.9, "warnings": []}
    known = {"hardware": "one CPU", "versions": {"torch": "2.11"}, "commit": "0123abc", "date": "2026-01-31T12:00:00"}
    return {**made, "rows": {"train": 564, "test": 282}, "seconds": 2.0, "cpu_seconds": 2.5, **known, **changes}


def made_lines():
    """Return lines of all methods in two cells."""
    accuracies = {"default": 0.80, "match": 0.75, "ridge": 0.6, "linear": 0.7, "kernel": 0.7, "network": 0.79}
    accuracies |= {"trees": 0.805, "release": 0.78}
    found = {}
    for (method, accuracy), draw in product(accuracies.items(), (0, 1)):
        cell = Cell("vehicle", method, 64, "two columns", draw)
        found[cell] = line(cell, accuracy + 0.01 * draw, estimated_accuracy=0.86, interval=[0.84, 0.88])
    for method, accuracy in {**accuracies, "linear": 0.84, "default": 0.6}.items():
        cell = Cell("wine", method, 16, "column")
        found[cell] = line(cell, accuracy, estimated_accuracy=0.61, interval=[0.5, 0.7])
    return found


def test_the_default_is_compared_with_the_best_single_method():
    near, far = (place for place in collect(made_lines()) if place.fits)
    assert (near.accuracy("default"), far.accuracy("default")) == pytest.approx((80.5, 60))
    assert (near.to_best, far.to_best) == pytest.approx((-0.5, -24))
    assert near.difference("match") == pytest.approx(5)
    assert worst([near, far]) is far
    mean = average([near, far], is_near)
    assert mean == (50, 0, 100, 2)
    assert [average(part, is_near).value for part in scopes([near, far]).values()] == [50, 100, 0]
    assert average([], is_near) is None


def test_differences_are_means_over_draws_that_both_methods_have():
    found = made_lines()
    del found[Cell("vehicle", "default", 64, "two columns", 0)]
    place = next(place for place in collect(found) if place.fits)
    assert place.difference("trees") == pytest.approx(-0.5)
    assert replace(place, fits={name: place.fits[name] for name in ("default", "ridge")}).to_best is None
    assert place.accuracy("default") == pytest.approx(81)


def test_estimates_are_judged_with_the_noise_of_the_test_rows():
    cell = Cell("wine", "default", 16, "column")
    few, many = ({"rows": {"test": n}, "estimated_accuracy": 0.86, "interval": [0.85, 0.87]} for n in (100, 100_000))
    lines = [line(cell, 0.8, **few), line(cell, 0.8, **many), line(cell, 0.8)]
    found = judge_estimates(lines)
    assert (found.n_fits, found.n_estimated, found.covered, found.near) == (3, 2, 50, 0)
    assert (found.half_width, found.error, found.error_of_confidence) == pytest.approx((1, 6, 10))
    assert judge_estimates(lines[2:]) is None
    assert miscalibration(lines) == pytest.approx(10)
    assert miscalibration([]) is None


EXPECTED = """
1. Compared: 2 of 83 cells;
-24.0 points (wine, groups of 16, column).
4. One core, in 2 of 83 cells: median 2 seconds, 90 % of cells at most 2, at most 2.
| all | 2 | 50.0 (0.0 to 100.0) | -24.0 | -12.2 (-24.0 to -0.5) | -5.0 (-15.0 to 5.0) | -8.0 (-18.0 to 2.0) | 16.3 | 4.0 | 33 |
| vehicle       |    64 | two columns | 2 |    80.5 |  75.5 |  60.5 |   70.5 |   70.5 |    79.5 |  81.0 |  78.5 |        -0.5 |
| wine          |    16 |      column | 1 |    60.0 |  75.0 |  60.0 |   84.0 |   70.0 |    79.0 |  80.5 |  78.0 |       -24.0 |
"""  # noqa: E501 (lines of a page)


def test_the_page_shows_the_figures_of_the_lines(tmp_path):
    text = page.render(made_lines())["defaults.md"]
    for expected in EXPECTED.strip().splitlines():
        assert " ".join(expected.split()) in " ".join(text.split()), expected
    assert page.render(dict(reversed(made_lines().items())))["defaults.md"] == text
    summary = page.summarise(made_lines())
    assert "worst: -24.0, wine, groups of 16 (column)" in summary
    assert "default: 3 of 3 fits have an estimate; covered 33 %" in summary


def test_the_page_of_the_documents_is_that_of_the_committed_results():
    pages = page.render(runner.read(ROOT / "experiments" / "results"))
    assert (ROOT / "docs" / "defaults.md").read_text("utf-8") == pages["defaults.md"], "unbag bench fits --render"


def test_the_command(fake, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runner.fill, "__kwdefaults__", {**runner.fill.__kwdefaults__, "load": lambda name: blobs()})
    words = "bench fits --set vehicle --size 4 --draws 2"
    done = CliRunner().invoke(app, [*words.split(), "--method", "network"])
    assert done.exit_code == 0, done.output
    assert len(runner.read(Path("results"))) == 2
    assert CliRunner().invoke(app, [*words.split(), "--method", "linear"]).exit_code == 1
    assert CliRunner().invoke(app, ["bench", "fits", "--set", "iris"]).exit_code == 2
    assert "0 of 83 cells" in CliRunner().invoke(app, ["bench", "fits", "--summary"]).output
    assert CliRunner().invoke(app, ["bench", "fits", "--render"]).exit_code == 0
    assert "0 of 83 cells" in Path("docs/defaults.md").read_text()
