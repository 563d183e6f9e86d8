"""Run blocks of Python in Markdown and cells of notebooks."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

# A block of code, and the block of output if one follows at once.
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:```text\n(.*?)^```\n)?", flags=re.MULTILINE | re.DOTALL)


def find_blocks(page: Path) -> dict[int, tuple[str, str]]:
    """Return code and expected output of each block of a page, by the number of lines before it."""
    text = page.read_text(encoding="utf-8")
    return {text.count("\n", 0, block.start(1)): block.groups(default="") for block in BLOCK.finditer(text)}


def run_block(page: Path, line: int) -> str:
    """Run one block, and return what it should have printed."""
    code, output = find_blocks(page)[line]
    # Behind as many empty lines as stand before it in the page, so that an error points to the right one.
    exec(compile("\n" * line + code, str(page), "exec"), {"__name__": "__main__"})
    return output


def run_cell(code: str, name: str, names: dict[str, Any]) -> None:
    """Run a cell of a notebook among the names of those before it; print its last expression, as Jupyter shows it."""
    tree = ast.parse(code, name)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), names)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), name, "eval"), names)
        if value is not None:
            print(repr(value))
