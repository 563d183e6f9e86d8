"""Run commands from files to files, and compare with what was recorded in commands.json.

Compared exactly: exit codes, the names of the files, columns, rows, ids, how columns are understood, where problems
are, and tables of protected counts. Not compared: texts for people, and values that depend on training; of these, the
accuracy may be ten points lower. ``PYTHONPATH=src:tests/helpers python tests/golden/test_commands.py`` writes the file.
"""

import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from golden_files import write_json
from table_files import blobs, call, write

FILE = Path(__file__).with_name("commands.json")
TOLERANCE = 0.1  # of an accuracy
QUICK = ("--model", "linear", "--n-folds", 2, "--jobs", 1)
TWO = ("--n-classes", 2)
ANY_OF_TWO = ("--aggregate", "at_least(1, label=1)", "--classes", "0,1")
PROSE = {"read_as", "message"}  # keys of check --json whose values are sentences

Command = tuple[Any, ...]


def use(file: str, *options: Any, labels: str = "labels.csv") -> list[Command]:
    """Return all commands on a file of observations."""
    return [
        ("check", "people.csv", file, *options, "--json"),
        ("fit", "people.csv", file, "--out", "run", *options, *QUICK),
        ("predict", "run", "people.csv", "--out", "predicted.csv"),
        ("disaggregate", "run", "people.csv", file, "--out", labels),
        ("report", "run", "--out", "page.html"),
    ]


PROTECT = ("protect", "counts.csv", "--group", "group", "--out")
SCENARIOS: dict[str, list[Command]] = {
    "label_proportions": use("counts.csv", labels="labels.parquet"),
    "multiple_instance": use("bags.csv"),
    "pairwise_similarity": use("pairs.csv", *TWO, "--names", "label"),
    "ordinal_rank": use("ranks.csv", *TWO),
    "triplet_comparison": use("triplets.csv", "--aggregate", "triplet_comparison", *TWO),
    "ordinal_triplet": use("ordinal_triplets.csv", "--aggregate", "ordinal_triplet", *TWO),
    "at_least": use("bags.csv", *ANY_OF_TWO),
    "noisy answers": use("bags.csv", "--error-rate", 0.05),
    "published, rounded": [(*PROTECT, "protected.csv", "--round-to", 3), *use("protected.csv")],
    "published, suppressed": [
        (*PROTECT, "protected.csv", "--suppress-below", 2, "--keep-sizes"), *use("protected.csv")
    ],
    "published, with noise": use("counts.csv", "--noise", "laplace:2"),
    "two files": [
        ("fit", "people.csv", "counts.csv", "--also", "pairwise_similarity=pairs.csv", "--out", "run", *QUICK),
        ("predict", "run", "people.csv", "--out", "predicted.parquet"),
    ],
    "columns by options": use(
        "counts.csv", "--group", "group", "--id", "id", "--features", "x,letter", "--classes", "0,1", "--label", "label"
    ),
    "a run that exists": [*use("counts.csv")[1:2] * 2, (*use("counts.csv")[1], "--force")],
    "files that are wrong": [
        ("check", "people.csv", "missing.csv", "--json"),
        ("check", "people.csv", "too_many.csv", "--json"),
        ("check", "people.csv", "unknown_group.csv", "--json"),
        ("check", "people.csv", "unknown_group.csv", "--drop-unmatched", "--json"),
        ("check", "people.csv", "counts.csv", "--features", "weight", "--json"),
        ("check", "people.csv", "counts.csv", "--aggregate", "median", "--json"),
        ("fit", "people.csv", "too_many.csv", "--out", "run", *QUICK),
        ("predict", "run", "people.csv", "--out", "predicted.csv"),
        ("fit", "people.csv", "counts.csv", "--out", "run", "--epochs", -1),
    ],
}  # fmt: skip


def leave_out(value: Any, keys: set[str]) -> Any:
    """Return JSON without some keys, at any depth."""
    if isinstance(value, dict):
        return {key: leave_out(inner, keys) for key, inner in value.items() if key not in keys}
    return [leave_out(inner, keys) for inner in value] if isinstance(value, list) else value


def describe_table(path: Path, truth: np.ndarray) -> dict[str, Any]:
    """Return columns and rows of a table, its first values that no model predicts, and how many classes are right."""
    table = (pq.read_table(path) if path.suffix == ".parquet" else pacsv.read_csv(path)).to_pydict()
    fixed = {name: values[:3] for name, values in table.items() if name not in ("predicted", "p_0", "p_1")}
    result: dict[str, Any] = {"columns": list(table), "rows": len(next(iter(table.values()))), "first": fixed}
    if "p_1" in table and "id" in table:
        labels = np.array([truth[int(name[1:])] for name in table["id"]])
        right = float(np.mean((np.array(table["p_1"]) > 0.5) == labels))
        result["accuracy"] = max(right, 1 - right)  # without names, the classes may be exchanged
        assert np.allclose(np.add(table["p_0"], table["p_1"]), 1)
    return result


def run(name: str, folder: Path) -> dict[str, Any]:
    """Run the commands of a scenario in a folder, and return what the file records of them."""
    truth = blobs(folder)
    counts = (folder / "counts.csv").read_text()
    write(folder / "too_many.csv", re.sub(r"^g3,.*$", "g3,3,4", counts, flags=re.MULTILINE))
    write(folder / "unknown_group.csv", counts + "g99,2,2\n")
    before = set(folder.rglob("*"))
    shown: list[Any] = []
    here = Path.cwd()
    os.chdir(folder)
    try:
        for command in SCENARIOS[name]:
            done = call(*command)
            output = json.loads(done.stdout) if "--json" in command and done.stdout.startswith("{") else None
            shown += [{"command": command[0], "exit code": done.exit_code, "JSON": leave_out(output, PROSE)}]
    finally:
        os.chdir(here)
    written = sorted(path for path in set(folder.rglob("*")) - before if path.is_file() and path.name[0] != ".")
    tables = {path.name: describe_table(path, truth) for path in written if path.suffix in (".csv", ".parquet")}
    result = {
        "commands": shown,
        "files": [re.sub("[0-9a-f]{16}", "HASH", path.relative_to(folder).as_posix()) for path in written],
        "tables": tables,
    }
    if (folder / "protected.csv").exists():
        result["protected"] = (folder / "protected.csv").read_text().splitlines()
    if (summary := folder / "run" / "summary.json").exists():
        content = json.loads(summary.read_text(encoding="utf-8"))
        keys = ("kind", "groups", "memberships", "rows", "sizes")
        result["data"] = content["data"]
        result["sets"] = [{key: one[key] for key in keys} for one in content["sets"]]
    return json.loads(json.dumps(result))


@pytest.mark.parametrize("name", SCENARIOS)
def test_commands(name: str, tmp_path: Path) -> None:
    expected, found = json.loads(FILE.read_text(encoding="utf-8"))[name], run(name, tmp_path)
    for table, recorded in expected["tables"].items():
        if "accuracy" in recorded:
            assert found["tables"][table].pop("accuracy") >= recorded.pop("accuracy") - TOLERANCE
    assert found == expected


if __name__ == "__main__":
    results = {}
    for scenario in SCENARIOS:
        with tempfile.TemporaryDirectory() as temporary:
            results[scenario] = run(scenario, Path(temporary))
    write_json(FILE, results)
