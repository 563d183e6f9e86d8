"""Counts as they are published: how each way of writing them is read, and what is said of it."""

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from code_blocks import find_blocks, run_block
from hypothesis import given
from hypothesis import strategies as st
from table_files import PEOPLE, WARDS, call, refuse, succeed, write, write_parquet

from unbag import LabelProportions
from unbag._utils.files import sha256
from unbag.data.columns import Table
from unbag.published import HIGH, LOW, MISSING, NOISE, SCALE, VALUE
from unbag.tables import TableError, make_plan, read_config
from unbag.tables.cells import BOUNDS, NUMBER, SUPPRESSED, UNREADABLE, read_cell
from unbag.tables.counts import CountTable
from unbag.tables.load import load_tables
from unbag.tables.options import Source
from unbag.tables.roles import SourceColumns


def observed(folder, groups, sizes=(3, 3, 3, 3), **options):
    """Read a file of groups w0, w1, ... that have so many rows."""
    rows = "".join(f"w{ward},{number % 7}\n" for ward, size in enumerate(sizes) for number in range(size))
    people = write(folder / "people.csv", f"ward,age\n{rows}")
    wards = write(folder / "wards.csv", groups)
    found = load_tables(make_plan({"instances": people, "groups": wards, **options}))
    (one,) = found.observed
    problems = [f"{problem.severity} {problem}".replace(f"{folder}/", "") for problem in found.problems]
    return one, problems


def bounds(one):
    return one.z[..., [LOW, HIGH]].astype(int).tolist()


def read_as(one):
    return [(read.column, read.read_as, read.cells) for read in one.read]


CELLS = {
    NUMBER: {
        "12": 12, " 1,234,567 ": 1234567, "1 234": 1234, "1\u00a0234.5": 1234.5, "1'234": 1234, "83.6 %": 83.6,
        "\u22123.5": -3.5, ".5": 0.5, "5e-3": 0.005,
    },
    BOUNDS: {
        "<5": (-np.inf, 5), "\u22644": (-np.inf, 4), "fewer than 5": (-np.inf, 5), "1-4": (1, 4), "1 \u2013 4": (1, 4),
        "1 to 4": (1, 4), "10+": (10, np.inf), ">= 10": (10, np.inf), "10 or more": (10, np.inf),
    },
    SUPPRESSED: dict.fromkeys(("suppressed", "*", "..", "c", "X", "n/a", "NA", " ", "nan", "[c]", "(D)", "..C")),
    UNREADABLE: dict.fromkeys(("-", "three", "5*", "1,23", "12,34.5", "0,500", "1e999")),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in CELLS.items() for text in texts])
def test_cells(kind, text):
    cell, expected = read_cell(text), CELLS[kind][text]
    low, high = (-np.inf, np.inf) if expected is None else np.broadcast_to(expected, 2)
    assert (cell.kind, cell.low, cell.high) == (kind, low, high)


@given(st.integers(-(10**12), 10**12), st.integers(0, 4), st.sampled_from(".,"))
def test_numbers_are_read_as_they_are_written(number, decimals, mark):
    value = number / 10**decimals
    other = "," if mark == "." else "."
    written = f"{value:,.{decimals}f}".replace(",", "T").replace(".", mark).replace("T", other)
    cell = read_cell(written, mark)
    assert (cell.kind, cell.low, cell.decimals) == (NUMBER, value, decimals)
    assert cell.separated == (abs(value) >= 1000)


def test_percentages_and_their_sign(tmp_path):
    for text in ("ward,ill,well\nw0,33.3,66.7\nw1,0,100\nw2,100,0\nw3,66.7,33.3\n",
                 "ward,ill,well\nw0,33.3%,66.7 %\nw1,0,100%\nw2,100%,0%\nw3,66.7%,33.3%\n"):  # fmt: skip
        one, problems = observed(tmp_path, text)
        assert problems == []
        assert one.z.tolist() == [[1, 2], [0, 3], [3, 0], [2, 1]]
        assert read_as(one) == [
            ("ward", "id of the group", 4),
            ("ill", "percentage, rounded to 0.1", 4),
            ("well", "percentage, rounded to 0.1", 4),
        ]


