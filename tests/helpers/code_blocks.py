"""Run blocks of Python in Markdown.

``python tests/helpers/code_blocks.py docs/*.md docs/*/*.md README.md`` writes what blocks print now into the pages.
"""

import contextlib
import io
import re
import sys
import tempfile
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


def refresh(page: Path) -> None:
    """Replace the outputs on a page by what its blocks print now; blocks of which_page.md share their variables."""
    names: dict[str, Any] = {"__name__": "__main__"}

    def run(block: re.Match[str]) -> str:
        printed = io.StringIO()
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), contextlib.redirect_stdout(printed):
            exec(compile(block[1], str(page), "exec"), names if page.name == "which_page.md" else dict(names))
        output = f"```text\n{printed.getvalue()}```\n" if printed.getvalue() else ""
        return f"```python\n{block[1]}```\n{output}"

    text = page.read_text(encoding="utf-8")
    page.write_text(BLOCK.sub(run, text), encoding="utf-8")


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        refresh(Path(argument))
