"""Protecting counts: noise of OpenDP, rounding, suppression, and the way back through check and fit."""

import errno
import os
import shutil
import sys
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import numpy as np
import pytest
from table_files import WARDS, blobs, call, refuse, succeed, write, write_parquet

from unbag._utils.files import sha256
from unbag._utils.problems import TableError
from unbag.noise import Geometric
from unbag.tables import make_plan
from unbag.tables.load import load_tables
from unbag.tables.options import Protection
from unbag.tables.published_files import add_noise, protect_counts, read_published


@pytest.fixture
def counts(tmp_path):
    blobs(tmp_path)
    return tmp_path / "counts.csv"


def read(folder, name):
    return load_tables(make_plan({"instances": folder / "people.csv", "groups": folder / name})).observed[0]


def test_noise_is_that_of_the_promise(tmp_path):
    counts = np.arange(4000).reshape(2000, 2)
    noisy, scale = add_noise(counts, epsilon=0.5, sensitivity=1)
    assert scale == 2.0
    x, n = np.unique(noisy - counts, return_counts=True)
    expected = 4000 * Geometric(scale).log_prob(x).exp().numpy()
    few = expected > 20
    # chi-squared with about 17 degrees of freedom: above 60 once in a million
    assert ((n - expected) ** 2 / expected)[few].sum() < 60
    again, _ = add_noise(counts, epsilon=0.5, sensitivity=1)
    assert (again != noisy).any()
    assert add_noise(np.zeros((1, 2), int), epsilon=0.5, sensitivity=3)[1] == 6.0


def test_from_protected_counts_to_a_fit(counts, tmp_path):
    out = tmp_path / "protected.csv"
    done = succeed("protect", counts, "--epsilon", 2, "--out", out)
    assert "40 groups written to" in done.stdout
    assert "Differential privacy with epsilon 2, for a person who changes counts by 1 in all." in done.stderr
    assert 'noise = "geometric:0.5"' in (tmp_path / "protected.csv.published.toml").read_text()
    checked = succeed("check", tmp_path / "people.csv", out, "--exclude", "letter")
    assert "count with geometric noise, scale 0.5" in checked.stdout
    fit = ("fit", tmp_path / "people.csv", out, "--exclude", "letter", "--epochs", 40, "--learning-rate", 0.05)
    fitted = succeed(*fit, "--model", "linear", "--out", tmp_path / "run")
    share = float(fitted.stdout.partition("labels    accuracy ")[2].partition("%")[0])
    assert share > 90
    # what is protected otherwise later is read as it says itself, not as the run was
    call("protect", counts, "--round-to", 3, "--out", tmp_path / "rounded.csv")
    apart = succeed("disaggregate", tmp_path / "run", tmp_path / "people.csv", tmp_path / "rounded.csv", "--out", out)
    assert "rounded to 3" in apart.stderr


def test_rounded_and_suppressed_counts_hold_the_true_ones(counts, tmp_path):
    true = read(tmp_path, "counts.csv").z
    for options in (("--round-to", 3), ("--suppress-below", 2), ("--round-to", 3, "--suppress-below", 2)):
        done = succeed("protect", counts, *options, "--out", tmp_path / "out.csv", "--force")
        assert "this does not guarantee privacy" in done.stderr
        z = read(tmp_path, "out.csv").z
        low, high = (z, z) if z.ndim == 2 else (z[..., 0], z[..., 1])
        assert (low <= true).all()
        assert (true <= high).all()
        assert (low < high).any() or "--round-to" not in options


def test_sizes_are_left_out_unless_asked_for(tmp_path):
    counts = write(tmp_path / "wards.csv", "ward,ill,well,n\nw0,1,2,3\nw1,0,3,3\n")
    done = call("protect", counts, "--round-to", 2, "--out", tmp_path / "a.csv")
    assert "sizes are left out; to write them as they are, add --keep-sizes" in done.stderr
    assert (tmp_path / "a.csv").read_text().splitlines() == ['"ward","ill","well"', '"w0",2,2', '"w1",0,4']
    call("protect", counts, "--round-to", 2, "--out", tmp_path / "b.csv", "--keep-sizes")
    assert (tmp_path / "b.csv").read_text().splitlines()[1] == '"w0","3",2,2'