def test_shares_that_leave_several_counts_are_bounds_by_the_decimals_shown(tmp_path):
    one, problems = observed(tmp_path, "ward,ill,well\nw0,0.12,0.88\nw1,0.5,0.5\n", (1000, 20))
    assert bounds(one) == [[[115, 125], [875, 885]], [[10, 10], [10, 10]]]
    assert problems == [
        "note wards.csv: in 1 of 2 groups more than one count is possible (numbers are taken as rounded to 0.01); all "
        "of them are weighed"
    ]
    whole, _ = observed(tmp_path, "ward,ill,well\nw0,12,88\nw1,50,50\n", (1000, 20))
    assert bounds(whole) == bounds(one)


@given(
    st.lists(st.integers(0, 40), min_size=2, max_size=4).filter(sum),
    st.sampled_from(["proportions", "percentages", "counts"]),
    st.integers(0, 3),
)
def test_bounds_are_those_of_all_counts_that_would_be_written_so(counts, unit, decimals):
    total, step = sum(counts), 3 if unit == "counts" else 10.0**-decimals
    factor = {"counts": 1, "proportions": 1 / total, "percentages": 100 / total}[unit]
    shown = [round(round(count * factor / step) * step, 9) for count in counts]
    names = tuple(f"class {place}" for place in range(len(counts)))
    table = Table(Path("wards.csv"), pa.table({name: [f"{one:.3f}"] for name, one in zip(names, shown, strict=True)}))
    columns = SourceColumns("label_proportions", LabelProportions, True, group="ward", classes=names)
    how = Source(Path("wards.csv"), unit=unit, rounded_to=step)
    found = CountTable(".", table, columns, how, sizes=np.array([total]), ids=pa.array(["a"]))
    low, high = found.bounds(np.array([float(total)]))
    for place, one in enumerate(shown):
        fits = [c for c in range(-3, total + 4) if abs(c * factor - one) <= step / 2 + 1e-9]
        got = max(low[0, place], -3), min(high[0, place], total + 3)
        assert got == (fits[0], fits[-1])
        assert low[0, place] <= counts[place] <= high[0, place]


def test_decimal_commas_and_thousands(tmp_path):
    one, _ = observed(tmp_path, "ward;ill;well;n\nw0;0,250;0,750;1.200\nw1;0,5;0,5;1.000\n", (1200, 1000))
    assert one.z.tolist() == [[300, 900], [500, 500]]
    assert read_as(one)[1:] == [
        ("ill", "proportion, rounded to 0.001, decimal commas", 2),
        ("well", "proportion, rounded to 0.001, decimal commas", 2),
        ("n", "size of the group, thousands separators", 2),
    ]
    for text in ("ward;ill;well\nw0;1,100;100\nw1;1,000;0\n", "ward;ill;well\nw0;1.100;100\nw1;1.000;0\n"):
        one, problems = observed(tmp_path, text, (1200, 1000))  # the rows decide
        assert one.z.tolist() == [[1100, 100], [1000, 0]]
        assert problems == []


def test_sizes_decide_what_stands_before_decimals(tmp_path):
    one, _ = observed(tmp_path, "ward;ill;well;n\nw0;25%;75%;1.200\nw1;50%;50%;20\n", (1200, 20))
    assert bounds(one) == [[[294, 306], [894, 906]], [[10, 10], [10, 10]]]


@pytest.mark.parametrize("number", ["1,500", "1.500"])
def test_sizes_and_counts_are_whole_where_nothing_else_decides(number, tmp_path):
    few = {"sizes": (3, 4), "missing_members": True}
    one, _ = observed(tmp_path, f"ward;ill;well;n\nw0;20%;80%;{number}\nw1;50%;50%;800\n", **few)
    assert one.z[..., MISSING].sum(1) == pytest.approx([1497, 796])
    assert read_as(one)[-1] == ("n", "size of the group, thousands separators", 2)
    for rows, options in ((2000, {}), (3, {"missing_members": True}), (2000, {"noise": "geometric:2"})):
        one, _ = observed(tmp_path, f"ward;ill;well\nw0;{number};*\nw1;*;90\n", (rows, 100), **options)
        assert read_as(one)[1][1] == read_as(one)[3][1] + ", thousands separators"


@pytest.mark.parametrize(
    ("number", "options"),
    [("1,000", {}), ("2,500", {}), ("1,234", {"noise": "laplace:2"}), ("1,234", {"unit": "percentages"})],
)
def test_a_number_with_two_readings_is_refused_with_both(number, options, tmp_path):
    text = f"ward;ill;well\nw0;{number};*\nw1;10;*\n"
    one, problems = observed(tmp_path, text, (2000, 99), **options)
    assert one.z is None
    assert problems == [
        f"error wards.csv, row 1, column ill: '{number}' may be {number.replace(',', '')} or "
        f"{float(number.replace(',', '.')):g}, and no other cell decides; name the decimal separator with "
        "--decimal . or --decimal ,"
    ]


