"""Notebooks print their stored outputs when they run again; they are small, and their links work."""

from __future__ import annotations

import json
import re
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from code_blocks import run_cell

NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs" / "notebooks").glob("*.ipynb"))


def cells_of(path: Path, kind: str) -> list[dict]:
    return [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == kind]


def kept(cell: dict) -> str:
    """Return the printed text and the value of the last expression of a cell, without pictures."""
    outputs = [output.get("text") or output["data"].get("text/plain", "") for output in cell["outputs"]]
    return "".join(map("".join, outputs))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_outputs_are_reproduced(path, capsys, monkeypatch, tmp_path):
    if path.stem == "private_counts":
        pytest.importorskip("opendp")
    monkeypatch.chdir(tmp_path)
    plt.switch_backend("agg")
    names = {"__name__": "__main__"}
    for number, cell in enumerate(cells_of(path, "code"), start=1):
        run_cell("".join(cell["source"]), f"{path.name}, code cell {number}", names)
        printed = capsys.readouterr().out
        if "random-output" not in cell["metadata"].get("tags", []):
            assert printed.strip() == kept(cell).strip(), f"code cell {number}"
        assert bool(plt.get_fignums()) == ("image/png" in str(cell["outputs"])), f"code cell {number}"
        plt.close("all")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_size_order_and_links(path):
    assert path.stat().st_size < 150_000
    code = cells_of(path, "code")
    assert [cell["execution_count"] for cell in code] == [*range(1, len(code) + 1)]
    for cell in cells_of(path, "markdown"):
        for link in re.findall(r"\]\(([^)\s]+)\)", "".join(cell["source"])):
            assert (path.parent / link).is_file(), f"{path.name} links to {link}, which is not there"


def test_all_are_found():
    assert len(NOTEBOOKS) == 5
