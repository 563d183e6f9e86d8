"""Rates of sampling, known shares and labelled rows on the command line."""

import json

import numpy as np
import pandas as pd
import pytest
from table_files import call, refuse, succeed, write

import unbag

K = 3


@pytest.fixture
def files(tmp_path):
    """Three blobs; pairs, half of them alike, and ranks; the class of every tenth row."""
    rng = np.random.default_rng(0)
    y = rng.choice(K, 300, p=[0.1, 0.3, 0.6])
    X = 6 * np.eye(K)[y] + rng.normal(size=(300, K))
    few = [str(label) if place % 10 == 0 else "" for place, label in enumerate(y)]
    rows = [f"{place},{a:.6f},{b:.6f},{c:.6f},{few[place]}\n" for place, (a, b, c) in enumerate(X)]
    write(tmp_path / "rows.csv", "id,p,q,r,known\n" + "".join(rows))
    pairs = rng.permuted(np.tile(np.arange(300), (8, 1)), axis=1).reshape(-1, 2)
    same = y[pairs[:, 0]] == y[pairs[:, 1]]
    alike = np.flatnonzero(same | (np.arange(len(pairs)) % 4 == 0))
    for name, chosen, answer in (
        ("same", alike, same),
        ("lower", np.arange(len(pairs)), y[pairs[:, 0]] < y[pairs[:, 1]]),
    ):
        lines = "".join(f"{pairs[one, 0]},{pairs[one, 1]},{int(answer[one])}\n" for one in chosen)
        write(tmp_path / f"{name}.csv", f"a,b,{name}\n{lines}")
    return tmp_path, X, y


FIT = ("--n-classes", K, "--model", "linear", "--epochs", 40, "--learning-rate", 0.05, "--seed", 1, "--json")


def test_rates_by_answer_are_those_of_the_estimator(files):
    folder, _, _ = files
    result = call("fit", folder / "rows.csv", folder / "same.csv", "--exclude", "known", "--sampling", "0=0.25,1=1",
                  "--out", folder / "run", *FIT)  # fmt: skip
    assert result.exit_code == 0, result.output
    content = json.loads(result.stdout)
    assert content["summary"]["sets"][0]["weights"][1] > content["summary"]["sets"][0]["weights"][0]
    assert content["summary"]["inputs"]["observations"][0].endswith("sampled at 0=0.25, 1=1")
    assert unbag.load(folder / "run" / "model").sampling == {"0": 0.25, "1": 1.0}
    out = folder / "labels.csv"
    succeed("disaggregate", folder / "run", folder / "rows.csv", folder / "same.csv", "--out", out)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--sampling", "alike"), "--sampling must be like 0=0.1,1=1 or 0.04, each name once; got 'share=alike'"),
        (("--sampling", "0=0.1"), "there is none for 1"),
        (("--class-shares", "0=0.5,1=0.5"), "each of the classes ['0', '1', '2']"),
        (("--class-shares", "0.5,0.5"), "--class-shares must be like ill=0.1,well=0.9"),
        (("--labelled", "kown"), "did you mean 'known'?"),
    ],
)
def test_what_cannot_be_is_refused(given, said, files):
    folder, _, _ = files
    result = refuse("check", folder / "rows.csv", folder / "same.csv", "--n-classes", K, *given)
    assert said in " ".join(result.output.split())


def test_labelled_rows_and_known_shares_name_classes_and_tell_borders(files):
    folder, X, y = files
    check = ("check", folder / "rows.csv", folder / "lower.csv", "--n-classes", K, "--aggregate", "ordinal_rank")
    assert "hardly where one of the 3 classes ends" in " ".join(call(*check, "--exclude", "known").output.split())
    for place, given in enumerate(
        [
            ("--labelled", "known"),
            ("--exclude", "known", "--class-shares", "0=0.1,1=0.3,2=0.6", "--class-shares-error", 0.02),
        ]
    ):
        assert "hardly where" not in call(*check, *given).output
        for kind in ("same", "lower"):
            aggregate = ("--aggregate", "ordinal_rank" if kind == "lower" else "pairwise_similarity")
            out = folder / f"{kind}-{place}"
            sampling = ("--sampling", "0=0.25,1=1") if kind == "same" else ()
            result = call(
                "fit", folder / "rows.csv", folder / f"{kind}.csv", *given, *aggregate, *sampling, "--out", out, *FIT
            )
            assert result.exit_code == 0, result.output
            clf = unbag.load(out / "model")
            assert clf.symmetry_ == "none"
            assert (clf.predict(pd.DataFrame(X, columns=clf.feature_names_in_)).astype(int) == y).mean() > 0.9
            assert "class_shares" in str(clf) if place else isinstance(clf.aggregate, list)
