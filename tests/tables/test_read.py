"""Files to tables."""

import gzip

import pyarrow as pa
import pytest
from table_files import BAGS, PAIRS, PEOPLE, WARDS, write, write_parquet

from unbag.persistence.run_folder import Run
from unbag.tables import TableError, check_tables, files, fit_tables, make_plan, read_table
from unbag.tables.files import open_table, parse_text


def stream(path, columns, types):
    """Read a CSV file piece by piece and convert some columns, as predictions do."""
    rows = 0
    with open_table(path) as file:
        for piece in file.stream(columns):
            for name, kind in types.items():
                parse_text(piece.column(name).combine_chunks(), kind, path, name, rows)
            rows += len(piece)


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_delimiters_marks_and_compression(delimiter, tmp_path):
    content = "id,x\n007,1\n008,2\n".replace(",", delimiter)
    expected = {"id": ["007", "008"], "x": [1, 2]}
    for name, written in (
        ("plain.csv", content.encode()),
        ("windows.csv", content.replace("\n", "\r\n").encode("utf-8-sig")),
        ("packed.csv.gz", gzip.compress(content.encode())),
    ):
        assert read_table(write(tmp_path / name, written), as_text=["id"]).data.to_pydict() == expected


def test_parquet_is_known_by_its_content_and_text_may_hold_lines(tmp_path):
    assert read_table(write_parquet(tmp_path / "people.data", {"x": [1]})).data.to_pydict() == {"x": [1]}
    text = read_table(write(tmp_path / "text.csv", 'x,note\n1,"one\ntwo"\n')).data.to_pydict()
    assert text == {"x": [1], "note": ["one\ntwo"]}


@pytest.mark.parametrize("last", ["2.5", "", "none", "1e400"])
def test_types_of_many_columns_are_those_of_few(last, tmp_path, monkeypatch):
    columns = {"id": ("1.5", "007"), "x": ("-1.5", last), "y": ("1", "2.5"), 'a "b"\nc': ("0.5", "1"), "z": ("", "1.0")}
    header = ",".join('"' + name.replace('"', '""') + '"' for name in columns)
    content = "\n" + "\n".join([header, *(",".join(row) for row in zip(*columns.values(), strict=True))]) + "\n"
    path = write(tmp_path / "people.csv", content)
    few = read_table(path, as_text=["id"]).data
    monkeypatch.setattr(files, "BLOCK_SIZE", 64)  # as if the header were longer than that
    many = read_table(path, as_text=["id"]).data
    assert many.equals(few)
    assert many.column_names == list(columns)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ('id,x,note\na,1,fine\nb,2,"open\nc,3,lost\n', "row 2: a quotation mark is opened here and never closed"),
        ("id,x,note\na,1,K\xf6ln\n", "line 2 is not written in UTF-8"),
        ("id,x,note\na,1,fine\nb,zwei,fine\n", "row 2, column x: the column held numbers .* but 'zwei' here"),
        ("id,x,note\na,1,fine\nb,2\n", "row 2: the row has 2 values"),
    ],
)
@pytest.mark.parametrize("threads", [1, 2])  # with one, Arrow names the row in another way than with several
def test_a_stream_is_refused_like_a_whole_file(content, sentence, threads, tmp_path):
    path = write(tmp_path / "people.csv", content.encode("latin-1"))
    before = pa.cpu_count()
    pa.set_cpu_count(threads)
    try:
        with pytest.raises(TableError, match=sentence):
            stream(path, ["id", "x"], {"x": pa.float64()})
    finally:
        pa.set_cpu_count(before)


def test_the_row_of_a_bad_number_is_found_far_down(tmp_path, monkeypatch):
    monkeypatch.setattr("unbag.tables.files.BLOCK_SIZE", 1 << 12)  # so that there are several pieces
    lines = [f"{n},{n}.5,{'NA' if n % 7 else ''}" for n in range(3000)]
    lines[2345] = "2345,two,NA"
    lines[2999] = "2999,three,NA"
    path = write(tmp_path / "people.csv", "\n".join(["id,x,y", *lines]) + "\n")
    with pytest.raises(TableError, match=r"people\.csv, row 2346, column x: .* but 'two' here; write numbers"):
        stream(path, ["id", "x", "y"], {"x": pa.float64(), "y": pa.float64()})


def test_a_row_that_is_too_long_far_below_mixed_values(tmp_path, monkeypatch):
    monkeypatch.setattr("unbag.tables.files.BLOCK_SIZE", 1 << 12)
    lines = [f"{n},{n if n < 2000 else 'word'}" for n in range(3000)]
    lines[2345] += ",9"
    path = write(tmp_path / "people.csv", "\n".join(["id,x", *lines]) + "\n")
    with pytest.raises(TableError, match=r"row 2346: the row has 3 values, but the header has 2"):
        read_table(path)


def test_values_that_are_neither_true_nor_false(tmp_path):
    path = write(tmp_path / "people.csv", "x\ntrue\nmaybe\n")
    with pytest.raises(TableError, match=r"row 2, column x: the column held true and false .* but 'maybe' here"):
        stream(path, ["x"], {"x": pa.bool_()})


def plan(folder, instances=PEOPLE, groups=WARDS, **options):
    people, wards = write(folder / "people.csv", instances), write(folder / "groups.csv", groups)
    return make_plan({"instances": people, "groups": wards, "model": "mlp", "epochs": 1, **options})


def test_names_of_classes_that_do_not_fit(tmp_path):
    checked = check_tables(plan(tmp_path, classes=["ill", "ill"]))
    assert "--classes must name different classes, got ill, ill" in str(checked.problems[0])
    checked = check_tables(plan(tmp_path, PEOPLE.replace("town", "label"), PAIRS))
    assert "with --classes; column label has 2" in str(checked.problems[0])


def test_labels_are_optional_and_may_be_left_out(tmp_path):
    labelled = PEOPLE.replace("town", "label").replace("Ulm", "").replace("Bonn", "")
    learned = fit_tables(plan(tmp_path, labelled, BAGS), Run(tmp_path / "run"))
    assert learned.summary["labels"] is None
    other = plan(tmp_path, PEOPLE.replace("town", "label"), BAGS)
    assert check_tables(other).worst() == "error"
    assert check_tables(plan(tmp_path, PEOPLE.replace("town", "label"), BAGS, exclude=["label"])).worst() == "clean"


def test_labels_that_cannot_name_classes(tmp_path):
    nobody = PEOPLE.replace("Ulm", "").replace("Bonn", "")
    with pytest.raises(TableError, match="column town: no row has a class to name the classes by"):
        fit_tables(plan(tmp_path, nobody, PAIRS, n_classes=2, names="town"), Run(tmp_path / "run"))
    with pytest.raises(TableError, match="column town: each of the interchangeable classes needs a labelled row"):
        fit_tables(plan(tmp_path, PEOPLE, PAIRS, n_classes=3, names="town"), Run(tmp_path / "other"))
