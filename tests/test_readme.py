"""Every Python block of the README runs and prints its output."""

from __future__ import annotations

from pathlib import Path

import pytest
from code_blocks import find_blocks, run_block

README = Path(__file__).parents[1] / "README.md"
EXAMPLES = find_blocks(README)


def test_no_python_block_is_overlooked():
    assert len(EXAMPLES) == README.read_text(encoding="utf-8").count("```py")


@pytest.mark.parametrize("line", EXAMPLES)
def test_example(line, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # examples may write files
    output, _ = run_block(README, line)
    assert capsys.readouterr().out == output
