"""``unbag report`` and ``unbag demo``."""

import json
import re
from pathlib import Path

import pytest
from report_runs import summary_of
from typer.testing import CliRunner

from unbag import cli
from unbag.cli import demo
from unbag.persistence.run_folder import Run
from unbag.report import FORMAT
from unbag.tables import make_plan


def call(*arguments: object):
    return CliRunner(env={"COLUMNS": "300", "TERM": "dumb"}).invoke(cli.app, [str(one) for one in arguments])


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A folder with the summary of a run, as the demonstration leaves it."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "summary.json").write_text(json.dumps({**summary_of("multiple_instance"), "title": "Bags"}))
    return folder


def one_sentence(result) -> str:
    """Return the error of a command that failed as it should."""
    assert result.exit_code == 2
    assert result.stdout == ""
    return result.stderr.splitlines()[0]


def test_a_report_is_written_into_the_run_or_elsewhere(run, tmp_path):
    result = call("report", run)
    assert result.exit_code == 0
    assert result.stdout == f"The report is in {run / 'report.html'}\n"
    page = (run / "report.html").read_text()
    assert "<title>Bags</title>" in page
    assert call("report", run, "--out", tmp_path / "page.html").exit_code == 0
    assert (tmp_path / "page.html").read_text() == page
    assert {path.name for path in run.iterdir()} == {"summary.json", "report.html"}


def test_what_is_no_run_is_refused(tmp_path):
    assert "missing does not exist; name the folder of a run" in one_sentence(call("report", tmp_path / "missing"))
    (tmp_path / "file").touch()
    assert "file is a file; name the folder of a run" in one_sentence(call("report", tmp_path / "file"))
    assert "has no run, because summary.json is missing" in one_sentence(call("report", tmp_path))


def test_an_unfinished_run_is_refused_with_or_without_an_old_summary(run):
    plan = make_plan({"instances": "people.csv", "groups": "wards.csv"}).as_dict()
    with Run(run).training(plan, {}, resumed=False):
        pass
    assert "is not finished; resume it by the unbag fit that started it" in one_sentence(call("report", run))
    (run / "summary.json").touch()
    assert "is not finished" in one_sentence(call("report", run))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "summary.json is damaged: EOF while parsing"),
        ('{"format": 1, "ti', "summary.json is damaged"),
        ("[" * 200_000, "summary.json is damaged"),
        ("[]", "summary.json is damaged: it is not a JSON object"),
        ("{}", "summary.json: this is not a summary of a run"),
        (json.dumps({"format": FORMAT + 1}), "summary.json: the summary has format 4"),
        (json.dumps({"format": FORMAT}), "the summary is not one that unbag wrote"),
    ],
)
def test_a_damaged_summary_is_refused_and_leaves_the_old_report(run, content, said):
    (run / "report.html").write_text("old")
    (run / "summary.json").write_text(content)
    assert said in one_sentence(call("report", run))
    assert (run / "report.html").read_text() == "old"
    assert len(list(run.iterdir())) == 2


def test_a_folder_in_place_of_the_page_is_refused(run, tmp_path):
    assert "is a folder; name a file in it" in one_sentence(call("report", run, "--out", tmp_path))


@pytest.fixture
def quick(monkeypatch):
    """Stop the demonstration after its first models, and record its calls."""
    calls, slow = [], demo.run

    def fast(title, seed, **options):
        calls.append(seed)
        return slow(title, seed, epochs=2, time_limit=1e-3, **options)

    monkeypatch.setattr(demo, "run", fast)
    return calls


def test_the_demonstration_ends_with_a_table_and_a_report(quick, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = call("demo", "--seed", 3)
    assert result.exit_code == 0, result.stderr
    assert quick == [3]
    assert result.stderr.count("% of 453 new images correct") == 4
    assert "224 groups of 6 images" in result.stderr
    rows = re.findall(r"^\s*(\S.*?)\s{2,}(\d+\.\d)%\s+\d+\s*$", result.stdout, flags=re.MULTILINE)
    assert [method for method, _ in rows] == [
        "unbag, default",
        "log-likelihood of one network",
        "mean proportion (DLLP)",
        "every label (supervised ceiling)",
    ]
    assert min(float(accuracy) for _, accuracy in rows) > 15  # guessing is correct one time in ten
    page = tmp_path / "unbag-demo" / "report.html"
    assert result.stdout.endswith(f"The report is in {page}\n")
    summary = json.loads((tmp_path / "unbag-demo" / "summary.json").read_text())
    assert summary["labels"]["rows"] == 453
    assert summary["labels"]["rows_in_groups"] == 0
    assert summary["labels"]["accuracy"] == summary["comparison"][0]["accuracy"]
    assert summary["sets"][0]["groups"] == 224
    first = page.read_bytes()
    assert call("report", "unbag-demo").exit_code == 0
    assert page.read_bytes() == first


def test_the_demonstration_touches_no_folder_of_somebody_else(quick, run, tmp_path):
    before = (run / "summary.json").read_bytes()  # of another run
    assert "has other files, such as summary.json" in one_sentence(call("demo", "--out", run))
    assert (run / "summary.json").read_bytes() == before
    for name in ("summary.json", "report.html"):
        (tmp_path / name[0]).mkdir()
        (tmp_path / name[0] / name).write_text("mine")
        assert f"has other files, such as {name}" in one_sentence(call("demo", "--out", tmp_path / name[0]))
    (tmp_path / "file").touch()
    assert "file is a file; name a folder with --out" in one_sentence(call("demo", "--out", tmp_path / "file"))
    assert quick == []


def test_a_full_disk_costs_the_report_but_not_the_table(quick, tmp_path, monkeypatch):
    def full(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr("unbag.cli.commands.write_atomic", full)
    monkeypatch.setattr(
        demo, "run", lambda *_, **__: {"comparison": [{"method": "m", "accuracy": 0.5, "seconds": 1.0}]}
    )
    result = call("demo", "--out", tmp_path / "new")
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (2, "no space left on device")
    assert "50.0%" in result.stdout
