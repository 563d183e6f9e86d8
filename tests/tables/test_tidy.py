"""Files in the style of statistical offices, hospitals and surveys, and the tables that a person would read."""

import datetime
import gzip
from pathlib import Path

import numpy as np
import openpyxl
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import unbag
from unbag._utils.problems import TableError
from unbag.cli import app
from unbag.data.columns import Table
from unbag.tables.grid import Grid, read_grids
from unbag.tables.ids import match_normalised, shared_keys
from unbag.tables.layout import choose_table, find_table
from unbag.tables.options import Reading


def day(month, number, year=2024):
    return datetime.date(year, month, number)


# Each entry: the text of a file, its table, and parts of the notes on what was repaired.
FILES = {
    "a clean table": ("ward,ill,well\nA,1,2\nB,3,4\n", {"ward": ["A", "B"], "ill": [1, 3], "well": [2, 4]}, []),
    "a title padded with commas": (
        "Table 3: Health by ward,,\n,,\nward,ill,well\nA,1,2\nB,3,4\n",
        {"ward": ["A", "B"], "ill": [1, 3], "well": [2, 4]}, ["1 title line", "1 blank row"]),
    "a title in two columns": (
        "Reference:,H-77\nWard,Beds\nA,10\nB,20\n", {"Ward": ["A", "B"], "Beds": [10, 20]}, ["1 title line"]),
    "totals below": (
        "ward,ill,well\nA,1,2\nB,3,4\nTotal,4,6\n", {"ward": ["A", "B"], "ill": [1, 3], "well": [2, 4]},
        ["line 4 ('Total') was left out: its numbers are the sums"]),
    "totals above, which do not add up": (
        "ward,ill,well\nA,1,2\nB,3,4\nC,5,1\nGrand total,19,70\n",
        {"ward": ["A", "B", "C"], "ill": [1, 3, 5], "well": [2, 4, 1]}, ["are not the sums"]),
    "subtotals of regions": (
        "ward,ill,well\nA,10,20\nB,30,40\nNorth total,40,60\nC,50,60\nD,7,8\nSouth total,57,68\nTotal,97,128\n",
        {"ward": ["A", "B", "C", "D"], "ill": [10, 30, 50, 7], "well": [20, 40, 60, 8]},
        ["'North total'", "'South total'", "'Total'"]),
    "a ward whose name starts with All": (
        "ward,ill,well\nAll Saints,1,2\nAll,3,4\n", {"ward": ["All Saints", "All"], "ill": [1, 3], "well": [2, 4]},
        []),
    "footnotes": (
        "ward,ill,well\nA,1,2\nB,3,4\n\nSource: Office of Health\n1) Counts are rounded.\n",
        {"ward": ["A", "B"], "ill": [1, 3], "well": [2, 4]}, ["2 footnote lines"]),
    "footnotes below two columns": (
        "ward,ill\nA,1\nB,3\n\nNotes,\n* Provisional figures,\n", {"ward": ["A", "B"], "ill": [1, 3]},
        ["2 footnote lines"]),
    "markers of footnotes in names": (
        "Ward [note 1],Ill (2),Well*\nA,1,2\nB,3,4\n", {"Ward": ["A", "B"], "Ill": [1, 3], "Well": [2, 4]},
        ["names of columns were cleaned: 'Ward [note 1]' to 'Ward'"]),
    "a header repeated on each page": (
        "ward,ill\nA,1\nward,ill\nB,3\n", {"ward": ["A", "B"], "ill": [1, 3]},
        ["1 header line repeated among the rows"]),
    "row numbers of an export": (
        ",ward,ill\n0,A,1\n1,B,3\n", {"ward": ["A", "B"], "ill": [1, 3]}, ["only numbers the rows"]),
    "blank columns and rows": (
        "id,,age,\n1,,30,\n,,,\n2,,40,\n", {"id": [1, 2], "age": [30, 40]}, ["1 blank row was left out"]),
    "semicolons and decimal commas": (
        "id;income\na;1.234,50\nb;980,00\nc;12.345,25\n",
        {"id": ["a", "b", "c"], "income": [1234.5, 980.0, 12345.25]}, ["decimal commas", "thousands separators"]),
    "thousands with commas in quotes": (
        'id,income\na,"4,547"\nb,"12,300"\nc,980\n', {"id": ["a", "b", "c"], "income": [4547, 12300, 980]},
        ["',' was read as a thousands separator"]),
    "thousands with spaces that do not break": (
        "id,income\na,4\u00a0547\nb,12\u202f300\n", {"id": ["a", "b"], "income": [4547, 12300]},
        ["thousands separators were removed"]),
    "currencies and accounting brackets": (
        'id,balance\na,"£1,204.50"\nb,(£30.25)\nc,£7\n', {"id": ["a", "b", "c"], "balance": [1204.5, -30.25, 7]},
        ["currency signs"]),
    "euros after the number": (
        "id;rent\na;1.050 €\nb;980,5 €\n", {"id": ["a", "b"], "rent": [1050.0, 980.5]},
        ["currency signs", "decimal commas"]),
    "days before months": (
        "id,born\na,20/04/2012\nb,03/11/1999\n", {"id": ["a", "b"], "born": [day(4, 20, 2012), day(11, 3, 1999)]},
        ["dates were read day first"]),
    "dates that can be read in two ways": (
        "id,seen\na,03/04/2024\nb,05/06/2024\n", {"id": ["a", "b"], "seen": [day(4, 3), day(6, 5)]},
        ["month first is possible too; use --dates"]),
    "names of months and times": (
        "id,seen,at\na,20 Apr 2024,20.04.2024 13:30\nb,1 May 2024,01.05.2024 08:05\n",
        {
            "id": ["a", "b"],
            "seen": [day(4, 20), day(5, 1)],
            "at": [datetime.datetime(2024, 4, 20, 13, 30), datetime.datetime(2024, 5, 1, 8, 5)],
        }, ["dates were read day first"]),
    "words for missing values": (
        "id,age,town,smoker\na,31,York,none\nb,not known,-,never\nc,..,Hull,N/A\nd,Unknown,n/a,daily\n",
        {"id": [*"abcd"], "age": [31, None, None, None], "town": ["York", None, "Hull", None],
         "smoker": ["none", "never", None, "daily"]}, ["'not known' (1)", "'..' (1)", "'-' (1)", "'N/A' (1)"]),
    "categories written in several ways": (
        "id,sex\na,F\nb,Female\nc,f\nd,M\ne,Male\nf,m \ng,male\nh,Male\n",
        {"id": [*"abcdefgh"], "sex": ["Female"] * 3 + ["Male"] * 5},
        ["were read as one category, 'Female'", "were read as one category, 'Male'"]),
    "codes with leading zeros": (
        "id,area\na,007\nb,012\nc,130\n", {"id": ["a", "b", "c"], "area": ["007", "012", "130"]}, []),
    "upper names that span several columns": (
        "District,2019,,2020,\n,ill,well,ill,well\nA,1,2,3,4\nB,5,6,7,8\n",
        {"District": ["A", "B"], "2019 ill": [1, 5], "2019 well": [2, 6], "2020 ill": [3, 7], "2020 well": [4, 8]},
        ["two header lines were combined"]),
    "units below the names": (
        "patient,age,weight\n,(years),(kg)\nP1,40,72.5\nP2,55,88\n",
        {"patient": ["P1", "P2"], "age (years)": [40, 55], "weight (kg)": [72.5, 88]},
        ["a second line of names or units was joined"]),
    "row names without a name in the header": (
        "ward\tage\n1\tA\t31\n3\tB\t40\n", {"column 1": [1, 3], "ward": ["A", "B"], "age": [31, 40]},
        ["moved one column"]),
    "rules and a minus after the number": (
        "------------\n|Name |Sum |\n------------\n|A |1.250,75-|\n|B |990,10|\n------------\n",
        {"Name": ["A", "B"], "Sum": [-1250.75, 990.1]}, ["or ruled", "decimal commas"]),
    "a Polish total and missing values": (
        "Gmina;Chorzy;Udział\nA;12;3,5\nB;brak danych;2,5\nRazem;12;3,0\n",
        {"Gmina": ["A", "B"], "Chorzy": [12, None], "Udział": [3.5, 2.5]}, ["'Razem'", "'brak danych' (1)"]),
    "grades and blood groups": (
        "id,grade,blood\na,A,A\nb,A*,AB\nc,B,B\n",
        {"id": [*"abc"], "grade": ["A", "A*", "B"], "blood": ["A", "AB", "B"]}, []),
    "a hospital's export with everything": (
        "Ward report;;;\nPrinted 3 May 2024;;;\n;;;\nPatient ID;Born;Weight (kg);Sex\n 0017 ;20.04.2012;31,5;w\n"
        "0018;03.11.1999;n/a;W\n;;;\n0021;17.01.1950;82,0;m\nTotal;;;\n* Provisional;;;\n",
        {"Patient ID": ["0017", "0018", "0021"], "Born": [day(4, 20, 2012), day(11, 3, 1999), day(1, 17, 1950)],
         "Weight (kg)": [31.5, None, 82.0], "Sex": ["w", "w", "m"]},
        ["2 title lines", "decimal commas", "'W' and 'w' were read", "2 footnote lines"]),
    "flags of a statistical office": (
        "geo\\time\tRate\tCases\nBE\t15.0 e\t1,234\nDE\t: c\t12,345 p\nFR\t14.2\t..\nIT\t9.9 b\tx\nES\t7.1\t980\n",
        {"geo\\time": ["BE", "DE", "FR", "IT", "ES"], "Rate": [15.0, None, 14.2, 9.9, 7.1],
         "Cases": [1234, 12345, None, None, 980]},
        ["flags after numbers were removed, as in '15.0 e'", "flags after numbers were removed, as in '12,345 p'"]),
    "values in brackets that are uncertain": (
        "Kreis;Fälle;Rate\nA;12;3,5\nB;(3);(1,2)\nC;/;4,0\nD;25;7,5\n",
        {"Kreis": [*"ABCD"], "Fälle": [12, 3, None, 25], "Rate": [3.5, -1.2, 4.0, 7.5]},
        ["brackets, which mark uncertain numbers, were removed, as in '(3)'", "were read as negative, as in '(1,2)'"]),
    "a unit in every cell": (
        "id,weight,height,bp\na,72 kg,1.80m,120 mmHg\nb,80.5 kg,1.75m,135 mmHg\nc,64 kg,1.62m,n/a\n",
        {"id": [*"abc"], "weight": [72.0, 80.5, 64.0], "height": [1.8, 1.75, 1.62], "bp": [120, 135, None]},
        ["the unit 'kg' was removed from numbers, as in '72 kg'", "the unit 'mmhg'"]),
    "codes of letters and digits": (
        "id,class,house\na,3b,12 A\nb,4a,7\nc,3a,9 B\n",
        {"id": [*"abc"], "class": ["3b", "4a", "3a"], "house": ["12 A", "7", "9 B"]}, []),
    "lakhs and rupees": (
        'district,people,spent\nPune,"94,29,408","₹ 1,25,000.50"\nThane,"1,10,60,148",Rs. 98500\n',
        {"district": ["Pune", "Thane"], "people": [9429408, 11060148], "spent": [125000.5, 98500]},
        ["thousands separators were removed", "currency signs were removed"]),
    "Swiss thousands": (
        "Kanton;Einwohner\nZürich;1'553'423\nUri;36\u2019819\n",
        {"Kanton": ["Zürich", "Uri"], "Einwohner": [1553423, 36819]}, ["thousands separators were removed"]),
    "limits of detection": (
        "sample,lead,zinc\n1,0.5,12\n2,<0.1,15\n3,0.7,>100\n4,1.2,18\n",
        {"sample": [1, 2, 3, 4], "lead": [0.5, 0.1, 0.7, 1.2], "zinc": [12, 15, 100, 18]},
        ["bounds were read as the number in them, as in '<0.1'"]),
    "sections with subtotals": (
        "Ward,Beds,Nurses\nNorth region,,\nA,10,4\nB,12,5\nTotal North,22,9\nSouth region,,\nC,8,3\nTotal South,8,3\n",
        {"Ward": [*"ABC"], "Beds": [10, 12, 8], "Nurses": [4, 5, 3]},
        ["2 section lines among the rows were left out: 'North region', 'South region'", "'Total North'"]),
    "another table below": (
        "Table 1\nward,ill,well\nA,1,2\nB,3,4\n\nTable 2\nward,beds,nurses\nA,10,4\nB,12,5\n",
        {"ward": ["A", "B"], "ill": [1, 3], "well": [2, 4]}, ["another table was left out, which begins in line 6"]),
    "another table beside": (
        "ward,ill,,ward,beds\nA,1,,A,10\nB,3,,B,12\n", {"ward": ["A", "B"], "ill": [1, 3]},
        ["another table was left out, which begins in column 4"]),
    "numbers of columns below the names": (
        "District,Men,Women,All\n(1),(2),(3),(4)\nA,10,12,22\nB,5,9,14\n",
        {"District": ["A", "B"], "Men": [10, 5], "Women": [12, 9], "All": [22, 14]},
        ["1 numbering line below the names of the columns"]),
    "the whole country first": (
        "area,ill,well\nEngland,16,24\nNorth,5,6\nEast,4,9\nSouth,6,2\nWest,1,7\n",
        {"area": ["North", "East", "South", "West"], "ill": [5, 4, 6, 1], "well": [6, 9, 2, 7]},
        ["line 2 ('England') was left out: its numbers are the sums of the other rows"]),
    "a line of means": (
        "id,age,score\n1,30,2\n2,40,5\n3,20,8\nAverage,30,5\n",
        {"id": [1, 2, 3], "age": [30, 40, 20], "score": [2, 5, 8]},
        ["'Average') was left out: its numbers are the means"]),
    "what the export was about": (
        "Period,2023\nRegion,North\n\nward,ill,well\nA,1,2\nB,3,4\n",
        {"ward": ["A", "B"], "ill": [1, 3], "well": [2, 4]}, ["2 title lines"]),
    "merged cells of a pivot table": (
        "region,ward,ill\nNorth,A,1\n,B,3\n,C,2\nSouth,D,5\n,E,7\n",
        {"region": ["North"] * 3 + ["South"] * 2, "ward": [*"ABCDE"], "ill": [1, 3, 2, 5, 7]},
        ["3 blank cells of column region were filled"]),
    "texts kept as formulas": (
        'id,x\n="007",1\n="012",2\n', {"id": ["007", "012"], "x": [1, 2]},
        ["marks by which a spreadsheet keeps texts"]),
    "dates as Excel stores them": (
        "id,admitted,beds\na,45292,20001\nb,45300,30002\n",
        {"id": ["a", "b"], "admitted": [day(1, 1), day(1, 9)], "beds": [20001, 30002]},
        ["numbers were read as dates as Excel stores them, '45292' as 2024-01-01"]),
    "dates of eight digits": (
        "id,date\na,20240131\nb,20231201\n", {"id": ["a", "b"], "date": [day(1, 31), day(12, 1, 2023)]},
        ["eight digits"]),
    "months in German, half days and weekdays": (
        "id;am;um;an\na;3. März 2024;1/31/2024 2:30 PM;Mon 05/02/2024\n"
        "b;21. Dez. 2023;2/1/2024 9:05 AM;Tue 13/02/2024\n",
        {
            "id": ["a", "b"],
            "am": [day(3, 3), day(12, 21, 2023)],
            "um": [datetime.datetime(2024, 1, 31, 14, 30), datetime.datetime(2024, 2, 1, 9, 5)],
            "an": [day(2, 5), day(2, 13)],
        }, ["dates were read month first", "dates were read day first"]),
    "a listing with columns of spaces": (
        "Ward      Ill   Well\n--------------------\nA           1      2\nB North    13     24\n",
        {"Ward": ["A", "B North"], "Ill": [1, 13], "Well": [2, 24]}, ["columns were separated at two or more spaces"]),
    "three header lines": (
        ",2019,,2020,\n,ill,,ill,\nward,men,women,men,women\nA,1,2,3,4\nB,5,6,7,8\n",
        {"ward": ["A", "B"], "2019 ill men": [1, 5], "2019 ill women": [2, 6], "2020 ill men": [3, 7],
         "2020 ill women": [4, 8]}, ["two header lines were combined"]),
    "years below what is counted": (
        "District,Ill,,Well,\n,2019,2020,2019,2020\nA,1,2,3,4\nB,5,6,7,8\n",
        {"District": ["A", "B"], "Ill 2019": [1, 5], "Ill 2020": [2, 6], "Well 2019": [3, 7], "Well 2020": [4, 8]},
        ["two header lines were combined, as in"]),
    "line ends of a Mac and a separator with a byte-order mark": (
        "\ufeffsep=;\rid;x\ra;1,5\rb;2,5\r", {"id": ["a", "b"], "x": [1.5, 2.5]}, ["names the separator"]),
    "a corner without a name": (
        ",ill,well\nA,1,2\nB,3,4\n", {"column 1": ["A", "B"], "ill": [1, 3], "well": [2, 4]},
        ["a column without a name was named 'column 1'"]),
    "percentages with zeros without a sign": (
        "id;share\na;12,5 %\nb;0\nc;100 %\n", {"id": [*"abc"], "share": [0.125, 0, 1]}, ["percentages were read"]),
    "a legend of two columns and flags alone": (
        "Geography,Employment,Rate\nOntario,7645.2,5.1\nYukon,35.1E,F\nNunavut,84.2,9.9\nSymbols:\nE,Uncertain\n",
        {"Geography": ["Ontario", "Yukon", "Nunavut"], "Employment": [7645.2, 35.1, 84.2], "Rate": [5.1, None, 9.9]},
        ["2 footnote lines", "'F' (1)"]),
    "questions below the names": (
        'Date,Q1,Q2\nStart,How satisfied are you?,Hours\n"{""Id"":1}","{""Id"":2}","{""Id"":3}"\n'
        "01JAN2024,Very,12\n02FEB2024,Not,3.5\n03MAR2024,Not,7\n",
        {"Date": [day(1, 1), day(2, 2), day(3, 3)], "Q1": ["Very", "Not", "Not"], "Q2": [12, 3.5, 7]},
        ["2 label lines below the names of the columns"]),
    "a sentence with a comma above the names": (
        "Shorthand: [c] = confidential, [x] = not available\nArea,Deaths,Covid [note 2]\nA,110,[c]\nB,[x],12\nC,90,8\n",
        {"Area": [*"ABC"], "Deaths": [110, None, 90], "Covid": [None, 12, 8]}, ["1 title line"]),
    "a second line of names for some columns": (
        "Area,Rate,95% CI,\n,,Lower,Upper\nNorth,4.1,3.2,5.0\nSouth,6.0,5.1,6.9\n",
        {"Area": ["North", "South"], "Rate": [4.1, 6.0], "95% CI Lower": [3.2, 5.1], "95% CI Upper": [5.0, 6.9]},
        ["a second line of names"]),
    "a table copied from a page": (
        "Ward            Patients    Change\nAlder           1,204       ±12\nBeech           980         -\n",
        {"Ward": ["Alder", "Beech"], "Patients": [1204, 980], "Change": [12, None]},
        ["two or more spaces", "approximate numbers"]),
    "a table with rules of Markdown": (
        "| Ward | Rent |\n|------|----:|\n| A    | 850 |\n| B    | 1.020 |\n",
        {"Ward": ["A", "B"], "Rent": [850, 1020]}, ["'.' was read as a thousands separator, as in '1.020'"]),
}  # fmt: skip


