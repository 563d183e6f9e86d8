"""Statistics of the comparison, against plain arithmetic."""

from __future__ import annotations

import re
import statistics
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from result_lines import trial

from unbag_experiments.claims import claims
from unbag_experiments.comparison import Key, Row, Selected, compare
from unbag_experiments.paper import PAPER, PaperCell
from unbag_experiments.plan import Cell, select
from unbag_experiments.provenance import machine_seconds, oldest_first
from unbag_experiments.standings import gaps, shortfalls

UCI = Cell("similarity_uci", "pairwise_similarity", "vehicle", "uum")
SEEDS = range(1000, 1004)


def cell(method: str, **changes: object) -> Cell:
    return Cell(**(vars(UCI) | {"method": method} | changes))


def figure(mean: float, std: float | None = 1.0, **changes: object) -> PaperCell:
    names = {"table": UCI.table, "problem": UCI.problem, "dataset": UCI.dataset, "method": "uum"}
    return PaperCell(**(names | {"mean": mean, "std": std, "uum_significantly": None} | changes))


def row(mean: float, paper: PaperCell | None) -> Row:
    return Row(Key(UCI.table, UCI.problem, UCI.dataset, "uum"), {"labels": Selected({0: mean})}, paper)


# Counts of correct answers among a thousand test instances, in percent.
accuracies = st.integers(0, 1000).map(lambda correct: correct / 10)


@given(st.dictionaries(st.integers(0, 100), accuracies, min_size=2))
def test_means_and_deviations(found):
    row = Row(Key("mil", "multiple_instance", "fox", "uum"), {"labels": Selected(found)})
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
    seeds = range(1000, 1005)
    lines = [trial(UCI, seed, 0.80 + seed % 10 / 100, groups=0.7) for seed in seeds]
    likelihood = zip(seeds, (0.75, 0.77, 0.76, 0.77, 0.75), strict=True)
    lines += [trial(cell("log_likelihood"), seed, accuracy) for seed, accuracy in likelihood]
    paper = (figure(70.0, method="log_likelihood", uum_significantly="better"), figure(82.5))
    found = compare(lines, paper, [UCI, cell("log_likelihood"), cell("supervised")])
    assert [row.key.method for row in found.rows] == ["uum", "log_likelihood", "supervised"]
    uum, likelihood, supervised = found.rows
    assert uum.accuracies == pytest.approx({1000: 80.0, 1001: 81.0, 1002: 82.0, 1003: 83.0, 1004: 84.0})
    assert (uum.mean, uum.std, uum.difference, uum.labels.mark) == (82.0, pytest.approx(1.5811, abs=1e-4), -0.5, None)
    assert uum.by["groups"].mean == 70.0
    assert (uum.trials, uum.planned, uum.seconds) == (5, 10, 5 * 7200)
    assert (uum.against_paper, likelihood.against_paper) == ("level", "better")
    assert (likelihood.paper, likelihood.difference, likelihood.labels.mark) == (paper[0], 6.0, "better")
    assert (likelihood.by["groups"].mark, likelihood.papers_mark) == ("worse", "better")
    assert (supervised.paper, supervised.mean, supervised.labels.mark, supervised.runs) == (None, None, None, ())
    assert (found.replaced, found.set_aside) == (0, ())


def test_the_interval_knows_how_much_splits_overlap():
    lines = [trial(UCI, seed, 0.80 + seed % 10 / 100) for seed in range(1000, 1005)]
    apart = [{**line, "rows": {"train": 300, "test": 0}} for line in lines]
    (row,), (other,) = (compare(found, (), [UCI]).rows for found in (lines, apart))
    low, high = row.labels.interval
    assert high - low == pytest.approx(2 * 2.77645 * 1.5811 * (1 / 5 + 1 / 3) ** 0.5, rel=1e-4)
    assert other.labels.interval[1] - other.labels.interval[0] < high - low


