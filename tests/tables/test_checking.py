"""What is suspicious about tables that can be read."""

import pytest
import torch
from table_files import PAIRS, PEOPLE, RANKS, WARDS, write

from unbag.persistence.run_folder import Run
from unbag.tables import check_tables, fit_tables, make_plan
from unbag.tables.load import load_tables

IDS = [line.split(",")[0] for line in PEOPLE.splitlines()[1:]]


def messages(folder, instances=PEOPLE, groups=WARDS, **options):
    people, wards = write(folder / "people.csv", instances), write(folder / "wards.csv", groups)
    checked = check_tables(make_plan({"instances": people, "groups": wards, **options}))
    return [f"{one.severity} {one}".replace(str(folder) + "/", "") for one in checked.problems]


def with_column(name, values):
    lines = PEOPLE.splitlines()
    return "\n".join([f"{lines[0]},{name}"] + [f"{a},{b}" for a, b in zip(lines[1:], values, strict=True)]) + "\n"


def test_clean_files_have_no_problems(tmp_path):
    assert messages(tmp_path) == []


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ([5] * 12, "warning people.csv, column new: the column is 5 in every row and contains no information"),
        (list("aaabbbaaaccc"), "warning people.csv, column new: the column is the same in all rows of each group"),
        (range(12), "error people.csv, column new: the column is a number that counts the 12 rows"),
        (IDS, "error people.csv, column new: the column is the id of the row, as in column id"),
        ([f"n{i}" for i in range(12)], "error people.csv, column new: the column has a different text in every"),
        (
            ["1.5", "x", *["2"] * 10],
            "warning people.csv, row 2, column new: the column is read as categories, although 92% of its values are "
            "numbers such as '1.5', but not those of 1 cell: 'x'; write numbers as in 1234.5 and leave other cells",
        ),
        (['"1,5"', '"2,5"'] * 6, "warning people.csv, column new: the column is read as categories"),
    ],
)
def test_suspicious_features(values, sentence, tmp_path):
    found = messages(tmp_path, with_column("new", values))
    found = [one for one in found if not one.startswith("note 4 groups can be compared in 3 ways")]
    assert len(found) == 1
    assert found[0].startswith(sentence)


def test_the_id_of_the_group_under_another_name(tmp_path):
    found = messages(tmp_path, with_column("new", [f"w{i // 3}" for i in range(12)]))
    assert found == [
        "error people.csv, column new: the column is the id of the group, as in column ward; "
        "omit it with --exclude new, or use it as a feature with --trust new"
    ]


def test_observations_that_tell_little(tmp_path):
    found = messages(tmp_path, groups="ward,ill,well,dead\nw0,1,2,0\nw1,0,3,0\nw2,3,0,0\nw3,2,1,0\n")
    assert found == [
        "warning wards.csv: none of the 4 groups has a member of class dead; the model can only learn the 2 of 3 "
        "classes that occur; leave the others out, or add groups that contain them"
    ]


def test_pairs_that_contradict_or_repeat_each_other(tmp_path):
    found = messages(tmp_path, groups=PAIRS + "p00,p01,0\np00,p11,0\n", n_classes=2)
    assert found[:2] == [
        "warning wards.csv, row 5: an earlier row has another answer for the same ids",
        "warning wards.csv: 1 row repeats an earlier one, and counts once more",
    ]


def test_many_wrong_rows_are_counted(tmp_path):
    groups = "ward,ill,well\n" + "".join(f"w{i},1,1\n" for i in range(4, 20))
    found = messages(tmp_path, groups=WARDS + groups.split("\n", 1)[1])
    assert len(found) == 6
    assert found[-1] == "error wards.csv, column ward: the same in 11 more rows"


def test_each_unmatched_id_has_its_number_of_rows_and_its_suggestion(tmp_path):
    people = PEOPLE.replace(",w0,", ",W0,").replace(",w1,", ",w1 ,").replace(",w2,", ",west,")
    found = messages(tmp_path, people)
    assert [problem for problem in found if problem.startswith("error people.csv")] == [
        "error people.csv, row 1, column ward: 'W0' (3 rows) is not in column ward of wards.csv; 'W0' here may be 'w0' "
        "there: write ids in the same way in both files, or fit with --tidy",
        "error people.csv, row 4, column ward: 'w1 ' (3 rows) is not in column ward of wards.csv; 'w1 ' here may be "
        "'w1' there: write ids in the same way in both files, or fit with --tidy",
        "error people.csv, row 7, column ward: 'west' (3 rows) is not in column ward of wards.csv; correct one of the "
        "files, or skip unmatched rows with --drop-unmatched",
    ]