def read(path, sheet=None, **options):
    table = choose_table(path, read_grids(path, sheet))
    data = table.read(table.names, reading=Reading(**options))
    return data, [str(note) for note in table.repairs]


def check(path, expected, notes):
    data, repairs = read(path)
    assert data.to_pydict() == expected
    for part in notes:
        assert any(part in note for note in repairs), (part, repairs)
    assert notes or not repairs


@pytest.mark.parametrize("name", FILES)
def test_files_as_exported(name, tmp_path):
    text, expected, notes = FILES[name]
    path = tmp_path / "table.csv"
    path.write_text(text, "utf-8")
    check(path, expected, notes)


@pytest.mark.parametrize(("encoding", "note"), [
    ("utf-16", "UTF-16"), ("cp1252", "Windows-1252"), ("utf-8-sig", None), ("gzip", None),
])  # fmt: skip
def test_encodings(encoding, note, tmp_path):
    text = "ort;einwohner\nKöln;1\nZürich;2\n"
    path = tmp_path / "table.csv"
    path.write_bytes(gzip.compress(text.encode()) if encoding == "gzip" else text.encode(encoding))
    check(path, {"ort": ["Köln", "Zürich"], "einwohner": [1, 2]}, [note] if note else [])


def test_sheets_of_a_spreadsheet(tmp_path):
    book = openpyxl.Workbook()
    book.active.title = "Cover"
    book.active.append(["Notes on this workbook"])
    people = book.create_sheet("People")
    for row in (
        ["People of 2024"],
        [],
        ["id", "born", "share"],
        ["007", datetime.datetime(2024, 4, 20), 0.5],
        ["008", None, 3.0],
    ):
        people.append(row)
    path = tmp_path / "book.xlsx"
    book.save(path)
    expected = {"id": ["007", "008"], "born": [day(4, 20), None], "share": [0.5, 3.0]}
    check(path, expected, ["from sheet 'People'", "1 title line"])
    assert read(path, "2")[0].to_pydict() == expected
    with pytest.raises(TableError, match="no sheet 'Wards'; choose one of 'Cover', 'People'"):
        read(path, "Wards")
    book.copy_worksheet(people)
    book.save(path)
    with pytest.raises(TableError, match="several sheets; name one with --sheet: 'People', 'People Copy'"):
        read(path)