def test_bounds_and_what_is_unknown(tmp_path):
    one, problems = observed(
        tmp_path, "ward,few,some,many\nw0,<5,1-4,10+\nw1,,..,5\nw2,\u22642,suppressed,>3\nw3,4,*,6\n", (20, 9, 9, 11)
    )
    assert bounds(one) == [
        [[0, 4], [1, 4], [12, 19]],
        [[0, 4], [0, 4], [5, 5]],
        [[0, 2], [0, 5], [4, 9]],
        [[4, 4], [1, 1], [6, 6]],
    ]
    assert one.aggregate.name == "published_counts"
    assert read_as(one)[1:] == [
        ("few", "exact count", 1),
        ("few", "bounds: '<5', '\u22642'", 2),
        ("few", "unknown, 0 to the size of the group: blank", 1),
        ("some", "bounds: '1-4'", 1),
        ("some", "unknown, 0 to the size of the group: '..', 'suppressed', '*'", 3),
        ("many", "exact count", 2),
        ("many", "bounds: '10+', '>3'", 2),
    ]
    assert problems == ["note wards.csv: in 3 of 4 groups more than one count is possible; all of them are weighed"]


def test_one_blank_among_known_counts_is_known_too(tmp_path):
    one, problems = observed(tmp_path, "ward,ill,well\nw0,,2\nw1,0,3\nw2,3,\nw3,2,1\n")
    assert one.z.tolist() == [[1, 2], [0, 3], [3, 0], [2, 1]]
    assert (one.aggregate.name, problems) == ("label_proportions", [])


def test_suppressed_below_and_rounded_to(tmp_path):
    one, _ = observed(tmp_path, "ward,few,some,many\nw0,*,*,10\nw1,0,5,*\n", (13, 8), suppressed_below=5)
    assert bounds(one) == [[[0, 3], [0, 3], [10, 10]], [[0, 0], [5, 5], [3, 3]]]
    assert read_as(one)[2] == ("few", "below 5: '*'", 1)
    one, _ = observed(tmp_path, "ward,ill,well,n\nw0,5,10,15\nw1,0,10,10\n", (13, 8), rounded_to=5)
    assert bounds(one) == [[[3, 5], [8, 10]], [[0, 0], [8, 8]]]
    assert read_as(one)[1] == ("ill", "count, rounded to 5", 2)


def test_exact_counts_that_look_rounded_are_reported(tmp_path):
    wards = "".join(f"w{ward},{5 * (ward % 3)},{5 * (3 - ward % 3)}\n" for ward in range(15))
    _, problems = observed(tmp_path, f"ward,ill,well\n{wards}", (15,) * 15)
    (problem,) = problems
    assert problem.startswith(
        "warning wards.csv: all 25 counts are multiples of 5, but they are read as exact; if they"
    )
    assert observed(tmp_path, f"ward,ill,well\n{wards}", (15,) * 15, unit="counts", rounded_to=1)[1] == []
    assert observed(tmp_path, f"ward,ill,well\n{wards.replace('w0,0,15', 'w0,1,14')}", (15,) * 15)[1] == []


def test_noise_by_its_scale_by_epsilon_and_by_columns(tmp_path):
    text = "ward,ill,well,s,t\nw0,4.5,-1.25,2,3\nw1,*,7,4,5\n"
    for options, scales in (
        ({"noise": "laplace:2.5"}, [[2.5, 2.5], [0, 2.5]]),
        ({"noise": "laplace", "epsilon": 0.5, "sensitivity": 1}, [[2, 2], [0, 2]]),
        ({"epsilon": 0.25, "sensitivity": 1}, [[4, 4], [0, 4]]),
        ({"noise": "laplace", "noise_scale": ["s"]}, [[2, 2], [0, 4]]),
        ({"noise": "laplace", "noise_scale": ["s", "t"]}, [[2, 3], [0, 5]]),
    ):
        one, problems = observed(tmp_path, text, (4, 8), classes=["ill", "well"], **options)
        assert one.z[..., SCALE].tolist() == scales
        assert one.z[..., VALUE].tolist() == [[4.5, -1.25], [0, 7]]
        assert one.z[..., NOISE].tolist() == [[1, 1], [0, 1]]
        assert not [problem for problem in problems if problem.startswith("error")]
    assert read_as(one)[1] == ("ill", "count with laplace noise, scale in column s, t", 1)
    one, _ = observed(tmp_path, "ward,ill,well\nw0,4,-1\nw1,3,7\n", (4, 8), noise="geometric:2")
    assert read_as(one)[1] == ("ill", "count with geometric noise, scale 2", 2)


