"""Folders of bags: files of every kind, a table with their labels, and what does not fit."""

import sys
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from safetensors.torch import save_file
from table_files import call

import unbag
from unbag import AggregateClassifier, CrossFitting

ROWS = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
PARTS = np.split(ROWS, 20)
NAMES = [f"{number:03d}" for number in range(20)]
LABELS = pd.DataFrame({"slide": NAMES, "label": ["tumour", "normal"] * 10})


@pytest.fixture
def folder(tmp_path):
    for name, rows in zip(NAMES, PARTS, strict=True):
        np.save(tmp_path / f"{name}.npy", rows)
    (tmp_path / ".hidden.npy").write_bytes(b"")
    return tmp_path


@pytest.fixture
def table(folder):
    LABELS.iloc[::-1].to_csv(folder / "labels.csv", index=False)
    return folder / "labels.csv"


def test_rows_and_labels_are_in_the_order_of_the_files(folder, table):
    found = unbag.read_bags(folder, table)
    np.testing.assert_array_equal(found.X, ROWS)
    assert found.y.tolist() == LABELS["label"].tolist()
    assert (found.groups.ids, found.groups.sizes.tolist()) == (NAMES, [3] * 20)
    for given in (LABELS, pl.from_pandas(LABELS), LABELS.assign(slide=LABELS["slide"] + ".npy")):
        assert unbag.read_bags(folder, given).y.tolist() == found.y.tolist()
    wide = LABELS.assign(scanner="b", positive=[1, 0] * 10)
    numbers = unbag.read_bags(folder, wide, file="slide", label="positive")
    assert numbers.y.tolist() == [1, 0] * 10


@pytest.mark.filterwarnings("ignore::unbag.UnbagWarning")
def test_a_classifier_learns_from_a_folder_in_memory_and_on_disk(folder, table):
    settings = {"classes": ["normal", "tumour"], "random_state": 0, "validation": CrossFitting(2), "n_jobs": 1}
    settings["training"] = unbag.NetworkTraining(2)
    found = []
    for on_disk in (False, True):
        bags = unbag.read_bags(folder, table, on_disk=on_disk)
        clf = AggregateClassifier("multiple_instance", "linear", **settings).fit(bags.X, bags.y, groups=bags.groups)
        found.append(clf.predict_groups(bags.X, bags.groups))
    np.testing.assert_array_equal(*found)


def write_all_kinds(folder):
    rows = [torch.from_numpy(part) for part in PARTS]
    torch.save(rows[0], folder / "000.pt")
    torch.save({"coords": rows[1][:, :2], "features": rows[1].bfloat16()}, folder / "001.pt")
    save_file({"features": rows[2].half(), "coords": rows[2].clone()}, folder / "002.safetensors")
    (folder / "003.h5").write_bytes(b"")
    for number in range(4):
        (folder / f"{NAMES[number]}.npy").unlink()


class H5File:
    """Stands for a file of h5py with two data sets and a group."""

    def __init__(self, path, mode):
        assert (path.name, mode) == ("003.h5", "r")

    def __enter__(self):
        return {"features": PARTS[3].astype(np.float64), "coords": np.zeros((3, 2)), "group": SimpleNamespace()}

    def __exit__(self, *_):
        pass


def test_files_of_every_kind(folder, table):
    write_all_kinds(folder)
    save_file({"features": torch.from_numpy(PARTS[4])}, folder / "004.safetensors")
    (folder / "004.npy").unlink()
    with patch.dict(sys.modules, {"h5py": SimpleNamespace(File=H5File)}):
        with pytest.raises(ValueError, match=r"001\.pt contains 'coords', 'features'; pass array= with the name"):
            unbag.read_bags(folder, table)
        (folder / "000.pt").rename(folder / "other")
        torch.save({"features": torch.from_numpy(PARTS[0])}, folder / "000.pt")
        found = unbag.read_bags(folder, table, array="features")
        with pytest.raises(ValueError, match=r"000\.pt contains no 'x', but 'features'"):
            unbag.read_bags(folder, table, array="x")
    np.testing.assert_allclose(found.X, ROWS, atol=0.02)
    np.testing.assert_array_equal(found.X[9:], ROWS[9:])
    with patch.dict(sys.modules, {"h5py": None}), pytest.raises(ImportError, match=r"003\.h5 needs the package h5py"):
        unbag.read_bags(folder, table, array="features")


class Bomb:
    def __reduce__(self):
        return pytest.fail, ("a file has run code",)