def test_many_tests_of_a_table_are_corrected_and_those_of_others_do_not_count():
    seeds = range(1000, 1005)
    names = ("msplice", "optdigits", "pendigits", "usps", "vehicle")
    planned = [cell(method, dataset=name) for name in names for method in ("uum", "log_likelihood")]
    # On one set the difference is clear if it is the only test, on the others there is none.
    better = {1000: 0.031, 1001: 0.01, 1002: 0.02, 1003: 0.03, 1004: 0.021}

    def lines(names):
        return [
            trial(one, seed, 0.8 + (better[seed] if one.method == "uum" and one.dataset == "msplice" else 0))
            for one in planned
            if one.dataset in names
            for seed in seeds
        ]

    def marks(names):
        rows = compare(lines(names), (), planned).rows
        return {row.key.dataset: row.labels.mark for row in rows if row.key.method == "log_likelihood"}

    assert marks(["msplice"])["msplice"] == "better"
    assert marks(names) == dict.fromkeys(names, "level")
    triplets = [cell("uum", table="triplet_uci", problem="triplet_comparison", dataset=name) for name in names[1:]]
    others = [replace(one, method="log_likelihood") for one in triplets]
    more = [trial(one, seed) for one in (*triplets, *others) for seed in seeds]
    rows = compare([*lines(["msplice"]), *more], (), [*planned, *triplets, *others]).rows
    assert [row.labels.mark for row in rows if row.key.dataset == "msplice"] == [None, "better"]


def test_four_trials_have_no_mark():
    lines = [trial(one, seed, 0.9 if one.method == "uum" else 0.5) for one in (UCI, cell("siamese")) for seed in SEEDS]
    assert [row.labels.mark for row in compare(lines, (), [UCI, cell("siamese")]).rows] == [None, None]


def test_the_latest_trial_counts():
    lines = [
        trial(UCI, accuracy=0.1, date="2026-01-31T12:00:00+02:00"),  # 10:00 in UTC
        trial(UCI, accuracy=0.3, date="2026-01-31T11:00:00+00:00"),
        trial(UCI, accuracy=0.2, date="2026-01-31T10:30:00"),  # taken as UTC
    ]
    for order in (lines, lines[::-1]):
        found = compare(order, (), [UCI])
        assert found.rows[0].accuracies == {1000: pytest.approx(30.0)}
        assert found.replaced == 2
        assert sum(origin.trials for origin in found.provenance) == 1
    same = [trial(UCI, accuracy=0.1), trial(UCI, accuracy=0.2)]
    assert compare(same, (), [UCI]).rows[0].accuracies == {1000: pytest.approx(20.0)}


@pytest.mark.parametrize(
    "changes", [{"plan": "older"}, {"golden": "other code"}, {"seed": 7}, {"seed": 1010}, {"table": "gone"}]
)
def test_trials_of_another_plan_or_code_or_with_other_seeds_are_set_aside(changes):
    lines = [trial(UCI), trial(UCI, 1001) | changes]
    found = compare(lines, (), [UCI])
    assert [row.trials for row in found.rows] == [1]
    assert found.set_aside == (lines[1],)
    assert sum(origin.trials for origin in found.provenance) == 1


def test_a_try_with_other_epochs_is_set_aside():
    short = replace(UCI, epochs=2)
    assert len(compare([trial(short)], (), [UCI]).set_aside) == 1


def test_trials_that_were_copied_are_counted_as_such():
    lines = [trial(UCI), trial(UCI, 1001, copied_from="elsewhere")]
    (row,) = compare(lines, (), [UCI]).rows
    assert (row.trials, row.copied, row.seconds) == (2, 1, 7200)


