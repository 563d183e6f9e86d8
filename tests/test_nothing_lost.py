"""What is the user's stays: no command writes over what it reads, and no run removes what it has not written."""

import json
import os
import shutil
from pathlib import Path

import pytest
from table_files import PEOPLE, WARDS, call, write, write_parquet

from unbag._utils.files import locked
from unbag.persistence.run_folder import Run

QUICK = ["--epochs", 2, "--model", "linear", "--scaling", "standard"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with two files, which is the current one."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "people.csv", PEOPLE)
    write(tmp_path / "wards.csv", WARDS)
    return tmp_path


@pytest.fixture
def run(folder):
    assert fit().exit_code == 0
    return folder / "run"


def fit(*options, out="run"):
    return call("fit", "people.csv", "wards.csv", "--out", out, *QUICK, *options)


def content_of(folder: Path) -> dict[str, bytes]:
    """Return every file in a folder."""
    return {str(one.relative_to(folder)): one.read_bytes() for one in sorted(folder.rglob("*")) if one.is_file()}


def refused(result, sentence):
    assert result.exit_code == 2, result.output
    assert sentence in result.stderr


# ------------------------------------------------------------------------------------------- what a command reads


def spellings(folder: Path, name: str) -> list[str]:
    """Return other paths to the same file."""
    (folder / "inner").mkdir()
    (folder / "linked").symlink_to(folder, target_is_directory=True)
    link, hard = folder / "link.csv", folder / "hard.csv"
    link.symlink_to(folder / name)
    os.link(folder / name, hard)
    return [name, str(folder / name), f"inner/../{name}", f"linked/{name}", "link.csv", "hard.csv"]


@pytest.mark.parametrize("name", ["people.csv", "wards.csv"])
def test_no_input_is_written_over(run, folder, name):
    outs = spellings(folder, name)
    before = content_of(folder)
    for out in outs:
        if name == "people.csv":
            refused(call("predict", "run", "people.csv", "--out", out), "read; name another file to write")
        refused(call("disaggregate", "run", "people.csv", "wards.csv", "--out", out), "name another file to write")
    assert content_of(folder) == before


def test_nothing_is_written_into_a_folder_that_is_read(run, folder):
    (folder / "parts").mkdir()
    write_parquet(folder / "parts" / "a.parquet", {"id": [1], "age": [22], "town": ["Ulm"]})
    before = content_of(folder)
    for out in ("parts/a.parquet", "parts/new.parquet", "parts/../parts/new.csv"):
        refused(call("predict", "run", "parts", "--out", out), "is in the folder parts, which is read")
    assert content_of(folder) == before
    assert call("predict", "run", "parts", "--out", "p.parquet").exit_code == 0


def test_a_run_is_not_written_over_by_what_is_made_of_it(run, folder):
    (weights,) = (run / "model").glob("weights-*")
    before = content_of(folder)
    for out in ("run/run.json", "run/summary.json", "run/model/model.json", "run/.lock"):
        refused(call("report", "run", "--out", out), "read; name another file to write")
    refused(call("report", "run", "--out", weights), "read; name another file to write")
    (folder / "p.csv").symlink_to(run / "run.json")
    refused(call("predict", "run", "people.csv", "--out", "p.csv"), "is the same file as run/run.json, which is read")
    (folder / "p.csv").unlink()
    assert content_of(folder) == before
    assert call("report", "run").exit_code == 0
    assert call("report", "run").exit_code == 0  # over its own
    assert call("predict", "run", "people.csv", "--out", "run/predicted.csv").exit_code == 0


# -------------------------------------------------------------------------------------------- what --force removes


def test_force_removes_what_the_run_has_written_and_nothing_else(run, folder):
    assert call("report", "run").exit_code == 0
    mine = [run / "notes.txt", run / "model" / "mine.txt", run / "model" / "weights-mine.safetensors"]
    (run / "checkpoint").mkdir()
    mine.append(run / "checkpoint" / "mine.txt")
    for one in mine:
        write(one, "mine")
    old = content_of(run)
    assert fit("--force", "--seed", 1).exit_code == 0
    assert [one.read_text() for one in mine] == ["mine"] * 4
    new = content_of(run)
    assert "report.html" not in new  # it was of the old run
    assert len(new) == len(old) - 1
    assert call("predict", "run", "people.csv", "--out", "p.csv").exit_code == 0


@pytest.mark.parametrize(
    "content",
    ['{"name": "my project"}', "{}", "[]", "", '{"format": 2, "status": "finished", "files": {"notes.txt": null}}'],
)
def test_a_run_json_of_somebody_else_is_refused(folder, content):
    (folder / "proj" / "model").mkdir(parents=True)
    write(folder / "proj" / "run.json", content)
    write(folder / "proj" / "model" / "mine.txt", "mine")
    before = content_of(folder)
    refused(fit("--force", out="proj"), "run.json: the ")
    refused(fit(out="proj"), "with unbag fit in another folder")
    assert content_of(folder) == before


def test_a_file_that_was_altered_is_not_removed(run, folder):
    write(run / "summary.json", "mine")
    before = content_of(folder)
    refused(fit("--force"), "summary.json was altered since the run wrote it; move it elsewhere")
    assert content_of(folder) == before
    (run / "summary.json").unlink()
    assert fit("--force").exit_code == 0


# ---------------------------------------------------------------------------------------------- runs and their parts


def test_refused_options_leave_the_folder_as_it_was(folder):
    before = content_of(folder)
    for options in (
        ["--model", "xgboost"],
        ["--loss", "no_such"],
        ["--scaling", "no_such"],
        ["--n-restarts", 0],
        ["--validation-fraction", 2],
        ["--learning-rate", -1],
        ["--patience", -1],
    ):
        assert fit(*options, out="new/run").exit_code == 2
        assert not (folder / "new").exists()
    assert fit().exit_code == 0
    before = content_of(folder)
    assert fit("--force", "--model", "xgboost").exit_code == 2
    assert content_of(folder) == before


def test_parts_of_two_runs_do_not_go_together(run, folder):
    assert fit("--exclude", "town", "--seed", 1, out="other").exit_code == 0
    mixed = folder / "mixed"
    predict = ["predict", "mixed", "people.csv", "--out", "p.csv"]
    for part in ("model", "summary.json", "run.json"):
        shutil.copytree(run, mixed)
        if part == "model":
            shutil.rmtree(mixed / part)
            shutil.copytree(folder / "other" / part, mixed / part)
        else:
            shutil.copy(folder / "other" / part, mixed / part)
        refused(call(*predict), "is not the file that the run has written")
        refused(call("report", "mixed"), "is not the file that the run has written")
        shutil.rmtree(mixed)
    shutil.copytree(run, mixed)  # a run may be moved
    assert call(*predict).exit_code == 0


@pytest.mark.parametrize("change", [{"status": "unfinished"}, {"date": "2000"}, {"files": {}}, {"sha256": None}])
def test_a_run_file_that_was_altered_is_refused(run, folder, change):
    head = json.loads((run / "run.json").read_text())
    write(run / "run.json", json.dumps({**head, **change}))
    refused(call("predict", "run", "people.csv", "--out", "p.csv"), "the file was altered after it was written")
    refused(fit("--force"), "the file was altered after it was written")


def test_a_run_that_another_process_writes_is_refused_at_once(run, folder):
    before = content_of(folder)
    with locked(run):
        for options in ([], ["--force"], ["--force", "--exclude", "town"]):
            refused(fit(*options), "another process is writing to run; wait until it is done, or name another folder")
    assert content_of(folder) == before
    assert fit("--force").exit_code == 0


@pytest.mark.parametrize(
    "left", [[], [".lock"], [".lock", f".run.json.{32 * 'a'}.part"], [f".run.json.{32 * 'a'}.part"]]
)
def test_what_a_kill_before_the_first_write_leaves_is_no_obstacle(folder, left):
    (folder / "run").mkdir()
    for name in left:
        write(folder / "run" / name, '{"format"')
    assert fit().exit_code == 0
    assert not list((folder / "run").glob(".*.part"))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
@pytest.mark.parametrize("name", ["run.json", "summary.json"])
def test_a_pipe_in_place_of_a_file_of_a_run_is_not_waited_for(tmp_path, name):
    os.mkfifo(tmp_path / name)
    reads = {"run.json": Run(tmp_path).read, "summary.json": Run(tmp_path).read_summary}
    with pytest.raises(ValueError, match="no regular file"):
        reads[name]()
