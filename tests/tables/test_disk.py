"""Tables that stay on disk: the same run as from memory, prepared once; each thing that goes wrong has a sentence."""

import json
import shutil
from collections import namedtuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.torch import load_file

import unbag
from unbag.persistence.run_folder import Run
from unbag.tables import TableError, check_tables, disaggregate_table, disk, fit_tables, load, make_plan

SETTINGS = {"model": "linear", "epochs": 2, "n_folds": None, "exclude": ["shade"]}


def people(n=240, scattered=True):
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(n // 6), 6)
    label = rng.integers(0, 2, n)
    age = rng.normal(size=n) + label
    order = rng.permutation(n) if scattered else np.arange(n)
    return pa.table(
        {
            "id": np.arange(n)[order],
            "group": group[order],
            "age": pa.array(age[order], mask=rng.random(n) < 0.1),
            "town": rng.choice(["Bonn", "Ulm"], n),
            "shade": [[1.0, 2.0]] * n,
            "label": label[order],
        }
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    table = people()
    (folder / "parts").mkdir()
    for place, start in enumerate(range(0, 240, 80)):
        pq.write_table(table.slice(start, 80), folder / "parts" / f"{place}.parquet", row_group_size=30)
    ids, labels = table["group"].to_numpy(), table["label"].to_numpy()
    counts = np.stack([np.bincount(labels[ids == one], minlength=2) for one in range(40)])
    pq.write_table(pa.table({"group": np.arange(40), "0": counts[:, 0], "1": counts[:, 1]}), folder / "groups.parquet")
    return folder


def plan(files, **options):
    return make_plan({"instances": files / "parts", "groups": files / "groups.parquet", **SETTINGS, **options})


@pytest.fixture(scope="module")
def runs(files):
    """A run from memory, one from disk, and one more that finds the rows of the other."""
    made = {}
    for name, options in (("memory", {}), ("disk", {"disk": files / "rows"}), ("again", {"disk": files / "rows"})):
        made[name] = fit_tables(plan(files, **options), Run(files / name))
        (written,) = (files / "rows").glob("*/rows.npy") if "disk" in options else [None]
        made[f"{name} written"] = written and written.stat().st_mtime_ns
    return made


def weights(fitted):
    """Return the arrays of the model as lists; of statistics of columns, the last bits depend on the order of rows."""
    (path,) = fitted.run.model.glob("*.safetensors")
    return {name: tensor.tolist() for name, tensor in load_file(path).items() if "classifier" not in name}


def test_scattered_groups_give_the_bits_of_a_run_from_memory(runs):
    assert weights(runs["disk"]) == weights(runs["memory"]) == weights(runs["again"])
    one, other = (unbag.load(runs[name].run.model) for name in ("memory", "disk"))
    assert one.preparation_ == other.preparation_
    assert one.get_feature_names_out().tolist() == other.get_feature_names_out().tolist()
    rows = people().select(one.preparation_.names)
    assert np.array_equal(one.predict_proba(rows), other.predict_proba(rows))
    untimed = [json.loads(json.dumps(runs[name].summary)) for name in ("memory", "disk")]
    assert untimed[0]["sets"] == untimed[1]["sets"]
    assert untimed[0]["labels"] == untimed[1]["labels"]


def test_a_later_run_reads_the_rows_of_an_earlier_one(runs):
    assert runs["disk written"] == runs["again written"]
    assert any("rows are read from" in one.message for one in runs["again"].problems)
    assert any("examined in 240 of 240 rows" in one.message for one in runs["again"].problems)


def test_labels_of_groups_are_written_alike(runs, files):
    outs = [files / f"{name}.parquet" for name in ("memory-labels", "disk-labels")]
    for name, out in zip(("memory", "disk"), outs, strict=True):
        disaggregate_table(runs[name].run, files / "parts", files / "groups.parquet", out)
    one, other = map(pq.read_table, outs)
    assert one.equals(other)
    assert one["id"].equals(pq.read_table(files / "parts")["id"])
    totals = one.group_by("group").aggregate([("p_1", "sum")]).sort_by("group")["p_1_sum"].to_numpy()
    assert np.allclose(totals, pq.read_table(files / "groups.parquet")["1"].to_numpy())


def test_several_passes_put_rows_into_the_same_places(runs, files, monkeypatch):
    monkeypatch.setattr(disk, "memory_size", lambda: 8 * 4 * 2 * 100)
    found = load.load_tables(plan(files, disk=files / "rows"))
    rows, _, _ = disk.encode_on_disk(found, files / "passes")
    (path,) = (files / "rows").glob("*/rows.npy")
    np.testing.assert_array_equal(np.load(rows.rows.paths[0]), np.load(path))


def test_subjects_follow_the_order_of_the_rows_on_disk(files):
    found = load.load_tables(plan(files, subject="town", disk=files / "subjects"))
    _, on_disk, position = disk.encode_on_disk(found, files / "subjects")
    assert found.subjects.tolist() == on_disk.subjects[position].tolist()
    assert np.unique(found.subjects).tolist() == [0, 1]
    excerpt, _ = disk.sample_groups(found)
    assert len(excerpt.subjects) == len(excerpt.instances)


def test_a_large_table_goes_to_disk_by_itself_and_a_check_looks_at_some_groups(files, monkeypatch):
    monkeypatch.setattr(load, "memory_size", lambda: 1000)
    monkeypatch.setattr(disk, "EXAMINED_ROWS", 60)
    checked = check_tables(plan(files))
    assert checked.understood["instances"]["rows"] == 240
    assert any("examined in 60 of 240 rows" in one.message for one in checked.problems)
    fit_tables(plan(files, model="auto"), Run(files / "large"))
    assert (files / "large-rows").is_dir()


def copied(files, tmp_path):
    shutil.copytree(files / "parts", tmp_path / "parts")
    shutil.copy(files / "groups.parquet", tmp_path)
    return tmp_path


def test_a_part_with_other_columns_and_one_that_is_cut_short_are_named(files, tmp_path):
    folder = copied(files, tmp_path)
    last = folder / "parts" / "2.parquet"
    whole = last.read_bytes()
    pq.write_table(pq.read_table(last).drop_columns("age"), last)
    with pytest.raises(TableError, match=r"2\.parquet: this part has other columns \(age\)"):
        fit_tables(plan(folder, disk=folder / "rows"), Run(folder / "run"))
    last.write_bytes(whole[:4] + bytes(len(whole) // 4) + whole[len(whole) // 4 + 4 :])
    with pytest.raises(TableError, match=r"2\.parquet: (row group 0: )?this is not a Parquet file, or it is truncated"):
        fit_tables(plan(folder, disk=folder / "rows"), Run(folder / "run"))


def test_a_part_that_changes_or_goes_away_while_it_is_read_is_named(files, tmp_path, monkeypatch):
    folder = copied(files, tmp_path)
    last = folder / "parts" / "2.parquet"
    found = load.load_tables(plan(folder, disk=folder / "rows"))
    write = disk._write_rows

    def change(*given):
        write(*given)
        pq.write_table(pq.read_table(last), last, row_group_size=7)

    monkeypatch.setattr(disk, "_write_rows", change)
    with pytest.raises(TableError, match=r"2\.parquet: the part was changed, added or removed while rows were read"):
        disk.encode_on_disk(found, folder / "rows")
    assert not list((folder / "rows").glob("*/manifest.json"))
    monkeypatch.setattr(disk, "_write_rows", write)
    shutil.copy(last, folder / "parts" / "3.parquet")
    shutil.copy2(files / "parts" / "2.parquet", last)  # as it was
    with pytest.raises(TableError, match=r"3\.parquet: the part was changed, added or removed while rows were read"):
        disk.encode_on_disk(found, folder / "rows")
    (folder / "parts" / "3.parquet").unlink()
    last.unlink()
    with pytest.raises(TableError, match=r"2\.parquet: the part was changed, added or removed while rows were read"):
        disk.encode_on_disk(found, folder / "rows")


def test_a_full_disk_is_told_before_anything_is_written(files, tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(disk.shutil, "disk_usage", lambda folder: usage(100, 90, 10))
    with pytest.raises(TableError, match=r"the disk is full: encoded rows take .* GB are free; name another folder"):
        fit_tables(plan(files, disk=tmp_path / "rows"), Run(tmp_path / "run"))
    assert not list((tmp_path / "rows").rglob("*.npy*"))


def test_rows_that_were_cut_short_afterwards_are_refused(runs, files, tmp_path):
    rows = tmp_path / "rows"
    shutil.copytree(files / "rows", rows)
    (path,) = rows.glob("*/rows.npy")
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(TableError, match="encoded rows are truncated or missing; remove the folder"):
        fit_tables(plan(files, disk=rows), Run(tmp_path / "run"))


def test_categories_that_only_all_rows_show_to_be_too_many_are_refused(files, tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "MAX_CATEGORIES", 1)
    with pytest.raises(TableError, match="column town: the column holds 2 different texts; leave it out"):
        disk.encode_on_disk(load.load_tables(plan(files, disk=files / "rows")), tmp_path / "rows")
    with pytest.raises(FileExistsError, match=r"is in the folder .*parts, which is read"):
        disk.encode_on_disk(load.load_tables(plan(files, disk=files / "rows")), files / "parts" / "rows")


def test_only_parquet_is_read_piece_by_piece(tmp_path):
    (tmp_path / "people.csv").write_text("group,age\n0,1\n")
    (tmp_path / "groups.csv").write_text("group,no,yes\n0,1,0\n")
    options = {"instances": tmp_path / "people.csv", "groups": tmp_path / "groups.csv", "disk": tmp_path / "rows"}
    with pytest.raises(TableError, match=r"people\.csv: rows are read piece by piece only from Parquet"):
        fit_tables(make_plan(options), Run(tmp_path / "run"))


def test_lists_of_numbers_are_features_in_memory_and_on_disk(files, tmp_path):
    table = people()
    rng = np.random.default_rng(1)
    patches = rng.normal(size=(240, 3)).astype(np.float32)
    column = pa.FixedSizeListArray.from_arrays(pa.array(patches.ravel()), 3).cast(pa.list_(pa.float32()))
    table = table.select(["id", "group", "label"]).append_column("patch", column)
    (tmp_path / "parts").mkdir()
    pq.write_table(table, tmp_path / "parts" / "0.parquet")
    shutil.copy(files / "groups.parquet", tmp_path)
    learned = [
        fit_tables(plan(tmp_path, exclude=[], **options), Run(tmp_path / name))
        for name, options in (("memory", {}), ("disk", {"disk": tmp_path / "rows"}))
    ]
    assert weights(learned[0]) == weights(learned[1])
    (path,) = (tmp_path / "rows").glob("*/rows.npy")
    assert np.load(path).dtype == np.float32
    short = table.set_column(3, "patch", pa.array([*patches[:-1].tolist(), [1.0]], pa.list_(pa.float32())))
    pq.write_table(short, tmp_path / "parts" / "0.parquet")
    with pytest.raises(TableError, match="row 240, column patch: each row needs a list of 3 numbers, got one of 1"):
        fit_tables(plan(tmp_path, exclude=[], disk=tmp_path / "rows"), Run(tmp_path / "short"))