def test_ids_that_are_numbers_are_named_or_what_the_columns_of_counts_leave(tmp_path):
    file = write(tmp_path / "counts.csv", "place,region,ill,well\n1,5,3,4\n2,5,5,6\n")
    done = refuse("protect", file, "--round-to", 3, "--out", tmp_path / "out.csv")
    assert "no column can be identified as that of group ids; the columns are 'place', 'region'" in done.stderr
    done = call(
        "protect", file, "--round-to", 3, "--group", "place", "--classes", "ill,well", "--out", tmp_path / "1.csv"
    )
    assert "column region: this column is left out" in done.stderr
    file = write(tmp_path / "few.csv", "place,ill,well\n1,3,4\n2,5,6\n")
    succeed("protect", file, "--round-to", 3, "--classes", "ill,well", "--out", tmp_path / "2.csv")
    assert (tmp_path / "2.csv").read_text().splitlines()[1] == '"1",3,3'


def test_parquet_in_and_out(tmp_path):
    counts = write_parquet(tmp_path / "wards.parquet", {"group": [7, 8], "ill": [1, 0], "well": [2, 3]})
    succeed("protect", counts, "--suppress-below", 2, "--out", tmp_path / "out.parquet")
    assert (tmp_path / "out.parquet.published.toml").exists()


@pytest.mark.parametrize(
    ("content", "options", "sentence"),
    [
        (WARDS, (), "choose how to protect the counts, with --epsilon, --round-to, --suppress-below"),
        (WARDS, ("--epsilon", 0), "--epsilon must be a positive number, got 0"),
        (WARDS, ("--epsilon", 1e-300), "--epsilon must be 1e-09 to 1e+06 with this --sensitivity, got 1e-300"),
        (WARDS, ("--epsilon", 1e300), "--epsilon must be 1e-09 to 1e+06 with this --sensitivity, got 1e+300"),
        (WARDS, ("--epsilon", "nan"), "--epsilon must be a positive number, got nan"),
        (WARDS, ("--epsilon", 1, "--sensitivity", 0), "--sensitivity must be a positive number, got 0"),
        (WARDS, ("--epsilon", 1, "--round-to", 5), "--epsilon and --round-to cannot be combined"),
        (WARDS.replace("w1,0", "w1,<5"), ("--epsilon", 1), "row 2, column ill: exact counts must be whole numbers"),
        (WARDS.replace("w1,0", "w1,"), ("--epsilon", 1), "row 2, column ill: exact counts must"),
        (WARDS, ("--epsilon", 1, "--classes", "ill,dead"), "there is no column 'dead', which --classes names"),
        (WARDS.replace("w", "1"), ("--epsilon", 1), "no column can be identified as that of group ids; the"),
    ],
)  # fmt: skip
def test_what_cannot_be_protected(content, options, sentence, tmp_path):
    counts, out = write(tmp_path / "wards.csv", content), tmp_path / "out.csv"
    done = refuse("protect", counts, *options, "--out", out)
    assert sentence in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["wards.csv"]


def test_a_table_is_not_protected_twice_by_mistake(counts, tmp_path):
    out = tmp_path / "out.csv"
    call("protect", counts, "--epsilon", 1, "--out", out)
    before = out.read_bytes()
    done = refuse("protect", counts, "--epsilon", 1, "--out", out)
    assert "counts that are published a second time with new noise reveal more than epsilon allows" in done.stderr
    assert out.read_bytes() == before
    refuse("protect", counts, "--epsilon", 1, "--out", counts)


def test_opendp_is_an_extra(counts, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "opendp.prelude", None)
    done = refuse("protect", counts, "--epsilon", 1, "--out", tmp_path / "out.csv")
    assert 'install it with: pip install "unbag[private]"' in done.stderr
    assert not (tmp_path / "out.csv").exists()


# A table and its statement.


class Killed(BaseException):
    """The end of the process."""


@contextmanager
def interrupted(place, *, kill):
    """Make an operation on files fail for want of space, or that and all that follow, as if the process had ended."""
    operations = []

    def failing(function):
        def operation(*arguments):
            operations.append(function)
            if kill and len(operations) >= place:
                raise Killed
            if len(operations) == place:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return function(*arguments)

        return operation

    with ExitStack() as stack:
        for name in ("fsync", "replace", "unlink"):
            stack.enter_context(patch.object(os, name, failing(getattr(os, name))))
        yield


