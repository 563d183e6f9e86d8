"""Broken pairs of files: each gets its sentence and exit code 2, and nothing is written."""

import gzip
import os
import re

import numpy as np
import pytest
from table_files import BAGS, PAIRS, PEOPLE, RANKS, TRIPLETS, WARDS, call, refuse, write, write_parquet

IDS = [f"w{i // 3}" for i in range(12)]
AGES = [20 + 7 * (i // 3) + i % 3 for i in range(12)]


def people(folder, content=PEOPLE, name="people.csv"):
    return write(folder / name, content)


def wards(folder, content=WARDS, name="wards.csv"):
    return write(folder / name, content)


def both(instances=PEOPLE, groups=WARDS):
    return lambda folder: (people(folder, instances), wards(folder, groups))


def numbered(groups):
    columns = {"ward": [i // 3 for i in range(12)], "age": AGES}
    return lambda folder: (write_parquet(folder / "people.parquet", columns), wards(folder, groups))


def parquet_people(folder, **columns):
    return write_parquet(folder / "people.parquet", {"ward": IDS, "age": AGES, **columns})


def cut(folder):
    whole = parquet_people(folder).read_bytes()
    return people(folder, whole[: len(whole) // 2], "people.parquet"), wards(folder)


def damaged(folder):
    whole = bytearray(parquet_people(folder, town=["Bonn" * 40] * 12).read_bytes())
    whole[20:60] = bytes(40)
    return people(folder, bytes(whole), "people.parquet"), wards(folder)


def parts(folder, second):
    (folder / "parts").mkdir()
    write_parquet(folder / "parts" / "1.parquet", {"ward": ["w0"], "age": [1]})
    write_parquet(folder / "parts" / "2.parquet", second)
    return folder / "parts", wards(folder)


def folder_without_parts(folder, name=None):
    (folder / "parts").mkdir()
    if name:
        write(folder / "parts" / name, PEOPLE)
    return folder / "parts", wards(folder)


def nested_folder(folder):
    (folder / "parts" / "year=2020").mkdir(parents=True)
    return folder / "parts", wards(folder)


def many_texts(folder):
    rows = "w0;?\n" + "".join(f"w{i % 4};{i / 7:.3f}\n".replace(".", ",") for i in range(1, 1200))
    return people(folder, "ward;age\n" + rows), wards(folder, "ward;ill;well\nw0;9;291\nw1;9;291\nw2;0;300\nw3;8;292\n")


LATIN = PEOPLE.replace("Bonn", "Köln")

BROKEN = {
    "empty instances": (both(instances=""), [], r"people\.csv: the file is empty; it needs a line"),
    "instances without rows": (both(instances="ward,age\n"), [], r"people\.csv: there are no rows"),
    "groups without rows": (both(groups="ward,ill,well\n"), [], r"wards\.csv: there are no rows"),
    "a missing file": (lambda f: (f / "persons.csv", wards(f)), [], r"there is no file .*persons\.csv; check the name"),
    "Latin-1": (both(instances=LATIN.encode("latin-1")), [], r"people\.csv: line 3 is not written in UTF-8 \(byte"),
    "UTF-16": (both(instances=PEOPLE.encode("utf-16")), [], r"people\.csv: the file is written in UTF-16; save it"),
    "a spreadsheet": (both(instances=b"PK\x03\x04" + bytes(26) + b"[Content_Types].xml"), [],
        r"this is a spreadsheet; give it the suffix .*, or save it"),
    "a zip archive": (both(instances=b"PK\x03\x04" + bytes(26) + b"people.csv"), [],
        r"people\.csv: this is a zip archive; unpack it"),
    "one line without its end": (both(instances="ward,age"), [], r"people\.csv: there are no rows, only names"),
    "a line of 12 MB": (both(instances=PEOPLE.replace("27,Ulm", "27," + "x" * 12_000_000)), [],
        r"people\.csv: line 5 has more than 4 MB, .* shorten its text"),
    "a quotation over 12 MB": (both(instances=PEOPLE + 'p99,w0,1,"Ulm\n' + PEOPLE * 60_000), [],
        r"people\.csv: a row has more than 4 MB, .* a quotation mark is opened and never closed"),
    "a header of 17 MB": (
        lambda f: (people(f, gzip.compress(b"ward," + b"x" * (17 << 20), 1), "people.csv.gz"), wards(f)),
        [],
        r"people\.csv\.gz: the line with the names of the columns has more than 16 MB",
    ),
    "a title above the names of columns": (both(groups="Table 3: by ward\n\n" + WARDS), [],
        r"wards\.csv: the first line, 'Table 3: by ward', names one column, .* 3 values; delete the lines above"),
    "a title padded with commas": (both(groups="Table 3,,\n" + WARDS), [],
        r"wards\.csv: 2 of 3 columns have no name; the names begin with 'Table 3'; delete the lines above"),
    "a row too short": (both(instances=PEOPLE.replace(",27,Ulm", ",27")), [], r"row 4: .* 3 values, .* header has 4"),
    "a row too long": (both(groups=WARDS.replace("w2,3,0", "w2,3,0,0")), [], r"row 3: .* 4 values, .* header has 3"),
    "an open quotation": (both(instances=PEOPLE.replace("28,Bonn", '28,"Bonn')), [],
        r"people\.csv, row 5: a quotation mark is opened here"),
    "two columns of one name": (both(instances=PEOPLE.replace("town", "age")), [],
        r"people\.csv, column age: more than one column has this name"),
    "a column without name": (both(instances=PEOPLE.replace("id,", ",", 1)), [],
        r"column 1 has no name; .* index=False"),
    "a cut .gz": (
        lambda f: (people(f, gzip.compress(os.urandom(9000) + PEOPLE.encode())[:5000], "people.csv.gz"), wards(f)),
        [],
        r"people\.csv\.gz: the file cannot be unpacked",
    ),
    "Parquet cut short": (cut, [], r"people.parquet: this is not a Parquet file, or it is truncated: .* copy it"),
    "Parquet with a damaged page": (damaged, [], r"people\.parquet: this is not a Parquet file, or it is truncated"),
    "a folder without parts": (folder_without_parts, [], r"parts: the folder contains no Parquet files"),
    "a folder with something else": (lambda f: folder_without_parts(f, "people.csv"), [],
        r"the folder contains 'people\.csv' beside Parquet parts"),
    "a folder in a folder": (nested_folder, [], r"the folder contains another one, 'year=2020'"),
    "parts with other columns": (lambda f: parts(f, {"ward": ["w1"], "weight": [2]}), [],
        r"2\.parquet: this part has other columns \(weight\) than"),
    "parts of other types": (lambda f: parts(f, {"ward": ["w1"], "age": ["2"]}), [],
        r"2\.parquet: column age is string here, of another type than"),
    "lists in a column": (lambda f: (parquet_people(f, tags=[["a"]] * 12), wards(f)), [],
        r"column tags: the column is of type list<.*leave it"),
    "ids as text and as numbers": (numbered(WARDS), [], r"wards\.csv, row 1, column ward: 'w0' has no rows in column"),
    "ids written differently": (
        both(PEOPLE.replace(",w", ",").replace(",ard", ",ward"), "ward,ill,well\n0.0,1,2\n1.0,0,3\n2.0,3,0\n3.0,2,1\n"),
        [],
        r"wards\.csv, row 1, column ward: '0\.0' has no rows in column ward of .*; '0\.0' here may be '0' there",
    ),
    "times as a feature": (both(instances=PEOPLE.replace("Ulm", "12:30:00").replace("Bonn", "14:00:00")), [],
        r"people\.csv, column town: the column holds times .* omit it with --exclude town"),
    "a question mark among 1,200 numbers": (many_texts, [],
        r"row 1, column age: .* 99% of its values are numbers .* not those of 1 cell: '\?'; write numbers as in"),
    "a group without rows": (both(groups=WARDS + "w9,1,1\n"), [], r"row 5, .* 'w9' has no .*csv; .*unmatched"),
    "rows of an unknown group": (both(groups=WARDS.replace("w3,2,1\n", "")), [], r"row 10, .* 'w3' .3 rows. is not in"),
    "rows without group": (both(instances=PEOPLE.replace("p01,w0", "p01,")), [], r"people\.csv, column ward: 1 row is"),
    "the files in the wrong order": (lambda f: (wards(f), people(f)), [],
        r"people\.csv: 12 rows name only 4 groups in column ward; name the file of instances first"),
    "a group twice": (both(groups=WARDS + "w1,0,3\n"), [], r"wards\.csv, row 5, column ward: group 'w1' has a row"),
    "a group without id": (both(groups=WARDS + ",0,3\n"), [], r"wards\.csv, row 5, column ward: the id is missing"),
    "proportions that do not fit": (both(groups="ward,ill,well\nw0,0.3333,0.6667\nw1,0.5,0.5\nw2,1,0\nw3,0,1\n"), [],
        r"wards\.csv, row 2, column ill: no whole number of 3 members is 0.5, rounded to 0.0001; .* to group 'w1'"),
    "one class": (both(groups="ward,ill\nw0,1\nw1,0\nw2,3\nw3,2\n"), ["--aggregate", "label_proportions"],
        r"wards\.csv: proportions need a column of counts for each of at least two classes, .* only ill"),
    "no column of groups": (both(PEOPLE.replace("ward", "place"), WARDS.replace("ward", "cohort")), [],
        r"people\.csv: no column identifies the group"),
    "no column of groups in groups": (both(PEOPLE.replace("ward", "group"), WARDS.replace("ward", "place")), [],
        r"wards\.csv: no column contains the id of the"),
    "nothing to learn from": (both(instances="id,ward\na,w0\n"), [], r"people\.csv: there is no column to learn from"),
    "an unknown class": (both(instances=PEOPLE.replace("Ulm", "ill").replace("Bonn", "dead")), ["--label", "town"],
        r"people\.csv, row 2, column town: the class 'dead' is none of 'ill', 'well'"),
    "a column that is not there": (both(), ["--exclude", "twon"], r"'twon', which --exclude .* did you mean 'town'"),
    "one row": (both("ward,age\nw0,3\n", "ward,ill,well\nw0,1,0\n"), [], r"wards\.csv: there is only 1 group, of 1"),
    "a bag of two": (both(groups=BAGS.replace("w2,1", "w2,2")), [], r"row 3, column positive: .* must be 0 or 1"),
    "bags of maybe": (both(groups=BAGS.replace("1\n", "maybe\n")), [], r"row 1, .* yes or no.* got 'maybe'"),
    "a pair of an unknown row": (both(groups=PAIRS.replace("p21", "q21")), ["--n-classes", "2"],
        r"row 3, column b: 'q21' is not in column id of"),
    "a pair of one row": (both(groups=PAIRS.replace("p20,p21", "p20,p20")), ["--n-classes", "2"],
        r"row 3: a row is compared with itself"),
    "an id twice": (both(PEOPLE.replace("p01", "p00"), PAIRS.replace("p01", "p02")), ["--n-classes", "2"],
        r"people\.csv, row 2, column id: the id 'p00' is that of an earlier row already"),
    "pairs without ids": (both(PEOPLE.replace("id,", "who,", 1), PAIRS), ["--n-classes", "2"],
        r"people\.csv: no column is named like the ids to which a, b"),
    "pairs of how many classes": (both(groups=PAIRS), [], r"pairwise_similarity does not determine the number"),
    "pairs or ranks": (both(groups=PAIRS.replace("similar", "z")), ["--n-classes", "2"],
        r"this may be pairwise_similarity or ordinal_rank"),
    "a relation that is none": (both(groups=RANKS.replace(">=", "~")), ["--n-classes", "3"],
        r"row 3, column relation: the observation .* got '~'"),
    "triplets of two": (both(groups=PAIRS), ["--aggregate", "triplet_comparison", "--n-classes", "2"],
        r"no 3 columns of row ids were found"),
    "triplets without answers": (
        both(groups=TRIPLETS.replace(",closer", "").replace(",0\n", "\n").replace(",1\n", "\n")),
        ["--aggregate", "triplet_comparison", "--n-classes", "2"],
        r"no column of observations was found; add one",
    ),
    "three classes of bags": (both(groups=BAGS), ["--n-classes", "3"], r"the number of classes differs"),
    "a kind that is none": (both(), ["--aggregate", "proportions"], r"there is no aggregate 'proportions'; choose one"),
}  # fmt: skip


def files_in(folder):
    return {str(path): path.is_file() and path.read_bytes() for path in sorted(folder.rglob("*"))}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_pair_of_files(name, tmp_path):
    make, options, sentence = BROKEN[name]
    instances, groups = make(tmp_path)
    before = files_in(tmp_path)
    result = refuse("fit", instances, groups, "--out", tmp_path / "run", "--epochs", 1, *options)
    assert result.stdout == ""
    said = result.stderr.splitlines()
    assert len(said) == 1, said
    assert re.search(sentence, said[0]), said[0]
    assert files_in(tmp_path) == before
    checked = call("check", instances, groups, *options, "--json")
    doubt = name == "pairs or ranks"  # a guess is good enough to check by
    assert checked.exit_code == (0 if doubt else 2)


def test_one_wrong_group_of_many_is_named(tmp_path):
    n = 200_000
    ids = np.arange(n).astype(str)
    yes = np.arange(n) % 2
    no = 1 - yes
    no[165_432] = 5
    write_parquet(tmp_path / "people.parquet", {"group": ids[::-1], "x": np.random.default_rng(0).normal(size=n)})
    write_parquet(tmp_path / "groups.parquet", {"group": ids, "yes": yes, "no": no})
    result = refuse("fit", tmp_path / "people.parquet", tmp_path / "groups.parquet", "--out", tmp_path / "run")
    assert "groups.parquet, row 165433: the counts of group '165432' add up to 5, but it has 1 row;" in result.stderr
    assert not (tmp_path / "run").exists()
