"""Every Python block of the README runs, and prints what the README says it prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
TEXT = README.read_text(encoding="utf-8")
# A block of code, and the block of output if one follows at once.
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:```text\n(.*?)^```\n)?", flags=re.MULTILINE | re.DOTALL)
EXAMPLES = {TEXT.count("\n", 0, block.start(1)): block.groups(default="") for block in BLOCK.finditer(TEXT)}


def test_the_readme_has_an_example_for_each_kind_of_user():
    assert len(EXAMPLES) >= 4


@pytest.mark.parametrize("line", EXAMPLES)
def test_example(line, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # examples may write files
    code, output = EXAMPLES[line]
    # Behind as many empty lines as stand before it in the README, so that an error points to the right one.
    exec(compile("\n" * line + code, str(README), "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out == output
