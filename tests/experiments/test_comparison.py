"""Statistics of the comparison, against plain arithmetic."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from unbag.baselines import METHODS
from unbag.experiments.comparison import Key, Row, compare, families, paired_test, shortfalls
from unbag.experiments.paper import PAPER, PaperCell
from unbag.experiments.plan import Cell, select
from unbag.experiments.provenance import oldest_first

UCI = Cell("similarity_uci", "pairwise_similarity", "vehicle", "uum")
CRITICAL = {1: 12.7062, 2: 4.30265, 3: 3.18245, 4: 2.77645}  # two-sided 5 % points of Student's t, from a printed table


def trial(cell: Cell = UCI, seed: int = 0, accuracy: float = 0.8, **changes: object) -> dict[str, object]:
    line = {
        "table": cell.table,
        "problem": cell.problem,
        "dataset": cell.dataset,
        "method": cell.method,
        "protocol": cell.protocol,
        "n_groups": cell.n_groups or 1692,
        "seed": seed,
        "accuracy": accuracy,
        "settings": {"model": cell.model, "epochs": METHODS[cell.method].settings(cell.settings).epochs},
        "seconds": 1.5,
        "hardware": "one CPU",
        "versions": {"torch": "2.11"},
        "commit": "abc",
        "date": "2026-01-31T12:00:00+00:00",
    }
    return line | changes


def cell(method: str, **changes: object) -> Cell:
    return Cell(**(vars(UCI) | {"method": method} | changes))


def figure(mean: float, std: float | None = 1.0, **changes: object) -> PaperCell:
    names = {"table": UCI.table, "problem": UCI.problem, "dataset": UCI.dataset, "method": "uum"}
    return PaperCell(**(names | {"mean": mean, "std": std, "uum_significantly": None} | changes))


def row(mean: float, paper: PaperCell | None) -> Row:
    return Row(Key(UCI.table, UCI.problem, UCI.dataset, "uum"), {0: mean}, paper)


# Counts of correct answers among a thousand test instances, in percent.
accuracies = st.integers(0, 1000).map(lambda correct: correct / 10)


@given(st.lists(st.tuples(accuracies, accuracies), min_size=2, max_size=5))
def test_the_paired_test_is_students(pairs):
    differences = [ours - other for ours, other in pairs]
    spread = statistics.stdev(differences)
    assume(spread > 1e-6)
    t = statistics.mean(differences) / (spread / len(pairs) ** 0.5)
    critical = CRITICAL[len(pairs) - 1]
    assume(abs(abs(t) - critical) > 1e-3)
    expected = "level" if abs(t) < critical else "better" if t > 0 else "worse"
    ours, others = ({seed: pair[side] for seed, pair in enumerate(pairs)} for side in (0, 1))
    assert paired_test(ours, others) == expected


@given(st.dictionaries(st.integers(0, 6), accuracies), st.dictionaries(st.integers(0, 6), accuracies))
def test_only_common_seeds_count_and_sides_can_be_exchanged(ours, others):
    common = ours.keys() & others.keys()
    found = paired_test(ours, others)
    assert (found is None) == (len(common) < 2)
    assert found == paired_test({seed: ours[seed] for seed in common}, {seed: others[seed] for seed in common})
    opposite = {"better": "worse", "worse": "better", "level": "level", None: None}
    assert paired_test(others, ours) == opposite[found]


def test_the_paired_test_pairs():
    # Seeds differ much, methods little but always in the same way: only pairs show it.
    ours = {0: 60.2, 1: 70.1, 2: 80.3, 3: 90.2}
    others = {3: 89.0, 2: 79.0, 1: 69.0, 0: 59.0}
    assert paired_test(ours, others) == "better"
    assert paired_test(ours, dict(zip(others, sorted(others.values()), strict=True))) == "level"


@pytest.mark.parametrize(
    ("shift", "expected"), [(0.0, "level"), (0.1, "better"), (-0.1, "worse"), (1e-13, "level"), (-1e-13, "level")]
)
def test_equal_differences_leave_nothing_to_divide_by(shift, expected):
    others = {0: 97.1, 1: 97.3, 2: 10.7, 3: 33.3}
    assert paired_test({seed: value + shift for seed, value in others.items()}, others) == expected


@given(st.dictionaries(st.integers(0, 100), accuracies, min_size=2))
def test_means_and_deviations(found):
    row = Row(Key("mil", "multiple_instance", "fox", "uum"), found)
    assert row.mean == pytest.approx(statistics.mean(found.values()), abs=0.005 + 1e-9)
    assert row.std == pytest.approx(statistics.stdev(found.values()))
    assert row.difference is None
    assert row.standing is None


@pytest.mark.parametrize(
    ("mean", "std", "standing"),
    [
        (97.02, 0.13, "reached"),
        (97.0151, 0.13, "reached"),  # shown as 97.02, so it is level
        (97.01, 0.13, "within"),
        (96.89, 0.13, "within"),
        (96.88, 0.13, "below"),
        (97.01, None, "below"),
        (97.02, None, "reached"),
    ],
)
def test_standing_is_judged_on_what_is_shown(mean, std, standing):
    assert row(mean, figure(97.02, std)).standing == standing


def test_a_cell_that_was_not_run_has_no_standing():
    missing = Row(Key(UCI.table, UCI.problem, UCI.dataset, "uum"), {}, figure(97.0))
    assert (missing.mean, missing.std, missing.difference, missing.standing) == (None, None, None, None)


def test_trials_stand_beside_the_paper():
    lines = [trial(UCI, seed, 0.80 + seed / 100) for seed in range(3)]
    lines += [trial(cell("log_likelihood"), seed, accuracy) for seed, accuracy in enumerate((0.75, 0.77, 0.76))]
    paper = (figure(70.0, method="log_likelihood", uum_significantly="better"), figure(81.5))
    found = compare(lines, paper, [UCI, cell("log_likelihood"), cell("supervised")])
    assert [row.key.method for row in found.rows] == ["uum", "log_likelihood", "supervised"]
    uum, likelihood, supervised = found.rows
    assert uum.accuracies == pytest.approx({0: 80.0, 1: 81.0, 2: 82.0})
    assert (uum.mean, uum.std, uum.difference, uum.mark) == (81.0, pytest.approx(1.0), -0.5, None)
    assert (likelihood.paper, likelihood.difference, likelihood.mark) == (paper[0], 6.0, "better")
    assert (supervised.paper, supervised.mean, supervised.mark, supervised.runs) == (None, None, None, ())
    assert (found.replaced, found.set_aside) == (0, 0)


def test_the_latest_trial_counts():
    lines = [
        trial(accuracy=0.1, date="2026-01-31T12:00:00+02:00"),  # 10:00 in UTC
        trial(accuracy=0.3, date="2026-01-31T11:00:00+00:00"),
        trial(accuracy=0.2, date="2026-01-31T10:30:00"),  # taken as UTC
    ]
    for order in (lines, lines[::-1]):
        found = compare(order, (), [UCI])
        assert found.rows[0].accuracies == {0: pytest.approx(30.0)}
        assert found.replaced == 2
        assert sum(origin.trials for origin in found.provenance) == 1
    same = [trial(accuracy=0.1), trial(accuracy=0.2)]
    assert compare(same, (), [UCI]).rows[0].accuracies == {0: pytest.approx(20.0)}


def test_trials_of_another_length_or_size_are_set_aside():
    image = Cell("llp_benchmark", "label_proportions", "mnist", "uum", n_groups=30_000)
    lines = [trial(settings={"epochs": 1}), trial(image, n_groups=10), trial(image, seed=1)]
    found = compare(lines, (), [UCI, image])
    assert {row.key.dataset: len(row.accuracies) for row in found.rows} == {"vehicle": 0, "mnist": 1}
    assert (found.set_aside, found.replaced) == (2, 0)


def test_protocols_are_apart_and_the_papers_figure_stands_with_its_own():
    bags = {"table": "mil", "problem": "multiple_instance", "dataset": "fox"}
    planned = [
        cell(method, protocol=protocol, **bags) for method in ("uum", "attention") for protocol in ("paper", "ten_fold")
    ]
    lines = [trial(one, seed, 0.5 + seed / 10) for one in planned if one.protocol == "ten_fold" for seed in (0, 1)]
    found = compare(lines, (figure(94.9, **bags),), planned)
    assert [(row.key.protocol, row.key.method) for row in found.rows] == [
        ("paper", "uum"), ("paper", "attention"), ("ten_fold", "uum"), ("ten_fold", "attention"),
    ]  # fmt: skip
    assert [row.paper is not None for row in found.rows] == [True, False, False, False]
    assert [len(row.accuracies) for row in found.rows] == [0, 0, 2, 2]
    assert [row.mark for row in found.rows] == [None, None, None, "level"]


def test_numbers_of_groups_tell_cells_apart_where_a_table_compares_them():
    sizes = {"table": "similarity_sizes", "dataset": "cifar10"}
    paper = [figure(mean, None, n_groups=groups, **sizes) for mean, groups in ((30.0, 10_000), (60.0, 60_000))]
    planned = [cell("uum", n_groups=groups, **sizes) for groups in (60_000, 10_000)]
    found = compare([trial(planned[0], accuracy=0.61)], paper, planned)
    assert [(row.key.n_groups, row.mean, row.difference) for row in found.rows] == [
        (10_000, None, None), (60_000, 61.0, 1.0),
    ]  # fmt: skip
    # Elsewhere they may differ from trial to trial, as sizes of folds do.
    bags = Cell("mil", "multiple_instance", "fox", "uum", "ten_fold")
    folds = compare([trial(bags, 0, n_groups=82), trial(bags, 1, n_groups=83)], (), [bags])
    assert [len(row.accuracies) for row in folds.rows] == [2]


def test_what_others_bring_comes_last_and_is_not_lost():
    mine = trial(method="mine", dataset="moons")
    found = compare([mine, trial(table="own"), trial()], PAPER, select(tables=["similarity_uci"]))
    assert found.rows[-1].key.table == "own"
    assert [row.key.method for row in found.rows if row.key.dataset == "moons"] == ["mine"]
    assert len({row.key for row in found.rows}) == len(found.rows)


def test_what_computed_the_trials():
    lines = [
        trial(seed=0, commit="late", date="2026-02-02"),
        trial(seed=1, commit="early", date="2026-02-01"),
        trial(seed=2, commit="early", date="2026-01-01T23:59:59-01:00", hardware="one CPU"),
        trial(cell("log_likelihood"), seed=0, commit=None, versions=None, date="2026-03-01"),
    ]
    found = compare(lines, (), [UCI, cell("log_likelihood")])
    shown = [(origin.run.commit, origin.trials, origin.first, origin.last) for origin in found.provenance]
    assert shown == [
        ("early", 2, "2026-01-02", "2026-02-01"),
        ("late", 1, "2026-02-02", "2026-02-02"),
        ("not recorded", 1, "2026-03-01", "2026-03-01"),
    ]
    assert [row.runs for row in found.rows] == [(1, 2), (3,)]
    assert found.provenance[0].seconds == 3.0


def test_the_papers_families_have_the_cells_they_should():
    planned = select()
    found = {family.name: family for family in families(compare([], PAPER, planned).rows)}
    assert {name: family.cells for name, family in found.items()} == {
        "UCI": 15, "multiple instances": 5, "MNIST family": 9, "CIFAR-10": 3, "SVHN": 3, "no warm-up": 5,
        "training-set sizes": 10,
    }  # fmt: skip
    assert all(family.run == family.reached == family.within == 0 for family in found.values())


def test_families_and_what_falls_short():
    means = {"msplice": 95.0, "usps": 96.0, "vehicle": 70.0}
    paper = [figure(mean, dataset=dataset) for dataset, mean in means.items()]
    paper += [figure(99.0, dataset="vehicle", method="log_likelihood")]
    ours = {"msplice": 0.95, "usps": 0.955, "vehicle": 0.60}
    planned = [cell("uum", dataset=dataset) for dataset in means]
    lines = [trial(one, accuracy=ours[one.dataset]) for one in planned]
    rows = compare([*lines, trial(cell("log_likelihood"), accuracy=0.1)], paper, planned).rows
    (uci,) = families(rows)
    assert (uci.name, uci.cells, uci.run, uci.reached, uci.within) == ("UCI", 3, 3, 1, 2)
    assert [(row.key.dataset, row.difference) for row in shortfalls(rows)] == [("vehicle", -10.0), ("usps", -0.5)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"accuracy": 95.0}, r"seed 3\): accuracy must be a number between 0 and 1, got 95.0"),
        ({"accuracy": float("nan")}, "accuracy must be a number between 0 and 1, got nan"),
        ({"accuracy": True}, "accuracy must be a number between 0 and 1, got True"),
        ({"seed": "3"}, "seed must be a whole number, got '3'"),
        ({"date": "yesterday"}, "date must be in ISO form, such as 2026-01-31T12:00:00, got 'yesterday'"),
        ({"date": 5}, "date must be in ISO form"),
    ],
)
def test_a_line_that_cannot_be_compared_is_named(changes, message):
    bad = trial(**({"seed": 3} | changes))
    with pytest.raises(ValueError, match=f"line 2 of the results .table similarity_uci.*{message}"):
        compare([trial(), bad], (), [UCI])


def test_a_line_without_what_is_needed_is_named():
    line = trial()
    del line["accuracy"], line["protocol"]
    with pytest.raises(ValueError, match=r"line 1 .*has no accuracy, protocol; mend it"):
        oldest_first([line])