def test_members_without_a_row(tmp_path):
    text = "ward,ill,well,total\nw0,2,2,4\nw1,3,0,3\n"
    _, problems = observed(tmp_path, text, (3, 3))
    assert problems == [
        "error wards.csv, row 1, column total: group 'w0' has 4 members by this column, but 3 rows; if the others "
        "have no row, add --missing-members"
    ]
    for groups in (text, "ward,ill,well\nw0,2,2\nw1,3,0\n"):
        one, problems = observed(tmp_path, groups, (3, 3), missing_members=True)
        assert one.z[..., MISSING].tolist() == [[5 / 7, 2 / 7], [0, 0]]
        assert problems == [
            "note wards.csv: 1 member of 1 group has no row; their classes are assumed to follow the shares of "
            "all groups"
        ]


def test_bad_groups_are_dropped_by_name(tmp_path):
    text = "ward,ill,well\nw0,2,2\nw1,3,0\nw2,x1,2\nw3,1,2\n"
    _, problems = observed(tmp_path, text)
    assert len(problems) == 2
    one, problems = observed(tmp_path, text, drop_bad_groups=True)
    assert one.groups.ids == ["w1", "w3"]
    assert one.groups.members.tolist() == [3, 4, 5, 9, 10, 11]
    assert one.z.tolist() == [[3, 0], [1, 2]]
    assert problems == [
        "note wards.csv: 2 groups are left out, because of --drop-bad-groups: 'w2' ('x1' is not a count), 'w0' (the "
        "counts of group 'w0' add up to 4, but it has 3 rows)"
    ]