def test_rows_that_were_left_out_are_part_of_the_advice_on_missing_members(tmp_path):
    found = messages(tmp_path, PEOPLE.replace("p00,w0,", "p00,W0,"), drop_unmatched=True)
    warning, error = sorted(found, key=lambda message: not message.startswith("warning"))[:2]
    assert "1 row is left out" in warning
    assert "'W0' here may be 'w0' there" in warning
    assert "the counts of group 'w0' add up to 3, but it has 2 rows" in error
    advice = "1 row was left out by --drop-unmatched and may belong here; if not, add --missing-members"
    assert advice in error


def test_relations_are_answers_to_one_question(tmp_path):
    people, ranks = write(tmp_path / "people.csv", PEOPLE), write(tmp_path / "ranks.csv", RANKS)
    one = load_tables(make_plan({"instances": people, "groups": ranks, "n_classes": 3})).observed[0]
    named = [[IDS[row] for row in pair] for pair in one.groups.to_tuples().tolist()]
    # p00 < p11, p11 > p00, p20 >= p21, p30 <= p12
    assert named == [["p00", "p11"], ["p00", "p11"], ["p20", "p21"], ["p12", "p30"]]
    assert one.z.tolist() == [1, 1, 0, 0]
    assert one.aggregate.relation == "<"


def test_proportions_become_counts(tmp_path):
    people = write(tmp_path / "people.csv", PEOPLE)
    for groups, counts in (
        ("ward,ill,well,size\nw0,0.33,0.67,3\nw1,0,1,3\nw2,1,0,3\nw3,0.67,0.33,3\n", [[1, 2], [0, 3], [3, 0], [2, 1]]),
        ("ward,ill,well\nw0,1,0\nw1,0,1\nw2,1,0\nw3,0,1\n", [[3, 0], [0, 3], [3, 0], [0, 3]]),
    ):
        wards = write(tmp_path / "wards.csv", groups)
        assert load_tables(make_plan({"instances": people, "groups": wards})).observed[0].z.tolist() == counts


def test_groups_by_day_and_rows_of_other_sets(tmp_path):
    days = PEOPLE.replace(",w", ",2020-01-0").replace("2020-01-0ard", "ward") + "p99,,1,Ulm\n"
    people = write(tmp_path / "people.csv", days)
    wards = write(tmp_path / "wards.csv", WARDS.replace("\nw", "\n2020-01-0"))
    pairs = {"file": write(tmp_path / "pairs.csv", PAIRS), "aggregate": "pairwise_similarity"}
    checked = check_tables(make_plan({"instances": people, "groups": wards, "also": [pairs]}))
    assert checked.worst() == "clean"
    assert "1 row is left out, first row 13" in str(checked.problems)


TWO = {"n_classes": 2}
ANSWERS = {2: "p00,p01,0\np00,p11,1\np20,p21,0\n", 3: "p00,p01,p02,0\np00,p11,p12,1\np20,p21,p22,0\n"}
"""Rows of two and of three members."""


@pytest.mark.parametrize(
    ("groups", "options", "twin"),
    [
        ("ward,negative\nw0,1\nw1,0\nw2,1\nw3,0\n", {}, "ward,positive\nw0,0\nw1,1\nw2,0\nw3,1\n"),
        (f"a,b,different\n{ANSWERS[2]}", TWO, "a,b,same\np00,p01,1\np00,p11,0\np20,p21,1\n"),
        (f"a,b,higher\n{ANSWERS[2]}", TWO, f"b,a,lower\n{ANSWERS[2]}"),
        (f"a,b,c,farther\n{ANSWERS[3]}", TWO | {"aggregate": "ordinal_triplet"}, f"a,c,b,closer\n{ANSWERS[3]}"),
    ],
)
def test_a_contrary_column_has_the_likelihood_of_its_twin(groups, options, twin, tmp_path):
    people = write(tmp_path / "people.csv", PEOPLE)
    logits = torch.randn(12, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = []
    for content in (groups, twin):
        file = write(tmp_path / "groups.csv", content)
        one = load_tables(make_plan({"instances": people, "groups": file, **options})).observed[0]
        found.append(one.aggregate.log_likelihood(logits, one.groups, one.z))
        notes = [problem.message for problem in one.problems]
        assert any("1 is read as" in note for note in notes) == (content == groups)
    assert torch.allclose(*found)


def test_a_fit_lists_each_finding_once(tmp_path):
    pairs = "a,b,same\np00,p01,1\np00,p11,0\np20,p21,1\np30,p12,0\n"
    files = {"instances": write(tmp_path / "people.csv", PEOPLE), "groups": write(tmp_path / "pairs.csv", pairs)}
    fitted = fit_tables(make_plan({**files, "n_classes": 2, "model": "linear", "jobs": 1}), Run(tmp_path / "run"))
    messages = [problem.message for problem in fitted.problems]
    assert len(messages) == len(set(messages))
    assert sum("classes" in message and "--names COLUMN" in message for message in messages) == 1
