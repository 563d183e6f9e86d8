import csv
import json

import numpy as np
import pytest
from table_files import BAGS, PEOPLE, blobs, call, refuse, succeed, write

TRAINING = (
    "--model", "linear", "--epochs", 20, "--batch-size", 1000, "--validation-fraction", 0, "--scaling", "standard",
    "--learning-rate", 0.05,
)  # fmt: skip


def add_weights(file, weights):
    """Write files with weights, and with rows that are repeated as often, beside one of observations."""
    head, *lines = file.read_text().splitlines()
    rows = [f"{line},{weight}" for line, weight in zip(lines, weights, strict=True)]
    again = [line for line, weight in zip(lines, weights, strict=True) for _ in range(weight)]
    weighted = write(file.with_name("weighted.csv"), "\n".join([f"{head},how often", *rows]))
    return weighted, write(file.with_name("repeated.csv"), "\n".join([head, *again]))


@pytest.mark.parametrize(("name", "n_groups"), [("pairs", 60), ("triplets", 60), ("ranks", 60)])
def test_a_column_of_weights_counts_rows_as_often(name, n_groups, tmp_path):
    blobs(tmp_path)
    kind = {"pairs": "pairwise_similarity", "triplets": "triplet_comparison", "ranks": "ordinal_rank"}[name]
    files = add_weights(tmp_path / f"{name}.csv", np.random.default_rng(0).integers(0, 4, n_groups))
    shares = []
    for place, (file, more) in enumerate(zip(files, [("--group-weight", "how often"), ()], strict=True)):
        common = ("--aggregate", kind, "--n-classes", 2, "--out", tmp_path / f"run{place}", *TRAINING)
        succeed("fit", tmp_path / "people.csv", file, *common, *more)
        call("predict", tmp_path / f"run{place}", tmp_path / "people.csv", "--out", tmp_path / "p.csv")
        with open(tmp_path / "p.csv") as lines:
            shares.append([float(row["p_1"]) for row in csv.DictReader(lines)])
    np.testing.assert_allclose(shares[0], shares[1], atol=1e-4)
    one, same = (json.loads((tmp_path / f"run{place}" / "summary.json").read_text()) for place in (0, 1))
    for figure in ("model", "trivial", "better"):
        assert one["sets"][0]["likelihood"][figure] == pytest.approx(same["sets"][0]["likelihood"][figure], abs=1e-4)
    assert one["sets"][0]["weights"] == [1.0, 3.0]
    assert "weighted by how often" in one["inputs"]["observations"][0]
    observed = (tmp_path / "people.csv", tmp_path / f"{name}.csv")  # without weights
    succeed("disaggregate", tmp_path / "run0", *observed, "--out", tmp_path / "labels.csv")
    succeed("report", tmp_path / "run0")
    assert "Means are weighted, with weights from 1 to 3" in (tmp_path / "run0" / "report.html").read_text()


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ("1,,2,3", "row 2, column weight: a weight must be a number of at least 0, got None"),
        ("1,-2,2,3", "row 2, column weight: a weight must be a number of at least 0, got -2"),
        ("0,0,0,0", "column weight: all weights are 0, so that nothing is left"),
        ("a,b,c,d", "row 1, column weight: a weight must be a number of at least 0, got 'a'"),
    ],
)
def test_weights_that_are_refused(weights, message, tmp_path):
    head, *lines = BAGS.splitlines()
    rows = [f"{line},{weight}" for line, weight in zip(lines, weights.split(","), strict=True)]
    files = write(tmp_path / "people.csv", PEOPLE), write(tmp_path / "bags.csv", "\n".join([f"{head},weight", *rows]))
    checked = refuse("check", *files, "--aggregate", "multiple_instance", "--group-weight", "weight")
    assert message in checked.stdout


def test_check_names_the_column_and_what_is_left_out(tmp_path):
    files = (
        write(tmp_path / "people.csv", PEOPLE),
        write(tmp_path / "bags.csv", "ward,positive,w\nw0,1,1\nw1,0,0\nw2,1,2\nw3,0,0.5\n"),
    )
    checked = succeed("check", *files, "--group-weight", "w")
    assert "weight       column w" in checked.stdout
    assert "column w: 1 row is left out, because the weight is 0" in checked.stdout
    unknown = call("check", *files, "--group-weight", "v")
    assert "there is no column 'v', which --group-weight names" in unknown.stdout