def test_protocols_are_apart_and_the_papers_figure_stands_with_its_own():
    bags = {"table": "mil", "problem": "multiple_instance", "dataset": "fox"}
    planned = [
        cell(method, protocol=protocol, **bags) for method in ("uum", "attention") for protocol in ("paper", "ten_fold")
    ]
    lines = [
        trial(one, 1000 + seed, 0.5 + seed / 10) for one in planned if one.protocol == "ten_fold" for seed in range(5)
    ]
    found = compare(lines, (figure(94.9, **bags),), planned)
    assert [(row.key.protocol, row.key.method) for row in found.rows] == [
        ("paper", "uum"), ("paper", "attention"), ("ten_fold", "uum"), ("ten_fold", "attention"),
    ]  # fmt: skip
    assert [row.paper is not None for row in found.rows] == [True, False, False, False]
    assert [len(row.accuracies) for row in found.rows] == [0, 0, 5, 5]
    assert [row.labels.mark for row in found.rows] == [None, None, None, "level"]


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
    folds = compare([trial(bags, 1000, n_groups=82), trial(bags, 1001, n_groups=83)], (), [bags])
    assert [len(row.accuracies) for row in folds.rows] == [2]


def test_what_others_bring_comes_last_and_is_not_lost():
    mine = trial(replace(UCI, dataset="moons"))
    found = compare([mine, trial(UCI)], PAPER, select(tables=["similarity_uci"]))
    assert [row.trials for row in found.rows if row.key.dataset == "moons"] == [1]
    assert found.rows[-1].key.table == "triplet_sizes"
    assert len({row.key for row in found.rows}) == len(found.rows)
    unknown = [{**mine, "method": "mine"}, {**mine, "problem": "ordinal_rank"}]
    assert compare(unknown, (), [UCI]).set_aside == tuple(unknown)


def test_what_computed_the_trials():
    lines = [
        trial(UCI, 1000 + 0, commit="late", date="2026-02-02"),
        trial(UCI, 1000 + 1, commit="early", date="2026-02-01"),
        trial(UCI, 1000 + 2, commit="early", date="2026-01-01T23:59:59-01:00"),
        trial(cell("log_likelihood"), commit=None, versions=None, date="2026-03-01"),
    ]
    found = compare(lines, (), [UCI, cell("log_likelihood")])
    shown = [(origin.run.commit, origin.trials, origin.first, origin.last) for origin in found.provenance]
    assert shown == [
        ("early", 2, "2026-01-02", "2026-02-01"),
        ("late", 1, "2026-02-02", "2026-02-02"),
        ("not recorded", 1, "2026-03-01", "2026-03-01"),
    ]
    assert [row.runs for row in found.rows] == [(1, 2), (3,)]
    assert found.provenance[0].seconds == 2 * 7200


def test_what_falls_short_of_the_paper():
    means = {"msplice": 95.0, "usps": 96.0, "vehicle": 70.0}
    paper = [figure(mean, dataset=dataset) for dataset, mean in means.items()]
    paper += [figure(99.0, dataset="vehicle", method="log_likelihood")]
    ours = {"msplice": 0.95, "usps": 0.955, "vehicle": 0.60}
    planned = [cell("uum", dataset=dataset) for dataset in means]
    lines = [trial(one, accuracy=ours[one.dataset]) for one in planned]
    rows = compare([*lines, trial(cell("log_likelihood"), accuracy=0.1)], paper, planned).rows
    vehicle, usps = shortfalls(rows)
    assert re.fullmatch(r"vehicle \([a-z ]+\) by 10.00, more than the paper's standard deviation", vehicle)
    assert re.fullmatch(r"usps \([a-z ]+\) by 0.50", usps)