@pytest.mark.parametrize(
    ("name", "write", "message"),
    [
        ("000.npy", lambda path: path.write_bytes(b"no array"), r"000\.npy cannot be read: .*; write it again"),
        ("000.npy", lambda path: np.save(path, np.array([Bomb()]), allow_pickle=True), r"000\.npy cannot be read: "),
        ("000.npy", lambda path: np.save(path, ROWS[:3, :2]), r"same columns, but .*001\.npy has 3 and 000"),
        ("000.npy", lambda path: np.save(path, ROWS[:0]), r"must hold .* got float32 of shape \(0, 3\)"),
        ("000.npy", lambda path: np.save(path, ROWS[0]), r"000\.npy must hold .* got float32 of shape \(3,\)"),
        ("000.pt", lambda path: torch.save(Bomb(), path), r"000\.pt and 000\.npy are files of the same bag"),
        ("x.npy", lambda path: np.save(path, ROWS), r"labels\.csv, column slide: there is no row for the files 'x'"),
        ("005.npy", lambda path: path.unlink(), r"column slide: there is no file in .* for '005'; remove their rows"),
    ],
)
def test_files_that_do_not_fit_are_named(folder, table, name, write, message):
    write(folder / name)
    with pytest.raises(ValueError, match=message):
        unbag.read_bags(folder, table)


def test_a_pickle_is_not_executed(folder, table):
    (folder / "000.npy").unlink()
    torch.save(Bomb(), folder / "000.pt")
    with pytest.raises(ValueError, match=r"000\.pt cannot be read: "):
        unbag.read_bags(folder, table)


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (lambda t: t.assign(age=3), {}, "pass file= and label=, .* its columns 'slide', 'label', 'age'"),
        (lambda t: t, {"file": "slide", "label": "class"}, "no column 'class'; its columns are 'slide', 'label'"),
        (lambda t: t.replace("tumour", None), {}, "table, row 1, column label: the cell is empty; fill it in"),
        (lambda t: pd.concat([t, t[:1]]), {}, "table, row 21, column slide: '000' has several rows; keep one"),
    ],
)
def test_tables_that_do_not_fit_are_named(folder, change, options, message):
    with pytest.raises(ValueError, match=message):
        unbag.read_bags(folder, change(LABELS), **options)


def test_folders_without_bags_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        unbag.read_bags(tmp_path / "none", LABELS)
    with pytest.raises(ValueError, match=r"contains no file that ends in \.npy, \.pt"):
        unbag.read_bags(tmp_path, LABELS)


def test_files_with_labels_of_bags_as_words(tmp_path):
    rows = [f"{NAMES[row // 3]},{x}" for row, x in enumerate(ROWS[:, 0].tolist())]
    (tmp_path / "rows.csv").write_text("\n".join(["slide,x", *rows]))
    options = {"aggregate": "multiple_instance", "classes": ["normal", "tumour"]}
    for column in ("label", "negative"):  # the name of the column would otherwise exchange 0 and 1
        LABELS.set_axis(["slide", column], axis=1).to_csv(tmp_path / "slides.csv", index=False)
        data = unbag.read_tables(tmp_path / "rows.csv", tmp_path / "slides.csv", **options)
        assert data.y.z.tolist() == [1, 0] * 10
    with pytest.raises(ValueError, match="name the classes, the positive one last: --classes"):
        unbag.read_tables(tmp_path / "rows.csv", tmp_path / "slides.csv", **options | {"classes": None})
    LABELS.replace("normal", "norml").to_csv(tmp_path / "slides.csv", index=False)
    with pytest.raises(ValueError, match="must be one of the classes 'normal', 'tumour', got 'norml'"):
        unbag.read_tables(tmp_path / "rows.csv", tmp_path / "slides.csv", **options)


def test_a_folder_of_bags_on_the_command_line(folder, table, tmp_path_factory):
    refused = call("check", folder, table)
    assert "last: --classes normal,tumour or --classes tumour,normal" in " ".join(refused.output.split())
    elsewhere = tmp_path_factory.mktemp("out")
    run, out = elsewhere / "run", elsewhere / "out.csv"
    options = ["--classes", "normal,tumour", "--model", "linear", "--n-folds", 2, "--out", run]
    assert call("fit", folder, table, *options).exit_code == 0
    assert call("predict", run, folder, "--out", out).exit_code == 0
    predicted = pd.read_csv(out, dtype=str)
    assert predicted["bag"].tolist() == [name for name, rows in zip(NAMES, PARTS, strict=True) for _ in rows]
    assert call("predict", run, folder, "--groups", table, "--out", out).exit_code == 0
    assert len(pd.read_csv(out)) == len(NAMES)
    np.save(folder / "000.npy", PARTS[0][:, :2])
    assert "all bags must have the same columns" in " ".join(call("check", folder, table).output.split())
