"""Run blocks of Python in Markdown."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

# A block of code, and the block of output if one follows at once.
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:```text\n(.*?)^```\n)?", flags=re.MULTILINE | re.DOTALL)


def find_blocks(page: Path) -> dict[int, tuple[str, str]]:
    """Return code and expected output of each block of a page, by the number of lines before it."""
    text = page.read_text(encoding="utf-8")
    return {text.count("\n", 0, block.start(1)): block.groups(default="") for block in BLOCK.finditer(text)}


def run_block(page: Path, line: int, names: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
    """Run one block among the variables of others; return the output that the page shows, and all variables."""
    code, output = find_blocks(page)[line]
    names = {"__name__": "__main__"} if names is None else names
    # As many empty lines before it as on the page, so that an error points to the right line.
    exec(compile("\n" * line + code, str(page), "exec"), names)
    return output, names