def test_conventions_override_what_is_inferred(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text('id,seen,x\na,03/04/2024,"1,250"\nb,05/06/2024,"2,500"\n')
    data, _ = read(path, dates="month-first", decimal=",")
    assert data.to_pydict() == {"id": ["a", "b"], "seen": [day(3, 4), day(5, 6)], "x": [1.25, 2.5]}


def test_ids_remain_as_they_are(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("id,x\n 007 ,1\n1e5,2\n-,3\n")
    table = choose_table(path, read_grids(path))
    assert table.read(["id", "x"], ["id"]).to_pydict() == {"id": ["007", "1e5", None], "x": [1, 2, 3]}


def test_counts_keep_their_bounds_without_flags(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("ward,ill,well\nA,12 p,8 [r]\nB,<5,(3)\nC,[c],-\n")
    table = choose_table(path, read_grids(path))
    data = table.read(table.names, ["ward"], ["ill", "well"])
    assert data.to_pydict() == {"ward": [*"ABC"], "ill": ["12", "<5", "[c]"], "well": ["8", "3", None]}
    notes = " ".join(map(str, table.repairs))
    assert "flags after numbers were removed, as in '12 p'" in notes
    assert "brackets, which mark uncertain numbers, were removed, as in '(3)'" in notes


def test_columns_with_a_few_words_remain_text(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("id,x\na,1\nb,2\nc,about 3\n")
    assert read(path)[0].column("x").to_pylist() == ["1", "2", "about 3"]


def test_files_without_a_table(tmp_path):
    path = tmp_path / "table.csv"
    for text in ("", "a title\n", "a,b\n", "x\n1\n2\n"):
        path.write_text(text)
        with pytest.raises(TableError, match="no table was found"):
            read(path)
    path.write_text("a,b, b\n1,2,3\n")
    with pytest.raises(TableError, match="more than one column has this name"):
        read(path)


def test_ambiguous_ids_are_not_matched():
    assert list(match_normalised(["7", "x"], ["007", "07", "X "])) == [("x", "X ")]


PEOPLE = "People of 2024,,\n,,\nPatient,Ward,Age\n" + "".join(
    f"{n},{'NORTH ' if n == 3 else 'North' if n % 2 else 'Café'},{20 + n * n % 37}\n" for n in range(40)
)
WARDS = "Ward;Ill;Well\nCafé;8;12\nNorth;9;11\nTotal;17;23\n"


@pytest.fixture
def files(tmp_path):
    (tmp_path / "people.csv").write_text(PEOPLE, "cp1252")
    (tmp_path / "wards.csv").write_text(WARDS, "utf-16")
    return tmp_path / "people.csv", tmp_path / "wards.csv"


def test_both_files_are_repaired_and_ids_matched(files, tmp_path):
    with pytest.raises(TableError, match=r"line 4 is not written in UTF-8 .* or add --tidy"):
        unbag.read_tables(*files)
    data = unbag.read_tables(*files, tidy=True, exclude=["Patient"], tidied=str(tmp_path / "clean"))
    assert data.y.z.tolist() == [[8, 12], [9, 11]]
    assert data.X.column("Age").to_pylist() == [20 + n * n % 37 for n in range(40)]
    notes = "\n".join(map(str, data.problems))
    for part in ("decoded as Windows-1252", "decoded from UTF-16", "'Total'", "'NORTH' with 'North'", "1 title line"):
        assert part in notes
    assert (tmp_path / "clean" / "wards.csv").read_text() == '"Ward","Ill","Well"\n"Café","8","12"\n"North","9","11"\n'
    clean = unbag.read_tables(tmp_path / "clean" / "people.csv", tmp_path / "clean" / "wards.csv", exclude=["Patient"])
    assert clean.y.z.tolist() == data.y.z.tolist()  # also of the ward that was written in capitals
    assert clean.y.groups.sizes.tolist() == data.y.groups.sizes.tolist() == [20, 20]
    assert clean.X.equals(data.X)


def test_a_run_remembers_that_files_are_repaired(files, tmp_path):
    people, wards = map(str, files)
    run, out = str(tmp_path / "run"), tmp_path / "out.csv"

    def call(*arguments):
        result = CliRunner().invoke(app, [*arguments])
        assert result.exit_code == 0, result.output
        return result.output

    call("fit", people, wards, "--tidy", "--model", "linear", "--exclude", "Patient", "--out", run)
    assert "40 rows written" in call("predict", run, people, "--out", str(out))
    assert "title line" in call("disaggregate", run, people, wards, "--out", str(out))
    assert len(out.read_text().splitlines()) == 41


def test_two_sheets_of_a_workbook_are_written_to_two_files(tmp_path):
    book = openpyxl.Workbook()
    book.active.title = "People"
    wards = book.create_sheet("Wards")
    book.active.append(["Ward", "Age"])
    for n in range(40):
        book.active.append(["North" if n % 2 else "South", 20 + n * n % 37])
    for row in (["Ward", "Ill", "Well"], ["North", 8, 12], ["South", 9, 11]):
        wards.append(row)
    book.save(path := tmp_path / "book.xlsx")
    unbag.read_tables(path, path, tidy=True, sheet="People", sheet_of_groups="Wards", tidied=str(tmp_path / "clean"))
    names = {file.name: file.read_text().splitlines()[0] for file in (tmp_path / "clean").iterdir()}
    assert names == {"book.csv": '"Ward","Age"', "book-2.csv": '"Ward","Ill","Well"'}


def test_ids_of_two_types_are_matched(tmp_path):
    people = Table(tmp_path / "people.parquet", pa.table({"ward": [1, 12]}))
    wards = Table(tmp_path / "wards.csv", pa.table({"ward": ["012", "1"]}))
    left, (right,), notes = shared_keys(people, "ward", wards, ["ward"], loose=True)
    assert (left.to_pylist(), right.to_pylist()) == (["1", "012"], ["012", "1"])
    assert "'12' with '012'" in str(notes[-1])


@pytest.mark.parametrize("seed", range(20))
def test_clean_tables_stay_as_they_are(seed):
    rng = np.random.default_rng(seed)
    for _ in range(15):
        n = int(rng.integers(2, 30))
        kinds = {
            "age": rng.integers(0, 50, n),
            "x": rng.normal(0, 10, n).round(2),
            "town": rng.choice(["Ulm", "Bonn", "Bad Tölz", "St. Gallen"], n),
            "ill": rng.integers(0, 2, n),
            "born": np.datetime64("2010-01-01") + rng.integers(0, 5000, n),
            "dose": np.where(rng.random(n) < 0.3, "", rng.integers(0, 90, n).astype(str)),
        }
        names = rng.permutation([*kinds])[: rng.integers(1, 6)]
        columns = {"id": [f"p{place:03}" for place in range(n)], **{name: [*map(str, kinds[name])] for name in names}}
        table = find_table(Path("table.csv"), Grid([[*columns], *map(list, zip(*columns.values(), strict=True))]))
        assert table.columns == {name: [text or None for text in texts] for name, texts in columns.items()}
        table.read(table.names)
        assert not [str(note) for note in table.repairs if "no values" not in note.message]
