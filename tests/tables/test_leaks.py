"""Columns that tell the answer, the row or the group are refused unless they are named; their clean twins are not."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from table_files import PEOPLE, WARDS, call, refuse, succeed, write

from unbag.diagnostics.leakage import find_coding
from unbag.tables import check_tables, make_plan

N_GROUPS, SIZE = 40, 4
RNG = np.random.default_rng(0)
Y = RNG.integers(0, 2, N_GROUPS * SIZE)
Y[: 12 * SIZE] = 0  # enough negative bags
GROUP = np.repeat(np.arange(N_GROUPS), SIZE)
X = RNG.normal(size=len(Y)) + 2 * Y
PAIRS = RNG.permuted(np.tile(np.arange(len(Y)), (60, 1)), axis=1)[:, :3]


def counts(y=Y, k=2):
    return np.stack([np.bincount(y[g == GROUP], minlength=k) for g in range(N_GROUPS)])


def lines(header, rows):
    return "\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n"


SOURCES = {
    "counts": (lines("group,ill,well", [(f"g{g}", a, b) for g, (a, b) in enumerate(counts())]), {}),
    "rounded": (
        lines("group,ill,well", [(f"g{g}", *(3 * np.rint(row / 3).astype(int))) for g, row in enumerate(counts())]),
        {"rounded_to": 3},
    ),
    "noisy": (
        lines("group,ill,well", [(f"g{g}", *row) for g, row in enumerate(counts() + RNG.laplace(size=(N_GROUPS, 2)))]),
        {"noise": "laplace:1"},
    ),
    "bags": (lines("group,positive", [(f"g{g}", int(b > 0)) for g, (_, b) in enumerate(counts())]), {}),
    "pairs": (lines("a,b,same", [(a, b, int(Y[a] == Y[b])) for a, b, _ in PAIRS]), {"n_classes": 2}),
    "ranks": (lines("a,b,lower", [(a, b, int(Y[a] < Y[b])) for a, b, _ in PAIRS]), {"n_classes": 2}),
    "triplets": (
        lines("a,b,c,closer", [(a, b, c, int(Y[a] == Y[b] != Y[c])) for a, b, c in PAIRS]),
        {"n_classes": 2, "aggregate": "triplet_comparison"},
    ),
}
WRONG = Y.copy()
WRONG[::5] ^= 1  # a feature that is right in four of five rows
SHUFFLED = RNG.permutation(len(Y))
NAMES = np.where(Y, "well", "ill")


def check(folder, source, column=None, name="new", **options):
    """Return the problems of people with a further column."""
    groups, own = SOURCES[source]
    rows = list(zip(range(len(Y)), [f"g{g}" for g in GROUP], X.round(4), strict=True))
    header = "id,group,x"
    if column is not None:
        header, rows = f"{header},{name}", [(*row, value) for row, value in zip(rows, column, strict=True)]
    people, file = write(folder / "people.csv", lines(header, rows)), write(folder / "groups.csv", groups)
    return check_tables(make_plan({"instances": people, "groups": file, **own, **options})).problems


LEAKS = {
    "class names": ("counts", NAMES, "160 of 160 values are names of classes ('ill', 'well')"),
    "class names in other letters": ("counts", [f" {one.upper()} " for one in NAMES], "are names of classes"),
    "class names of few rows": ("counts", [*NAMES[:80], *[""] * 80], "80 of 160 values are names of classes"),
    "other numbers": ("counts", 7 + 3 * Y, "give the counts of the classes in all 40 groups"),
    "class numbers beside rounded counts": ("rounded", 1 - Y, "counted in each group, fit the counts of the classes"),
    "missing means well": ("counts", np.where(Y, "", "x"), "give the counts of the classes in all 40 groups"),
    "several codes of a class": ("counts", [f"{y}{n % 3}" for n, y in enumerate(Y)], "less than once in 1e+09 times"),
    "the class in bags": ("bags", Y, "its maximum is at least 1 in all"),
    "the class turned in bags": ("bags", 5 - 2 * Y, "its minimum is at most 3 in all"),
    "a score in bags": ("bags", Y + RNG.uniform(0, 0.5, len(Y)).round(3), "its maximum is at least 1"),
    "words in bags": ("bags", np.where(Y, "bad", np.where(X > 0, "good", "fair")), "'bad' is in all"),
    "other words in bags": (
        "bags",
        np.where(Y, np.where(X > 1, "p", "q"), "fine"),
        "a value other than 'fine' is in all",
    ),
    "the class in pairs": ("pairs", np.where(Y, "p", "q"), "its 2 values, taken for classes, give all 60 observations"),
    "the class in triplets": ("triplets", Y, "its 2 values, taken for classes, give all 60 observations"),
    "a counter": ("counts", np.arange(160) + 17, "the column is a number that counts the 160 rows"),
    "ids in any order": ("counts", SHUFFLED, "a different whole number in every one of 160 rows, from 0 to 159,"),
    "codes": ("counts", [f"K{n}" for n in SHUFFLED], "the column has a different text in every one of 160 rows"),
    "the row id": ("counts", np.arange(160), "the column is the id of the row, as in column id"),
    "the group id": ("bags", [f"g{g}" for g in GROUP], "the column is the id of the group, as in column group"),
    "the group under another name": ("bags", RNG.permutation(40)[GROUP], "one value in each of 40 groups, and another"),
    "a mean of the group": ("counts", RNG.normal(size=40).round(5)[GROUP], "one value in each of 40 groups"),
}

CLEAN = {
    "a word beside rounded counts": ("rounded", np.random.default_rng(1).choice(["a", "b"], 160)),
    "nearly the class beside noisy counts": ("noisy", WRONG),
    "measured numbers": ("counts", RNG.normal(size=160).round(6)),  # another in every row
    "whole numbers": ("counts", RNG.integers(0, 90, 160)),
    "whole numbers of a wide range": ("counts", RNG.choice(10**7, 160, replace=False)),
    "whole numbers of any size": ("counts", RNG.choice(2**60, 160)),
    "nearly the class": ("counts", WRONG),
    "nearly the class in words": ("counts", np.where(WRONG, "b", "a")),
    "nearly the class in bags": ("bags", WRONG),
    "nearly the class in pairs": ("pairs", WRONG),
    "words": ("bags", RNG.choice(["a", "b", "c"], 160)),
    "yes and no": ("counts", RNG.choice(["yes", "no"], 160)),
}


@pytest.mark.parametrize("name", LEAKS)
def test_a_column_that_tells_the_answer_the_row_or_the_group_is_refused(name, tmp_path):
    source, column, sentence = LEAKS[name]
    (error,) = [one for one in check(tmp_path, source, column) if one.severity == "error"]
    assert sentence in error.message
    assert error.column == "new"
    assert error.message.endswith("; omit it with --exclude new, or use it as a feature with --trust new")
    for options in ({"trust": ["new"]}, {"features": ["x", "new"]}):
        problems = [one for one in check(tmp_path, source, column, **options) if one.column == "new"]
        assert [one.severity for one in problems if "was named" in one.message] == ["warning"]
        assert not [one for one in problems if one.severity == "error"]
    assert not [one for one in check(tmp_path, source, column, exclude=["new"]) if one.severity == "error"]


@pytest.mark.parametrize("name", CLEAN)
def test_a_clean_column_is_taken(name, tmp_path):
    source, column = CLEAN[name]
    assert [one for one in check(tmp_path, source, column) if one.severity != "note"] == []


@pytest.mark.parametrize("source", SOURCES)
def test_files_without_such_a_column_are_taken(source, tmp_path):
    assert [one for one in check(tmp_path, source) if one.severity != "note"] == []


def test_a_number_that_decides_a_few_bags_may_be_a_good_feature(tmp_path):
    people = lines("group,x", [(f"g{n // 3}", n // 3 % 2 + 0.01 * n) for n in range(36)])
    bags = lines("group,positive", [(f"g{g}", g % 2) for g in range(12)])
    plan = {"instances": write(tmp_path / "people.csv", people), "groups": write(tmp_path / "bags.csv", bags)}
    assert check_tables(make_plan(plan)).worst() == "clean"


def test_few_rows_tell_little(tmp_path):
    people = lines("id,x,town,kids", [("p", 1.5, "Bonn", 0), ("q", 2.5, "Ulm", 1), ("r", 0.5, "Rom", 2)])
    pairs = lines("a,b,same", [("p", "q", 0), ("q", "p", 0), ("p", "r", 1), ("r", "q", 0)] * 20)
    plan = {"instances": write(tmp_path / "people.csv", people), "groups": write(tmp_path / "pairs.csv", pairs)}
    problems = check_tables(make_plan({**plan, "n_classes": 3})).problems
    assert not [one for one in problems if one.severity == "error"]


def test_values_that_groups_share_describe_them(tmp_path):
    problems = check(tmp_path, "counts", np.array(["north", "south"])[GROUP % 2])
    assert [one.severity for one in problems] == ["warning"]
    assert "the same in all rows of each group" in problems[0].message


@pytest.mark.parametrize("name", ["class", "Y", "true-class"])
def test_the_name_of_a_column_tells_where_classes_have_common_names(name, tmp_path):
    few = np.where(np.arange(160) < 90, Y.astype(str), "")
    assert "are names of classes ('0', '1')" in str(check(tmp_path, "pairs", few, name))
    assert "names of classes" not in str(check(tmp_path, "pairs", few, "smoker"))


def test_small_files(tmp_path):
    """Twelve rows: the class is told from a feature, because an unrelated column has its tallies once in 228 times."""
    header, *rows = PEOPLE.splitlines()
    told = [1, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 0]
    people = "\n".join([f"{header},new", *(f"{row},{y}" for row, y in zip(rows, told, strict=True))]) + "\n"
    files = [write(tmp_path / "people.csv", people), write(tmp_path / "wards.csv", WARDS)]
    result = refuse("fit", *files, "--model", "linear", "--out", tmp_path / "run")
    assert "in all 4 groups, as chance does once in 228 times; omit it with --exclude new" in result.stderr
    assert not (tmp_path / "run").exists()
    result = succeed("fit", *files, "--model", "linear", "--out", tmp_path / "run", "--trust", "new")
    assert "it is used because it was named" in " ".join(result.stderr.split())
    assert "there is no column 'nwe', which --trust names" in call("check", *files, "--trust", "nwe").stdout


def test_codings_are_found_or_not():
    sizes = np.array([2, 2, 2])

    def find(codes, counts):
        return find_coding(np.array(codes), sizes, np.array(counts), np.array(counts))

    assert find([0, 1, 0, 1, 1, 1], [[1, 1], [2, 0], [0, 2]]) is None
    assert find([0, 0, 1, 1, 1, 1], [[2, 0], [2, 0], [2, 0]]) is None
    # Two values that always come together could stand for either class.
    assert find([0, 1, 2, 2, 0, 1], [[1, 1], [0, 2], [1, 1]]) is None


@given(st.lists(st.lists(st.integers(0, 2), min_size=2, max_size=3), min_size=3, max_size=5), st.data())
def test_codings_are_sets_of_values_whose_counts_are_within_bounds(rows, data):
    sizes, codes = np.array([len(row) for row in rows]), np.concatenate(rows)
    values, k = np.unique(codes), 3
    tallies = np.array([[row.count(value) for value in values] for row in rows])
    sets = [list(chosen) for n in range(1, len(values)) for chosen in combinations(range(len(values)), n)]
    counts = np.array([data.draw(st.lists(st.integers(0, 2), min_size=k, max_size=k)) for _ in rows])
    if sets and data.draw(st.booleans()):
        counts[:, 0] = tallies[:, data.draw(st.sampled_from(sets))].sum(1)
    found = find_coding(codes, sizes, counts, counts)
    gives = any(c.sum() > 0 and (tallies[:, s].sum(1) == c).all() for s in sets for c in counts.T)
    if np.linalg.matrix_rank(tallies) == len(values) and counts.any(0).sum() > 1:
        assert (found is not None and found.error == 0) == gives


MEASURED = {
    "measured": RNG.normal(size=len(Y)),
    "divides": RNG.random(len(Y)) + 2.5 * Y,
    "of the group": np.repeat(RNG.normal(size=N_GROUPS), SIZE),
    "nearly of the group": np.repeat(RNG.normal(size=N_GROUPS), SIZE) + np.where(np.arange(len(Y)) == 5, 0.5, 0),
    "few values": np.array([0.5, 1.25, 3.75])[RNG.integers(0, 3, len(Y))],
    "the answer": 0.5 + Y,
    "ids": np.arange(len(Y)) + 0.5,
    "shuffled ids": SHUFFLED + 0.5,
    "missing": np.where(np.arange(len(Y)) % 7 == 0, np.nan, RNG.normal(size=len(Y))),
    "large": 1e300 * RNG.normal(size=len(Y)),
}


@pytest.mark.parametrize("source", ["counts", "noisy", "bags", "triplets"])
def test_measured_columns_are_those_in_which_nothing_would_be_found(source, tmp_path, monkeypatch):
    columns = [",".join(map(str, row)) for row in zip(*MEASURED.values(), strict=True)]
    screened = check(tmp_path, source, columns, name=",".join(MEASURED))
    monkeypatch.setattr("unbag.tables.checking.measured_columns", lambda loaded, group: set())
    assert screened == check(tmp_path, source, columns, name=",".join(MEASURED))
    assert screened