BAD = {
    "a percentage above 100": ("ward,ill,well\nw0,33.3,66.7\nw1,0,100\nw2,110,0\n", {},
        "row 3, column ill: 110 is more than 1"),
    "shares that do not add up": ("ward,ill,well\nw0,33,67\nw1,0,100\nw2,50,30\n", {},
        "row 3: the percentages of group 'w2' add up to 80, not to 100"),
    "counts that look rounded": ("ward,ill,well\nw0,3,0\nw1,3,3\nw2,0,3\n", {}, "row 2: .* up to 6, .* --rounded-to 3"),
    "crossed bounds": ("ward,ill,well\nw0,1,2\nw1,4-1,*\nw2,1,2\n", {}, "row 2, column ill: '4-1' has its bounds"),
    "an interval above the size": ("ward,ill,well\nw0,1,2\nw1,10+,*\nw2,1,2\n", {}, "row 2, column ill: 10 or more of"),
    "bounds that leave too little": ("ward,ill,well\nw0,1,2\nw1,<2,<2\nw2,1,2\n", {},
        "row 2: 0 to 2 members of group 'w1' are counted, but it has 3 members"),
    "a size below the rows": ("ward,ill,well,n\nw0,1,2,3\nw1,1,1,2\nw2,1,2,3\n", {"missing_members": True},
        "row 2, column n: group 'w1' has 2 members by this column, but 3 rows; the size cannot be smaller"),
    "a negative count": ("ward,ill,well\nw0,1,2\nw1,-1,4\nw2,1,2\n", {}, "column ill: -1 is negative; .* with --noise"),
    "a dash": ("ward,ill,well\nw0,1,2\nw1,-,3\nw2,1,2\n", {}, "row 2, column ill: '-' is 0 in some .*; write 0, or"),
    "a scale of zero": ("ward,ill,well,s\nw0,1,2,1\nw1,0,3,0\nw2,1,2,1\n", {"noise": "laplace", "noise_scale": ["s"]},
        "row 2, column s: 0 is not a scale of noise"),
    "fractions with whole noise": ("ward,ill,well\nw0,1,2\nw1,0.5,3\nw2,1,2\n", {"noise": "geometric:1"},
        "row 2, column ill: 0.5 is not a whole number"),
    "bounds with noise": ("ward,ill,well\nw0,1,2\nw1,<5,3\nw2,1,2\n", {"noise": "laplace:1"},
        "row 2, column ill: '<5' gives no information on a count with noise"),
    "a small count that should be suppressed": ("ward,ill,well\nw0,0,*\nw1,2,1\nw2,0,*\n", {"suppressed_below": 5},
        "row 2, column ill: 2 is shown, although counts below 5 are suppressed by --suppressed-below"),
    "no multiple": ("ward,ill,well\nw0,0,3\nw1,2,0\nw2,0,3\n", {"rounded_to": 3}, "ill: 2 is not a multiple of 3"),
    "some signs": ("ward,ill,well\nw0,33%,67\nw1,0%,100\nw2,0,1\n", {}, r"row 1, column ill: '33%' has a %, unlike 3"),
    "signs and another unit": ("ward,ill,well\nw0,33%,67%\nw1,0%,100%\nw2,0%,100%\n", {"unit": "counts"},
        "numbers have a %, but --unit is counts"),
    "no unit": ("ward,ill,well\nw0,3.5,6\nw1,1.5,3\nw2,0.5,1\n", {}, "neither whole counts, .* the first adds up to"),
    "noise on shares": ("ward,ill,well\nw0,33%,67%\nw1,0%,100%\nw2,0%,100%\n", {"noise": "laplace:1"},
        "--noise is about counts, but the numbers are percentages"),
    "words for classes": ("ward,ill,well,town\nw0,1,2,Bonn\nw1,1,2,Ulm\nw2,1,2,Ulm\n", {},
        "column town: a column of counts must contain numbers, got string, .*; if it does not count a class"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_counts_have_a_sentence(name, tmp_path):
    groups, options, sentence = BAD[name]
    one, problems = observed(tmp_path, groups, (3, 3, 3), **options)
    assert one.z is None
    errors = [problem for problem in problems if problem.startswith("error")]
    assert len(errors) == 1, errors
    assert re.search(rf"^error wards\.csv.*{sentence}", errors[0]), errors[0]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"noise": "laplace:0"}, "a colon and a positive scale, as in laplace:2.5; got 'laplace:0'"),
        ({"noise": "laplace:nan"}, "a positive scale"),
        ({"noise": "normal:1"}, "noise must be one of laplace, gaussian"),
        ({"noise": "laplace"}, "the scale of laplace noise must be given in one way"),
        ({"noise": "laplace:1", "epsilon": 1.0, "sensitivity": 1.0}, "must be given in one way"),
        ({"noise": "laplace", "epsilon": 1.0}, "--epsilon together with --sensitivity, by how much one person"),
        ({"epsilon": 1e-300, "sensitivity": 1.0}, "--epsilon 1e-300 with --sensitivity 1 is noise of scale 1e+300"),
        ({"epsilon": 1e300, "sensitivity": 1.0}, "is noise of scale 1e-300, which changes no count"),
        ({"noise": "laplace:1e12"}, "--noise laplace:1e12 is noise of scale 1e+12, which leaves no"),
        ({"noise": "laplace", "epsilon": 0.0, "sensitivity": 1.0}, "--epsilon must be a positive number, got 0"),
        ({"noise": "gaussian", "epsilon": 1.0, "sensitivity": 1.0}, "epsilon alone does not determine the scale of"),
        ({"epsilon": 1.0}, "--epsilon together with --sensitivity"),
        ({"sensitivity": 1.0}, "--sensitivity applies to noise; name its kind"),
        ({"noise_scale": ["s"]}, "--noise-scale applies to noise"),
        ({"noise": "laplace:1", "rounded_to": 5}, "--noise cannot be combined with --rounded-to"),
        ({"rounded_to": -5}, "--rounded-to must be a positive number, got -5"),
        ({"suppressed_below": 0}, "--suppressed-below must be a positive number"),
        ({"unit": "percent"}, "--unit must be one of counts proportions percentages and not 'percent'"),
        ({"decimal": ";"}, "--decimal must be one of . , and not ';'"),
    ],
)  # fmt: skip
def test_options_that_do_not_make_sense(options, sentence):
    with pytest.raises(TableError) as caught:
        make_plan({"instances": "people.csv", "groups": "wards.csv", **options})
    assert sentence in str(caught.value)


def test_scales_for_some_classes_are_refused(tmp_path):
    with pytest.raises(TableError, match="--noise-scale must name one column, or one for each of the 3 classes, got 2"):
        observed(tmp_path, "ward,few,some,many,s,t\nw0,1,1,1,1,1\n", (3,), noise="laplace", noise_scale=["s", "t"])


