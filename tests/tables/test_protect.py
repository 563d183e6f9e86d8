"""Protecting counts: noise of OpenDP, rounding, suppression, and the way back through check and fit."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from table_files import WARDS, blobs, call, write, write_parquet

from unbag.noise import Geometric
from unbag.tables import make_plan
from unbag.tables.load import gather
from unbag.tables.protect import add_noise


@pytest.fixture
def counts(tmp_path):
    blobs(tmp_path)
    return tmp_path / "counts.csv"


def read(folder, name):
    return gather(make_plan({"instances": folder / "people.csv", "groups": folder / name})).observed[0]


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


def test_sensitivity_makes_noise_larger():
    assert add_noise(np.zeros((1, 2), int), epsilon=0.5, sensitivity=3)[1] == 6.0


def test_from_protected_counts_to_a_fit(counts, tmp_path):
    out = tmp_path / "protected.csv"
    done = call("protect", counts, "--epsilon", 2, "--out", out)
    assert done.exit_code == 0, done.output
    assert "40 groups written to" in done.stdout
    assert "Differential privacy with epsilon 2, for a person who changes counts by 1 in all." in done.stderr
    assert 'noise = "geometric:0.5"' in (tmp_path / "protected.published.toml").read_text()
    checked = call("check", tmp_path / "people.csv", out, "--exclude", "letter")
    assert checked.exit_code == 0, checked.output
    assert "count with geometric noise, scale 0.5" in checked.stdout
    fit = ("fit", tmp_path / "people.csv", out, "--exclude", "letter", "--epochs", 40, "--learning-rate", 0.05)
    fitted = call(*fit, "--model", "linear", "--out", tmp_path / "run")
    assert fitted.exit_code == 0, fitted.output
    share = float(fitted.stdout.partition("labelled rows: ")[2].partition("%")[0])
    assert share > 90
    # what is protected otherwise later is read as it says itself, not as the run was
    call("protect", counts, "--round-to", 3, "--out", tmp_path / "rounded.csv")
    apart = call("disaggregate", tmp_path / "run", tmp_path / "people.csv", tmp_path / "rounded.csv", "--out", out)
    assert apart.exit_code == 0, apart.output
    assert "rounded to 3" in apart.stderr


def test_rounded_and_suppressed_counts_hold_the_true_ones(counts, tmp_path):
    true = read(tmp_path, "counts.csv").z
    for options in (("--round-to", 3), ("--suppress-below", 2), ("--round-to", 3, "--suppress-below", 2)):
        done = call("protect", counts, *options, "--out", tmp_path / "out.csv", "--force")
        assert done.exit_code == 0, done.output
        assert "that is no promise of privacy" in done.stderr
        z = read(tmp_path, "out.csv").z
        low, high = (z, z) if z.ndim == 2 else (z[..., 0], z[..., 1])
        assert (low <= true).all()
        assert (true <= high).all()
        assert (low < high).any() or "--round-to" not in options


def test_sizes_are_left_out_unless_asked_for(tmp_path):
    counts = write(tmp_path / "wards.csv", "ward,ill,well,n\nw0,1,2,3\nw1,0,3,3\n")
    done = call("protect", counts, "--round-to", 2, "--out", tmp_path / "a.csv")
    assert "sizes are left out; to write them as they are, say --keep-sizes" in done.stderr
    assert (tmp_path / "a.csv").read_text().splitlines() == ['"ward","ill","well"', '"w0",2,2', '"w1",0,4']
    call("protect", counts, "--round-to", 2, "--out", tmp_path / "b.csv", "--keep-sizes")
    assert (tmp_path / "b.csv").read_text().splitlines()[1] == '"w0","3",2,2'


def test_ids_that_are_numbers_are_named_or_what_the_columns_of_counts_leave(tmp_path):
    file = write(tmp_path / "counts.csv", "place,region,ill,well\n1,5,3,4\n2,5,5,6\n")
    done = call("protect", file, "--round-to", 3, "--out", tmp_path / "out.csv")
    assert done.exit_code == 2
    assert "no column is known to hold the id of the group; the columns are 'place', 'region'" in done.stderr
    done = call(
        "protect", file, "--round-to", 3, "--group", "place", "--classes", "ill,well", "--out", tmp_path / "1.csv"
    )
    assert "column region: this column is left out" in done.stderr
    file = write(tmp_path / "few.csv", "place,ill,well\n1,3,4\n2,5,6\n")
    done = call("protect", file, "--round-to", 3, "--classes", "ill,well", "--out", tmp_path / "2.csv")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "2.csv").read_text().splitlines()[1] == '"1",3,3'


def test_parquet_in_and_out(tmp_path):
    counts = write_parquet(tmp_path / "wards.parquet", {"group": [7, 8], "ill": [1, 0], "well": [2, 3]})
    done = call("protect", counts, "--suppress-below", 2, "--out", tmp_path / "out.parquet")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "out.published.toml").exists()


@pytest.mark.parametrize(
    ("content", "options", "sentence"),
    [
        (WARDS, (), "say how to protect the counts: with --epsilon, --round-to, --suppress-below"),
        (WARDS, ("--epsilon", 0), "--epsilon must be a positive number, got 0"),
        (WARDS, ("--epsilon", "nan"), "--epsilon must be a positive number, got nan"),
        (WARDS, ("--epsilon", 1, "--sensitivity", 0), "--sensitivity must be a positive number, got 0"),
        (WARDS, ("--epsilon", 1, "--round-to", 5), "--epsilon and --round-to do not go together"),
        (
            WARDS.replace("w1,0", "w1,<5"),
            ("--epsilon", 1),
            "row 2, column ill: exact counts are protected, whole and 0 or",
        ),
        (WARDS.replace("w1,0", "w1,"), ("--epsilon", 1), "row 2, column ill: exact counts are protected"),
        (WARDS, ("--epsilon", 1, "--classes", "ill,dead"), "there is no column 'dead', which --classes names"),
        (
            WARDS.replace("w", "1"),
            ("--epsilon", 1),
            "no column is known to hold the id of the group; the columns are",
        ),
    ],
)
def test_what_cannot_be_protected(content, options, sentence, tmp_path):
    counts, out = write(tmp_path / "wards.csv", content), tmp_path / "out.csv"
    done = call("protect", counts, *options, "--out", out)
    assert done.exit_code == 2
    assert sentence in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["wards.csv"]


def test_a_table_is_not_protected_twice_by_mistake(counts, tmp_path):
    out = tmp_path / "out.csv"
    call("protect", counts, "--epsilon", 1, "--out", out)
    before = out.read_bytes()
    done = call("protect", counts, "--epsilon", 1, "--out", out)
    assert done.exit_code == 2
    assert "counts that are published a second time with new noise tell more than epsilon allows" in done.stderr
    assert out.read_bytes() == before
    assert call("protect", counts, "--epsilon", 1, "--out", counts).exit_code == 2


def test_opendp_is_an_extra(counts, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "opendp.prelude", None)
    done = call("protect", counts, "--epsilon", 1, "--out", tmp_path / "out.csv")
    assert done.exit_code == 2
    assert 'install it with: pip install "unbag[private]"' in done.stderr
    assert not (tmp_path / "out.csv").exists()