def test_differences_from_the_log_likelihood():
    """The detectable difference is Student's quantile times the corrected standard error."""
    values = {"uum": [0.9, 0.92, 0.91, 0.93, 0.94], "log_likelihood": [0.9, 0.91, 0.92, 0.9, 0.9]}
    lines = [
        trial(cell(method), 1000 + seed, accuracy) for method, of in values.items() for seed, accuracy in enumerate(of)
    ]
    (gap,) = gaps(compare(lines, (), [cell(method) for method in values]).rows).values()
    differences = 100 * (np.array(values["uum"]) - values["log_likelihood"])
    overlap = lines[0]["rows"]["test"] / lines[0]["rows"]["train"]
    assert gap.differences == pytest.approx([differences.mean()])
    assert gap.detectable == pytest.approx(2.776445 * differences.std(ddof=1) * (1 / 5 + overlap) ** 0.5, rel=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"accuracy": 95.0}, r"seed 1003\): accuracy by labels must be a number between 0 and 1, got 95.0"),
        ({"accuracy": float("nan")}, "accuracy by labels must be a number between 0 and 1, got nan"),
        ({"groups": True}, "accuracy by groups must be a number between 0 and 1, got True"),
        ({"by": {"labels": {"accuracy": 1.0}}}, "accuracy by groups must be a number between 0 and 1, got None"),
        ({"seed": "3"}, "seed must be a whole number, got '3'"),
        ({"date": "yesterday"}, "date must be in ISO form, such as 2026-01-31T12:00:00, got 'yesterday'"),
        ({"date": 5}, "date must be in ISO form"),
    ],
)
def test_a_line_that_cannot_be_compared_is_named(changes, message):
    bad = trial(UCI, **({"seed": 1003} | changes))
    with pytest.raises(ValueError, match=f"line 2 of the results .table similarity_uci.*{message}"):
        compare([trial(UCI), bad], (), [UCI])


def test_a_line_without_what_is_needed_is_named():
    line = trial(UCI)
    del line["by"], line["protocol"]
    with pytest.raises(ValueError, match=r"line 1 .*has no by, protocol; mend it"):
        oldest_first([line])


def test_claims_count_what_holds():
    rows = compare([], PAPER, select()).rows
    assert claims(rows)[0] == "Run: 0 of 1810 planned trials, in 0 of 267 cells."
    assert "have not been compared" in claims(rows)[2]
    paper = [
        figure(82.0, 3.0),
        figure(70.0, method="log_likelihood", uum_significantly="better"),
        figure(70.0, method="siamese", uum_significantly="better"),
        figure(90.0, method="contrastive", uum_significantly="worse"),
    ]
    others = {"log_likelihood": -0.1, "siamese": 0.1, "contrastive": 0.0}
    planned = [UCI, *map(cell, others)]
    lines = [
        trial(one, seed, 0.8 + seed % 5 / 100 + others.get(one.method, 0), groups=0.7 + seed % 7 / 100)
        for one in planned
        for seed in range(1000, 1005)
    ]
    coverage, means, likelihood, marks, groups, beyond = claims(compare(lines, paper, planned).rows)
    assert coverage == "Run: 20 of 40 planned trials, in 4 of 4 cells."
    assert "for UUM in 1 of 1 cells and for the log-likelihood method in 1 of 1 cells" in means
    assert "over 1 cells with at least five trials of both: +10.00 points" in likelihood
    assert "significant in 1 of these cells" in likelihood
    assert "Of 2 comparisons in which" in marks
    assert "1 are significant here, 0 are not, and 1 are significant in the other direction" in marks
    assert "uncorrected t-test 1, 0 and 1." in marks
    assert "points on average over 1 cells" in groups
    assert beyond.endswith("in 0 of 0 cells.")


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 15)), min_size=1, max_size=6))
def test_every_moment_of_a_machine_counts_once(drawn):
    ran = [set(range(end - length, end)) for end, length in drawn]
    lines = [
        {"seconds": float(length), "date": datetime.fromtimestamp(1000 + end, UTC).isoformat()} for end, length in drawn
    ]
    expected = [sum(1 / sum(second in other for other in ran) for second in own) for own in ran]
    assert machine_seconds(lines) == pytest.approx(expected)
    # Trials beside each other are one process; other hardware is another machine.
    halves = [{**line, "seconds": line["seconds"] / 2, "beside": 2} for line in lines for _ in range(2)]
    elsewhere = [{**line, "hardware": "another"} for line in lines]
    found = machine_seconds([*halves, *elsewhere])
    assert found[: len(halves)] == pytest.approx([value / 2 for value in expected for _ in range(2)])
    assert found[len(halves) :] == pytest.approx(expected)
