"""The commands on tables, from two files to predictions."""

import gzip
import io
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from table_files import BAGS, PAIRS, PEOPLE, WARDS, blobs, call, refuse, succeed, write, write_parquet

import unbag
from unbag.tables.options import Training
from unbag.training import Checkpoint

KINDS = {
    "counts.csv": [],
    "bags.csv": [],
    "pairs.csv": ["--n-classes", "2"],
    "ranks.csv": ["--n-classes", "2"],
    "triplets.csv": ["--aggregate", "triplet_comparison", "--n-classes", "2"],
    "ordinal_triplets.csv": ["--aggregate", "ordinal_triplet", "--n-classes", "2"],
}
QUICK = ["--model", "linear", "--n-folds", 2, "--jobs", 1]
NETWORK = ["--model", "linear", "--epochs", 3]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Enter a folder with files of blobs, and return the true classes."""
    monkeypatch.chdir(tmp_path)
    return blobs(tmp_path)


@pytest.fixture
def files(tmp_path):
    """A file of people and one of counts."""
    return [write(tmp_path / "people.csv", PEOPLE), write(tmp_path / "wards.csv", WARDS)]


def table(path):
    return (pq.read_table(path) if path.suffix == ".parquet" else pacsv.read_csv(path)).to_pydict()


@pytest.mark.parametrize("file", ["counts.csv", "bags.csv", "ranks.csv", "triplets.csv"])
def test_all_commands_on_each_kind_of_observation(file, tmp_path, here):
    succeed("check", "people.csv", file, *KINDS[file])
    fitted = succeed("fit", "people.csv", file, "--out", "run", *KINDS[file], *QUICK)
    assert re.search(r"labels +accuracy \d+\.\d% on 160 labelled rows", fitted.stdout)
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert run["status"] == "finished"
    assert not (tmp_path / "run" / "checkpoint").exists()
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["data"]["rows"] == 160
    succeed("predict", "run", "people.csv", "--out", "predicted.csv")
    predicted = table(tmp_path / "predicted.csv")
    assert list(predicted) == ["id", "predicted", "p_0", "p_1"]
    assert predicted["id"] == [f"p{i}" for i in range(160)]
    assert np.allclose(np.add(predicted["p_0"], predicted["p_1"]), 1)
    assert predicted["predicted"] == [int(b > a) for a, b in zip(predicted["p_0"], predicted["p_1"], strict=True)]
    succeed("disaggregate", "run", "people.csv", file, "--out", "labels.parquet")
    labels = table(tmp_path / "labels.parquet")
    lines = {"counts.csv": 160, "bags.csv": 160, "pairs.csv": 120, "ranks.csv": 120}.get(file, 180)
    assert len(labels["p_0"]) == lines
    assert np.allclose(np.add(labels["p_0"], labels["p_1"]), 1)
    if file == "counts.csv":  # the probabilities of a group add up to its counts, row by row in the order of people.csv
        assert labels["id"] == predicted["id"]
        counts = table(tmp_path / "counts.csv")
        assert np.allclose(np.reshape(labels["p_1"], (40, 4)).sum(1), counts["1"])
    elif file == "ranks.csv":  # also where the pair is turned round
        members = dict(zip(zip(labels["observation"], labels["member"], strict=True), labels["id"], strict=True))
        pairs = table(tmp_path / "ranks.csv")
        assert members == {(row + 1, name): pairs[name][row] for row in range(60) for name in ("first", "second")}
    elif file != "bags.csv":
        assert labels["observation"][:3] == [1, 1, 1 if "triplets" in file else 2]


@pytest.mark.parametrize("file", ["counts.csv", "pairs.csv"])
def test_trees_read_missing_values_as_they_are(file, tmp_path, here):
    pytest.importorskip("lightgbm")
    rows = (tmp_path / "people.csv").read_text().splitlines()
    rows[1::9] = [re.sub(r"^(p\d+,g\d+),[^,]*", r"\1,", row) for row in rows[1::9]]
    write(tmp_path / "people.csv", "\n".join(rows))
    fitted = succeed("fit", "people.csv", file, "--out", "run", *KINDS[file], "--model", "trees", "--n-folds", 2)
    assert "18 of 160 values are missing, first row 1; trees read them as they are" in fitted.output
    succeed("predict", "run", "people.csv", "--out", "predicted.parquet")
    people, predicted = table(tmp_path / "people.csv"), table(tmp_path / "predicted.parquet")
    X = pd.DataFrame(people)[["x", "letter"]]
    assert X["x"].isna().sum() == 18
    assert np.allclose(unbag.load(tmp_path / "run" / "model").predict_proba(X)[:, 1], predicted["p_1"], atol=1e-12)
    succeed("disaggregate", "run", "people.csv", file, "--out", "labels.parquet")
    succeed("report", "run")


def test_the_automatic_model_is_the_default(tmp_path, here):
    fitted = succeed("fit", "people.csv", "counts.csv", "--exclude", "label", "--out", "run", "--n-folds", 2)
    shown = " ".join(fitted.stdout.split())
    assert re.match(r"Estimated accuracy on rows of new groups: [\d.]+%", shown)
    assert "groups 40, held out once each in 2 folds; " in shown
    for name in ("linear", "network", "trees"):
        assert re.search(rf"{name} \d+%", shown)
    succeed("predict", "run", "people.csv", "--out", "predicted.csv")
    assert len({*table(tmp_path / "predicted.csv")["predicted"]}) == 2
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert unbag.load(tmp_path / "run" / "model").candidates_ == summary["training"]["candidates"]
    succeed("report", "run")
    assert "Estimated accuracy on rows of new groups" in (tmp_path / "run" / "report.html").read_text()


def test_several_files_learn_together_and_are_told_apart(tmp_path, here):
    also = ["--also", "pairwise_similarity=pairs.csv", "--also", "multiple_instance=bags.csv"]
    fitted = succeed("fit", "people.csv", "counts.csv", *also, "--out", "run", *QUICK, "--json")
    kinds = [one["kind"] for one in json.loads(fitted.stdout)["summary"]["sets"]]
    assert kinds == ["label_proportions", "pairwise_similarity", "multiple_instance"]
    call("disaggregate", "run", "people.csv", "pairs.csv", "-a", "pairwise_similarity", "-o", "labels.csv")
    assert len(table(tmp_path / "labels.csv")["id"]) == 120
    wrong = refuse("disaggregate", "run", "people.csv", "ranks.csv", "-a", "ordinal_rank", "-o", "labels.csv")
    assert "the run was fitted to label_proportions, pairwise_similarity, multiple_instance, not" in wrong.stderr
    refuse("fit", "people.csv", "counts.csv", "--also", "pairs.csv", "--out", "x")


def test_a_few_labels_name_the_classes_of_pairs(tmp_path, here):
    y = here
    lines = (tmp_path / "people.csv").read_text().splitlines()
    few = [*np.flatnonzero(y == 0)[:5].tolist(), *np.flatnonzero(y == 1)[:5].tolist()]
    told = ["known", *(("low", "high")[y[i]] if i in few else "" for i in range(160))]
    rows = [f"{line.rsplit(',', 1)[0]},{name}\n" for line, name in zip(lines, told, strict=True)]
    write(tmp_path / "people.csv", "".join(rows))
    fit = ["fit", "people.csv", "pairs.csv", "--n-classes", 2, "--names", "known", "--out", "run"]
    succeed(*fit, "--model", "mlp", "--n-folds", 2)
    call("predict", "run", "people.csv", "--out", "predicted.csv")
    predicted = np.array(table(tmp_path / "predicted.csv")["predicted"])
    assert (predicted == np.array(["low", "high"])[y]).mean() > 0.8


def test_check_says_what_it_understood(tmp_path, monkeypatch, files):
    monkeypatch.chdir(tmp_path)
    for width in (60, 200):
        result = succeed("check", "people.csv", "wards.csv", width=width)
        said = " ".join(result.stdout.split())
        assert "features 1 number: age 1 category: town" in said
        assert "aggregate label_proportions group column ward" in said
        assert "group sizes 3 (4 groups)" in said
        assert "ill, well" in result.stdout
    content = json.loads(call("check", "people.csv", "wards.csv", "--json").stdout)
    assert content["result"] == "clean"
    assert content["understood"]["instances"]["features"] == {"age": "number", "town": "category"}
    assert content["understood"]["observations"][0]["sizes"] == [{"from": 3, "to": 3, "groups": 4}]


def test_warnings_fail_only_when_asked_to(tmp_path):
    write(tmp_path / "people.csv", PEOPLE.replace("27,Ulm", ",Ulm"))
    write(tmp_path / "wards.csv", WARDS)
    files = ["check", tmp_path / "people.csv", tmp_path / "wards.csv"]
    result = succeed(*files)
    assert re.search(r"warning +\S+people\.csv, column age: 1 of 12 values are missing, first row 4;", result.stdout)
    assert result.stdout.endswith("1 warning. Rows are counted from 1, without the header.\n")
    assert call(*files, "--strict").exit_code == 1


def test_what_does_not_match_is_left_out_on_request_and_named(tmp_path):
    write(tmp_path / "people.csv", PEOPLE + "p90,w8,1,Ulm\np91,,1,Ulm\n")
    write(tmp_path / "wards.csv", WARDS + "w9,1,1\n")
    files = [tmp_path / "people.csv", tmp_path / "wards.csv", "--out", tmp_path / "run", *QUICK]
    refuse("fit", *files)
    result = succeed("fit", *files, "--drop-unmatched", "--exclude", "town")
    said = " ".join(result.stderr.split())
    assert "wards.csv, column ward: 1 row is left out, because the id has no rows in column ward of" in said
    assert "people.csv, column ward: 1 row is left out, because the id is not in column ward of" in said
    assert ": 'w8' " in said
    assert ": 'w9' " in said
    assert "people.csv, column ward: 1 row is left out, first row 14" in said
    # The options of the fit apply, also where their columns are missing.
    write(tmp_path / "people.csv", (tmp_path / "people.csv").read_text().replace(",town", ",place"))
    succeed("disaggregate", tmp_path / "run", *files[:2], "--out", tmp_path / "labels.csv")
    assert table(tmp_path / "labels.csv")["id"] == [f"p{ward}{place}" for ward in range(4) for place in range(3)]
    groups = ["--groups", files[1], "--out", tmp_path / "groups.csv"]
    predicted = succeed("predict", tmp_path / "run", files[0], *groups)
    assert "group 'w9' has no rows in column ward of" in predicted.stderr
    assert table(tmp_path / "groups.csv")["ward"] == ["w0", "w1", "w2", "w3"]


def test_settings_come_from_a_file_and_the_command_line_wins(tmp_path, files):
    config = write(
        tmp_path / "fit.toml",
        'instances = "people.csv"\ngroups = "wards.csv"\nout = "run"\n'
        'epochs = 3\nexclude = ["town"]\nmodel = "linear"\n',
    )
    succeed("fit", "--config", config, "--epochs", 2, "--classes", "well,ill")
    clf = unbag.load(tmp_path / "run" / "model")
    assert (clf.training.epochs, clf.training.checkpoint) == (2, None)
    assert (clf.model, list(clf.classes_)) == ("linear", ["well", "ill"])
    assert [feature.name for feature in clf.preparation_.features] == ["age"]
    also = '[[also]]\nfile = "pairs.csv"\nmembers = ["a", "b"]\naggregate = "pairwise_similarity"\n'
    several = write(tmp_path / "more.toml", config.read_text() + also)
    write(tmp_path / "pairs.csv", PAIRS)
    succeed("fit", "--config", several, "--out", tmp_path / "other")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("epohcs = 3", "there is no setting 'epohcs'; did you mean epochs?"),
        ("epochs = true", "epochs must be of type int, got True"),
        ("features = ['age', 3]", "features must be of type list of str, got ['age', 3]"),
        ("instances = 3", "instances must be of type str, got 3"),
        ("learning_rate = 'fast'", "learning_rate must be of type float or int, got 'fast'"),
        ("epochs = ", "the file is not valid TOML"),
        (
            "ensemble = true",
            "the setting 'ensemble' was removed: models of several folds and restarts are always averaged",
        ),
        ("also = ['pairs.csv']", "each entry of also needs a file"),
        ("also = [{file = 'pairs.csv', kind = 'x'}]", "there is no setting 'kind'; choose from file, aggregate"),
        ("relation = '=='", "--relation must be one of < > <= >= and not '=='"),
        ("model = 'trees'\nepochs = 3", "--epochs is a setting of networks, but --model trees is no network"),
        ("jobs = 0\nmodel = 'linear'", "--jobs must be a whole number other than 0"),
        ("method = 'magic'", "--method must be one of 'auto', 'uum', 'likelihood', got 'magic'"),
    ],
)
def test_settings_that_are_wrong(content, sentence, tmp_path, files):
    config = write(tmp_path / "fit.toml", content)
    result = refuse("fit", *files, "--out", tmp_path / "run", "--config", config)
    assert sentence in result.stderr


def test_files_that_were_not_named(tmp_path):
    assert "name the folder of the run" in call("fit", "people.csv", "wards.csv").stderr
    assert "name the file of instances" in call("fit", "--out", tmp_path / "run").stderr
    assert "there is no file" in call("fit", "--config", tmp_path / "fit.toml").stderr


def test_a_finished_run_is_replaced_by_force_alone(tmp_path, files):
    fit = ["fit", *files, "--out", tmp_path / "run", *QUICK]
    succeed(*fit)
    again = refuse(*fit)
    assert "has a finished run; name another folder with --out, or replace the run with --force" in again.stderr
    succeed(*fit, "--force", "--seed", 1)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["plan"]["training"]["seed"] == 1
    (tmp_path / "other").mkdir()
    write(tmp_path / "other" / "thesis.txt", "mine")
    fit[4] = tmp_path / "other"
    assert "has other files and no run" in call(*fit, "--force").stderr
    fit[4] = tmp_path / "people.csv"
    assert "is a file; name a folder" in call(*fit).stderr


@pytest.mark.parametrize("saved", [True, False])
def test_an_interrupted_run_is_resumed(saved, tmp_path, monkeypatch):
    blobs(tmp_path)
    fit = ["fit", tmp_path / "people.csv", tmp_path / "counts.csv", *NETWORK, "--n-folds", 2, "--out"]
    succeed(*fit, tmp_path / "whole")
    steps = []

    def interrupt(checkpoint):
        steps.append(checkpoint)
        if len(steps) == 3:
            raise KeyboardInterrupt
        return saved

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "due", interrupt)
        result = call(*fit, tmp_path / "run")
    assert result.exit_code == 130
    if not saved:
        assert result.stderr.endswith("Stopped before anything was saved; nothing was written.\n")
        assert not (tmp_path / "run").exists()
        return
    assert "is not finished; to resume it from the last checkpoint:" in result.stderr
    predicted = call("predict", tmp_path / "run", tmp_path / "people.csv", "-o", tmp_path / "p.csv")
    assert "is not finished" in predicted.stderr
    other = call(*fit[:-1], "--epochs", 4, "--out", tmp_path / "run")
    assert "has an unfinished run with another epochs (3 there, 4 now)" in other.stderr
    result = succeed(*fit, tmp_path / "run")
    assert "resumed from a checkpoint" in " ".join(result.stdout.split())
    assert not (tmp_path / "run" / "checkpoint").exists()
    for run in ("whole", "run"):
        call("predict", tmp_path / run, tmp_path / "people.csv", "--out", tmp_path / f"{run}.csv")
    assert table(tmp_path / "run.csv") == table(tmp_path / "whole.csv")


@pytest.fixture
def run(files, tmp_path):
    succeed("fit", *files, "--out", tmp_path / "run", *QUICK)
    return tmp_path / "run"


def test_unknown_categories_and_missing_numbers_are_predicted_and_counted(run, tmp_path):
    write(tmp_path / "new.csv", "town,id,age,extra\nBonn,007,30,x\nParis,008,,y\n")
    result = succeed("predict", run, tmp_path / "new.csv", "--out", tmp_path / "p.csv", "--keep", "town,age", "--json")
    said = json.loads(result.stdout)
    assert (said["rows"], [one["column"] for one in said["problems"]]) == (2, ["town", "age"])
    assert "1 values are categories that training rows did not have" in said["problems"][0]["message"]
    lines = (tmp_path / "p.csv").read_text().splitlines()
    assert lines[0].replace('"', "") == "id,town,age,predicted,p_ill,p_well"
    assert lines[2].replace('"', "").startswith("008,Paris,,")


@pytest.mark.parametrize(
    ("content", "options", "sentence"),
    [
        ("id,age\np,3\n", [], "1 of the columns that the model was fitted on is missing: 'town'"),
        ("id,age,town\np,NA,Ulm\nq,old,Ulm\n", ["--keep", "age"],
            "new.csv, row 2, column age: the column held numbers when the model was fitted, but 'old' here"),
        ("id,age,town\np,3,Ulm\nq,inf,Ulm\n", [], "row 2, column age: inf is infinite"),
        ("id,age,town\np,3,Ulm\nq,4\n", [], "row 2: the row has 2 values, but the header has 3"),
        ("id,age,town\n", [], "there are no rows"),
        ("id,age,town\np,3,Ulm\n", ["--id", "name"], "there is no column 'name', which --id names"),
        ("id,age,town\np,3,Ulm\n", ["--keep", "name"], "there is no column 'name' to keep"),
        ("p_ill,age,town\np,3,Ulm\n", ["--id", "p_ill"], "column p_ill: the column has the name of one of the results"),
    ],
)  # fmt: skip
def test_rows_that_cannot_be_predicted_leave_the_old_file(content, options, sentence, run, tmp_path):
    new, out = write(tmp_path / "new.csv", content), write(tmp_path / "p.csv", "old")
    before = sorted(tmp_path.iterdir())
    result = refuse("predict", run, new, "--out", out, *options)
    assert sentence in result.stderr
    assert (out.read_text(), sorted(tmp_path.iterdir())) == ("old", before)


def test_places_where_nothing_can_be_written(run, tmp_path):
    for out, sentence in (
        (tmp_path / "p.xlsx", "must end in .csv or .parquet, got 'p.xlsx'"),
        (tmp_path / "missing" / "p.csv", "does not exist; create it"),
        (tmp_path, "is a folder"),
    ):
        result = call("predict", run, tmp_path / "people.csv", "--out", out)
        assert (result.exit_code, sentence in result.stderr) == (2, True), result.stderr


def test_a_folder_of_parts_is_predicted_as_one_table(run, tmp_path):
    (tmp_path / "parts").mkdir()
    write_parquet(tmp_path / "parts" / "b.parquet", {"id": [3], "age": [44], "town": ["Ulm"]})
    write_parquet(tmp_path / "parts" / "a.parquet", {"id": [1, 2], "age": [22, 33], "town": ["Ulm", "Bonn"]})
    write(tmp_path / "parts" / "_SUCCESS", "")
    succeed("predict", run, tmp_path / "parts", "--out", tmp_path / "p.parquet")
    found = pq.read_table(tmp_path / "p.parquet")
    assert found.column("id").to_pylist() == [1, 2, 3]
    assert found.schema.field("id").type == pa.int64()


def test_predictions_come_in_pieces(run, tmp_path, monkeypatch):
    monkeypatch.setattr("unbag.tables.files.ROWS_AT_ONCE", 7)
    columns = {"id": list(range(100)), "age": list(range(100)), "town": ["Ulm", "Bonn"] * 50}
    write_parquet(tmp_path / "many.parquet", columns)
    call("predict", run, tmp_path / "many.parquet", "--out", tmp_path / "pieces.parquet")
    monkeypatch.undo()
    call("predict", run, tmp_path / "many.parquet", "--out", tmp_path / "whole.parquet")
    assert table(tmp_path / "pieces.parquet")["id"] == list(range(100))
    assert np.allclose(table(tmp_path / "pieces.parquet")["p_ill"], table(tmp_path / "whole.parquet")["p_ill"])


def test_help_gives_examples_that_work(tmp_path, monkeypatch, files):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Training, "parameters", lambda *_: {"model": "linear", "n_jobs": 1})
    for command in ("check", "fit", "predict", "disaggregate"):
        shown = succeed(command, "--help")
        example = re.search(r"Example: unbag (.*\S)", shown.stdout).group(1).split()
        succeed(*example)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"people.csv", "wards.csv", "run", "predicted.csv", "labels.csv"}


def test_an_error_shows_where_it_comes_from_on_request(tmp_path):
    write(tmp_path / "people.csv", "")
    result = call("--debug", "fit", tmp_path / "people.csv", tmp_path / "people.csv", "--out", tmp_path / "run")
    assert result.exit_code == 1
    assert "in fit_tables" in result.stderr
    assert "people.csv: the file is empty" in result.stderr


def test_true_and_false_are_labels_of_bags(tmp_path):
    write(tmp_path / "people.csv", PEOPLE.replace("Ulm", "true").replace("Bonn", "false"))
    write(tmp_path / "bags.csv", BAGS)
    fit = ["fit", tmp_path / "people.csv", tmp_path / "bags.csv", "--label", "town", "--out", tmp_path / "run", *QUICK]
    result = succeed(*fit)
    assert "on 12 labelled rows" in result.stdout


def test_posteriors_stand_beside_their_rows_whatever_the_order(tmp_path):
    people = write(tmp_path / "people.csv", "id,ward,x\np,b,1\nq,a,2\nr,c,9\ns,b,3\nt,b,7\nu,c,8\n")
    wards = write(tmp_path / "wards.csv", "ward,ill,well\nc,2,0\na,0,1\nb,2,1\n")
    succeed("fit", people, wards, "--out", tmp_path / "run", *QUICK)
    succeed("disaggregate", tmp_path / "run", people, wards, "--out", tmp_path / "labels.csv")
    labels = table(tmp_path / "labels.csv")
    assert (labels["id"], labels["ward"]) == (list("pqrstu"), list("bacbbc"))
    ill = np.array(labels["p_ill"])
    assert np.allclose(ill[[1, 2, 5]], [0, 1, 1])
    assert np.isclose(ill[[0, 3, 4]].sum(), 2)


FORMULAS = [
    *("=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\uff1d1", "'=1"),
    *("-5", "+3.5e2", "a=b", ""),  # none
]


def test_text_in_csv_that_a_spreadsheet_would_run_is_escaped(run, tmp_path):
    n = len(FORMULAS)
    columns = {"id": FORMULAS, "age": [30] * n, "town": ["Ulm"] * n, "=name": ["x"] * n, "debt": [-1.5] * n}
    write_parquet(tmp_path / "new.parquet", columns)
    predict = ["predict", run, tmp_path / "new.parquet", "--keep", "=name,debt", "--out"]
    said = call(*predict, tmp_path / "safe.csv")
    assert "column id: 8 values begin like a formula, so that an apostrophe was put in front; --raw-text" in (
        " ".join(said.stderr.split())
    )
    assert "column =name: 1 value begins" in " ".join(said.stderr.split())
    lines = pacsv.read_csv(tmp_path / "safe.csv", parse_options=pacsv.ParseOptions(newlines_in_values=True)).to_pydict()
    assert list(lines)[:3] == ["id", "'=name", "debt"]
    assert lines["id"][:8] == [f"'{text}" for text in FORMULAS[:8]]
    assert lines["id"][8:] == FORMULAS[8:]
    assert lines["debt"] == [-1.5] * n
    # taking one apostrophe away gives back the ids
    assert [re.sub("^'(?='*[-=+@\t\r\n\uff1d])", "", text) for text in lines["id"]] == FORMULAS
    for name, options in (("raw.csv", ["--raw-text"]), ("raw.parquet", [])):
        said = call(*predict, tmp_path / name, *options)
        assert "formula" not in said.stderr
        kept = table(tmp_path / name) if name.endswith("parquet") else (tmp_path / name).read_text()
        assert FORMULAS[0] in (kept["id"] if name.endswith("parquet") else kept)
        assert "'=cmd" not in str(kept)


def test_a_fit_that_diverges_ends_with_a_warning(tmp_path, here):
    network = [*NETWORK, "--scaling", "none", "--validation-fraction", 0]
    fit = ["fit", "people.csv", "counts.csv", "--out", "run", *network, "--learning-rate"]
    fitted = succeed(*fit, 1e6)
    warning = " ".join(fitted.stderr.split())
    assert "Do not rely on it" in warning
    succeed("report", "run")
    assert "<h2>Warning</h2>" in (tmp_path / "run" / "report.html").read_text()
    assert json.loads(call(*fit, 1e6, "--force", "--json").stdout)["problems"][-1]["severity"] == "warning"
    assert "Do not rely on it" not in call(*fit, 0.5, "--force").stderr
    undefined = refuse(*fit, 1e38, "--force")
    assert "diverged" in undefined.stderr


def write_table(path, form, content):
    """Write a table as a file of some form, or as a folder of two parts."""
    table = pacsv.read_csv(io.BytesIO(content.encode()))
    if form == "parts":
        path.mkdir(exist_ok=True)
        for part, start in (("a.parquet", 0), ("b.parquet", 2)):
            pq.write_table(table.slice(start, None if start else 2), path / part)
    elif form == "parquet":
        pq.write_table(table, path)
    else:
        write(path, gzip.compress(content.encode()) if form == "csv.gz" else content)


@pytest.mark.parametrize("form", ["csv", "csv.gz", "parquet", "parts"])
def test_every_command_opens_a_file_once(form, tmp_path, monkeypatch):
    """A file is gone once it was opened, so that nobody can open it again, in Python or in Arrow."""
    opened = []

    def open_and_remove(path, mode):
        opened.append(path)
        file = open(path, mode)  # noqa: SIM115 (who asked for it closes it)
        path.unlink()
        return file

    def open_part(source, **options):
        file = parquet_file(source, **options)
        if isinstance(source, Path):
            opened.append(source)
            source.unlink()
        return file

    parquet_file = pq.ParquetFile
    people, wards, pairs = (tmp_path / f"{name}.{form}" for name in ("people", "wards", "pairs"))
    run = tmp_path / "run"
    commands = (
        ["check", people, wards],
        ["fit", people, wards, "--also", f"pairwise_similarity={pairs}", "--out", run, *QUICK],
        ["predict", run, people, "--out", tmp_path / "predicted.csv"],
        ["disaggregate", run, people, wards, "--aggregate", "label_proportions", "--out", tmp_path / "labels.csv"],
    )
    monkeypatch.setattr("unbag.tables.files.open", open_and_remove, raising=False)
    monkeypatch.setattr("unbag.tables.files.pq.ParquetFile", open_part)
    for command in commands:
        for path, content in ((people, PEOPLE), (wards, WARDS), (pairs, PAIRS)):
            write_table(path, form, content)
        opened.clear()
        succeed(*command)
        named = [path for path in (people, wards, pairs) if str(path) in " ".join(map(str, command))]
        parts = [path / part for path in named for part in ("a.parquet", "b.parquet")]
        assert sorted(opened) == sorted(parts if form == "parts" else named)