def protect_wards(folder, round_to):
    counts = write(folder / "wards.csv", "ward,ill,well\nw0,100,200\nw1,300,300\n")
    protect_counts(counts, folder / "out.csv", Protection(round_to=round_to), force=True)
    return state(folder)


def state(folder):
    """Return the content of the table and the options it is read by."""
    out = folder / "out.csv"
    return (out.read_bytes(), read_published(out)) if out.exists() else None


NAMES = ["out.csv", "out.csv.published.toml", "wards.csv"]


@pytest.mark.parametrize("place", [1, 2, 3, 5], ids=["table", "statement", "replace 1", "replace 2"])
@pytest.mark.parametrize("kill", [False, True], ids=["full disk", "killed"])
@pytest.mark.parametrize("there", [False, True], ids=["new", "replaced"])
def test_a_table_and_its_statement_are_written_together_or_not_at_all(there, kill, place, tmp_path):
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    before = protect_wards(tmp_path / "old", 7) if there else None
    after = protect_wards(tmp_path / "new", 9)
    shutil.copytree(tmp_path / "old", tmp_path / "folder")
    write(tmp_path / "folder" / "wards.csv", (tmp_path / "new" / "wards.csv").read_bytes())
    message = r"out\.csv.* was not written: No space left on device; free some space"
    with pytest.raises(Killed if kill else OSError, match=None if kill else message), interrupted(place, kill=kill):
        protect_wards(tmp_path / "folder", 9)
    assert state(tmp_path / "folder") == before
    assert protect_wards(tmp_path / "folder", 9) == after
    assert sorted(path.name for path in (tmp_path / "folder").iterdir()) == sorted(NAMES)


def test_a_statement_of_a_new_table_is_never_that_of_an_exact_one(tmp_path):
    out = write(tmp_path / "out.csv", "ward,ill,well\nw0,100,200\n")
    with pytest.raises(Killed), interrupted(5, kill=True):
        protect_wards(tmp_path, 9)
    with pytest.raises(TableError, match=r"out\.csv has changed since this file was written for it; restore the table"):
        read_published(out)


def test_tables_of_one_name_in_two_formats_do_not_share_a_statement(counts, tmp_path):
    succeed("protect", counts, "--round-to", 5, "--out", tmp_path / "counts.parquet")
    assert read(tmp_path, "counts.parquet").z.ndim == 3
    assert read(tmp_path, "counts.csv").z.ndim == 2


def test_a_statement_of_a_table_that_has_changed_is_refused(counts, tmp_path):
    out = tmp_path / "out.csv"
    call("protect", counts, "--round-to", 5, "--out", out)
    statement = tmp_path / "out.csv.published.toml"
    content = out.read_bytes()
    write(out, counts.read_bytes())
    for named in (None, statement):
        with pytest.raises(TableError, match=r"out\.csv has changed since .*; restore the table, or remove this file"):
            read_published(out, named)
    renamed = write(tmp_path / "renamed.csv", content)
    assert read_published(renamed) == {"rounded_to": 5}  # of the same content, in the same folder
    (tmp_path / "elsewhere").mkdir()
    os.mkfifo(tmp_path / "elsewhere" / "pipe.published.toml")  # is not waited for
    write(tmp_path / "elsewhere" / "damaged.published.toml", "[")
    (tmp_path / "elsewhere" / "link.csv").symlink_to(renamed)
    assert read_published(tmp_path / "elsewhere" / "link.csv") == {"rounded_to": 5}
    assert read_published(write(tmp_path / "elsewhere" / "copy.csv", content)) == {}
    assert read_published(renamed, statement) == {"rounded_to": 5}


def test_statements_without_a_digest_are_used_only_where_they_are_named(counts, tmp_path):
    digest = sha256(counts)
    old = write(tmp_path / "counts.published.toml", "rounded_to = 5\n")  # named by the stem, as by version 0.2.0
    message = (
        f'rename it to counts.csv.published.toml and add the line sha256 = "{digest}", or name it with --published'
    )
    with pytest.raises(TableError, match=message):
        read_published(counts)
    assert read_published(counts, old) == {"rounded_to": 5}
    new = old.rename(tmp_path / "counts.csv.published.toml")
    with pytest.raises(TableError, match=f'is missing; .* add the line sha256 = "{digest}", or name'):
        read_published(counts)
    write(new, f'rounded_to = 5\nsha256 = "{digest}"\n')
    assert read_published(counts) == {"rounded_to": 5}