def test_numbers_of_parquet_are_read_alike(tmp_path):
    people = write_parquet(tmp_path / "people.parquet", {"ward": ["a"] * 5 + ["b"] * 4, "age": [*range(9)]})
    shares = {"ward": ["a", "b"], "ill": [0.2, None], "well": [0.8, 0.25]}
    wards = write_parquet(tmp_path / "wards.parquet", shares)
    one = load_tables(make_plan({"instances": people, "groups": wards, "unit": "proportions"})).observed[0]
    assert one.z.tolist() == [[1, 4], [3, 1]]
    counts = {"ward": ["a", "b"], "ill": [1, 3], "well": pa.nulls(2), "dead": pa.nulls(2)}
    wards = write_parquet(tmp_path / "wards.parquet", counts)
    one = load_tables(make_plan({"instances": people, "groups": wards})).observed[0]
    assert bounds(one) == [[[1, 1], [0, 4], [0, 4]], [[3, 3], [0, 1], [0, 1]]]


@pytest.mark.parametrize(
    ("yes", "no"), [("yes", "no"), ("TRUE", "FALSE"), ("j", "n"), ("ja", "nein"), ("Y", "N"), ("1", "no")]
)
def test_answers_in_words(yes, no, tmp_path):
    write(tmp_path / "people.csv", PEOPLE)
    bags = write(tmp_path / "bags.csv", f"ward,positive\nw0,{yes}\nw1,{no}\nw2,{yes}\nw3,{no}\n")
    one = load_tables(make_plan({"instances": tmp_path / "people.csv", "groups": bags})).observed[0]
    assert one.z.tolist() == [1, 0, 1, 0]
    assert read_as(one) == [
        ("ward", "id of the group", 4),
        ("positive", "answer: 1, yes or true, and 0, no or false", 4),
    ]


def test_options_are_read_from_a_file_beside_the_counts_or_named(tmp_path):
    people, wards = write(tmp_path / "people.csv", PEOPLE), write(tmp_path / "wards.csv", WARDS)
    options = {"instances": people, "groups": wards}
    assert make_plan(options).sources[0].noise is None
    other = write(tmp_path / "other.toml", 'noise = "laplace:3"\n')
    write(tmp_path / "wards.csv.published.toml", f'rounded_to = 3\nsha256 = "{sha256(wards)}"\n')
    assert make_plan(options).sources[0].rounded_to == 3
    assert make_plan({**options, "rounded_to": 2}).sources[0].rounded_to == 2
    assert make_plan({**options, "published": other}).sources[0].noise == "laplace:3"
    config = write(tmp_path / "fit.toml", 'published = "other.toml"\n')
    assert read_config(config) == {"published": str(other)}
    write(other, "epochs = 3\n")
    with pytest.raises(TableError, match=r"other\.toml: there is no setting 'epochs' of published counts"):
        make_plan({**options, "published": other})
    write(other, "epochs\n")
    with pytest.raises(TableError, match=r"other\.toml: the file is not valid TOML"):
        make_plan({**options, "published": other})
    with pytest.raises(FileNotFoundError, match=r"there is no file .*gone\.toml; check the name"):
        make_plan({**options, "published": tmp_path / "gone.toml"})
    write(other, "rounded_to = 'five'\n")
    with pytest.raises(TableError, match=r"other\.toml: rounded_to must be of type float or int, got 'five'"):
        make_plan({**options, "published": other})


def test_counts_of_which_nothing_is_known_cannot_be_learned_from(tmp_path):
    write(tmp_path / "people.csv", PEOPLE)
    write(tmp_path / "wards.csv", "ward,ill,well\nw0,*,\nw1,*,\nw2,<3,\nw3,2,1\n")
    result = call("check", tmp_path / "people.csv", tmp_path / "wards.csv")
    assert result.exit_code == 0, result.output  # one group tells something
    write(tmp_path / "wards.csv", "ward,ill,well\nw0,*,\nw1,*,\nw2,<3,\nw3,<3,>0\n")
    result = refuse("check", tmp_path / "people.csv", tmp_path / "wards.csv")
    assert re.search("a model that .* class 1 .*explains all 4 observations", " ".join(result.stdout.split()))


def test_the_table_of_the_page_on_official_statistics_is_read_as_it_says(tmp_path, monkeypatch):
    page = Path(__file__).parents[2] / "docs" / "official_statistics.md"
    monkeypatch.chdir(tmp_path)
    (line,) = find_blocks(page)
    run_block(page, line)
    result = succeed("check", "people.csv", "municipalities.csv", width=80)
    for read_as in ("percentage, rounded to 1", "size of the group, thousands separators", "'*'"):
        assert read_as in result.stdout
