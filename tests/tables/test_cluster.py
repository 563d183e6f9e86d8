"""Prediction on a cluster of two workers on this machine; set UNBAG_RAY=1 to run it, which takes half a minute."""

import os
import signal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unbag.persistence.run_folder import Run
from unbag.tables import TableError, cluster, disaggregate_table, fit_tables, make_plan, predict_table
from unbag.tables.cluster import disaggregate_on_cluster, predict_on_cluster

asked = pytest.mark.skipif("UNBAG_RAY" not in os.environ, reason="starting a cluster takes long; set UNBAG_RAY=1")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(0)
    X, group = rng.normal(size=240), rng.permutation(np.repeat(np.arange(40), 6))  # groups lie across parts
    table = pa.table({"id": np.arange(240), "group": group, "x": X})
    (folder / "parts").mkdir()
    for place in range(6):
        pq.write_table(table.slice(40 * place, 40), folder / "parts" / f"{place}.parquet")
    ones = np.bincount(group, weights=X > 0).astype(int)
    pq.write_table(pa.table({"group": np.arange(40), "no": 6 - ones, "yes": ones}), folder / "groups.parquet")
    given = {"instances": folder / "parts", "groups": folder / "groups.parquet"}
    fit_tables(make_plan({**given, "model": "linear", "epochs": 2}), Run(folder / "run"))
    return folder


def test_a_folder_that_holds_something_is_left_alone(files, tmp_path):
    (tmp_path / "other.txt").touch()
    with pytest.raises(TableError, match="name one that is new or empty"):
        predict_on_cluster(Run(files / "run"), files / "parts", tmp_path)


def test_a_part_with_another_schema_is_refused_with_the_sentence_of_one_machine(files, tmp_path):
    (tmp_path / "parts").mkdir()
    for place, values in enumerate(([0.5, 1.0], [1, 2])):
        pq.write_table(pa.table({"id": [1, 2], "group": [0, 1], "x": values}), tmp_path / "parts" / f"{place}.parquet")
    said = []
    for write, out in ((predict_table, "out.parquet"), (predict_on_cluster, "out")):
        with pytest.raises(TableError, match=r"1.parquet: column x is int64 here, of another type than") as error:
            write(Run(files / "run"), tmp_path / "parts", tmp_path / out)
        said.append(str(error.value))
    assert said[0] == said[1]
    (tmp_path / "rows.csv").write_text("id,group,x\n1,0,0.5\n")
    with pytest.raises(TableError, match="write the table as such"):
        predict_on_cluster(Run(files / "run"), tmp_path / "rows.csv", tmp_path / "out")


@asked
@pytest.mark.filterwarnings("ignore")
def test_two_workers_write_what_one_machine_does_though_one_is_killed(files, monkeypatch):
    import ray  # noqa: PLC0415

    run, original, marker = Run(files / "run"), cluster._predict_part, str(files / "killed")

    def dies_once(*given):
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return original(*given)
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(cluster, "_predict_part", dies_once)
    ray.init(num_cpus=2, log_to_driver=False, include_dashboard=False)
    try:
        done, notes = predict_on_cluster(run, files / "parts", files / "on cluster")
        assert os.path.exists(marker)
        alone, same_notes = predict_table(run, files / "parts", files / "alone.parquet")
        assert (done, list(map(str, notes))) == (alone, list(map(str, same_notes)))
        assert pq.read_table(files / "on cluster").equals(pq.read_table(files / "alone.parquet"))
        assert len(list((files / "on cluster").iterdir())) == 6
        for out, write in (("one", disaggregate_table), ("two", disaggregate_on_cluster)):
            write(run, files / "parts", files / "groups.parquet", files / f"{out}.parquet")
        assert (files / "one.parquet").read_bytes() == (files / "two.parquet").read_bytes()
    finally:
        ray.shutdown()
