"""What the experiments import of unbag, and when."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import unbag_experiments

ROOT = Path(unbag_experiments.__file__).parents[2]

# The public interface and the extension points that docs/extending.md documents.
INTERFACE = {
    *("unbag", "unbag.aggregates", "unbag.noise", "unbag.published", "unbag.tables"),
    *(
        "unbag.learners",
        "unbag.learners.architectures",
        "unbag.objectives.objective",
        "unbag._kernels.segments",
        "unbag.training",
    ),
    *("unbag.cli.shared", "unbag._utils.pages", "unbag._utils.pages.tables"),
    *("unbag._utils.checks", "unbag._utils.environment", "unbag._utils.files", "unbag._utils.terminal"),
}


def imported_modules(path: Path) -> set[str]:
    """Return the modules of unbag that a file imports, wherever in the file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}, line {node.lineno}: a relative import"
            found.add(str(node.module))
    return {name for name in found if name.partition(".")[0] == "unbag"}


def test_only_the_interface_of_the_library_is_imported():
    package = Path(unbag_experiments.__file__).parent
    found: dict[str, set[str]] = {}
    for folder in (package, ROOT / "benchmarks"):
        for path in folder.rglob("*.py"):
            if beyond := imported_modules(path) - INTERFACE:
                found[path.relative_to(folder).as_posix()] = beyond
    assert not found


def test_a_list_does_not_wait_for_what_only_trials_and_pages_need_nor_for_what_one_platform_has():
    code = """if True:
        import sys
        sys.modules["fcntl"] = None  # as where there is none
        import unbag._utils.files, unbag_experiments.results, unbag_experiments.work_claims
        from unbag.cli import app
        app(["reproduce", "list", "--table", "mil"], standalone_mode=False)
        assert not {"matplotlib", "pandas", "pyarrow", "scipy", "sklearn", "triton"} & {*sys.modules}
    """
    done = subprocess.run([sys.executable, "-c", code], env=os.environ, capture_output=True, text=True, check=False)
    assert "mil, fox, uum" in done.stdout, done.stderr
