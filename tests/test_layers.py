"""Packages are layers: each imports only from itself and from those below it."""

import ast
from pathlib import Path

import unbag
from unbag import aggregates

PACKAGE = Path(unbag.__file__).parent
LAYERS = [
    "cli",
    "report",
    "tables",
    "persistence",
    "testing",
    "estimators",
    "ensemble",
    "diagnostics",
    "learners",
    "training",
    "objectives",
    "aggregates",
    "published",
    "noise",
    "data",
    "_kernels",
    "_utils",
]
"""From the highest to the lowest; see docs/architecture.md."""

MAX_ENTRIES = 18
UPWARD = {
    ("estimators", "persistence"): "fitted classifiers have a method that saves them",
    ("tables", "report"): "a run folder holds the page that describes it",
}
"""Imports inside functions that go up, each with its reason."""


def imported_modules(path: Path) -> set[str]:
    """Return the names of the modules of the package that a file imports, wherever in the file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}, line {node.lineno}: a relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.startswith("unbag.")}


def test_every_entry_of_the_package_is_a_layer():
    found = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert found - {"__init__"} <= {*LAYERS}
    assert len(found) <= MAX_ENTRIES


def test_imports_go_down():
    level = {name: place for place, name in enumerate(LAYERS)}
    upward = set()
    for path in PACKAGE.rglob("*.py"):
        layer = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if layer == "__init__":
            continue
        for name in imported_modules(path):
            target = name.split(".")[1]
            if target in level and level[target] < level[layer] and (layer, target) not in UPWARD:
                upward.add((path.relative_to(PACKAGE).as_posix(), name))
    assert not upward, "move what is shared to the lower layer"


def test_the_library_does_not_import_the_experiments():
    assert not [path for path in PACKAGE.rglob("*.py") if "from unbag_experiments" in path.read_text("utf-8")]


def test_only_aggregates_distinguish_kinds_of_observation_by_type():
    kinds = {kind.__name__ for kind in vars(aggregates).values() if isinstance(kind, type)} - {"Aggregate", "Evidence"}
    asked = [
        (path.name, node.lineno)
        for path in PACKAGE.rglob("*.py")
        if "aggregates" not in path.parts
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance"
        if kinds & {name.id for name in ast.walk(node.args[1]) if isinstance(name, ast.Name)}
    ]
    assert not asked, "ask the aggregate for what it knows of itself"
