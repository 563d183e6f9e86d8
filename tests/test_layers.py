"""Imports go down the layers, and the drawing shows those that there are."""

from __future__ import annotations

import ast
import runpy
from pathlib import Path

import pytest

import unbag
from unbag import aggregates

DOCS = Path(__file__).parents[1] / "docs"
LAYERS = runpy.run_path(str(DOCS / "layers.py"))
PACKAGE = Path(unbag.__file__).parent
LEVEL = {name: -place for place, names in enumerate(LAYERS["LAYERS"].values()) for name in names.split()}


@pytest.fixture(scope="module")
def imports():
    return LAYERS["read_imports"](PACKAGE)


def test_every_package_and_module_has_a_layer():
    found = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert (found - {"__init__"}) | {"unbag"} == LEVEL.keys(), "mend LAYERS in docs/layers.py"


def test_imports_go_down_or_stay_in_their_layer(imports):
    up = [one for one in imports if LEVEL[one.units[0]] < LEVEL[one.units[1]]]
    assert not up, "move what is shared to the lower layer"


def test_there_are_no_circles_but_those_with_a_reason(imports):
    LAYERS["reduce"](LAYERS["graph"](PACKAGE))  # raises CycleError, which names them
    assert not LAYERS["CIRCLES"].keys() - {one.units for one in imports}, "mend CIRCLES in docs/layers.py"


def test_the_library_does_not_import_the_experiments():
    assert not [path for path in PACKAGE.rglob("*.py") if "from unbag_experiments" in path.read_text("utf-8")]


def test_kinds_of_observation_are_told_apart_by_type_in_their_own_package_alone():
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


@pytest.mark.parametrize(
    ("code", "imported", "lazy"),
    [
        ("import made.low", "made.low", False),
        ("from made.low import name", "made.low", False),
        ("from made import low", "made.low", False),
        ("from made import name", "made", False),
        ("import made\nmade.name()", "made", False),
        ("import made\nmade.low.name()", "made.low", False),
        ("def f():\n    from made.low import name", "made.low", True),
        ("def f():\n    import_module('made.low')", "made.low", True),
        ("def f():\n    import_module(f'made.low.{name}')", "made.low", True),
        ("if TYPE_CHECKING:\n    import made.low", "made.low", False),
    ],
)
def test_imports_are_found_wherever_they_are(code, imported, lazy, tmp_path):
    package = tmp_path / "made"
    package.mkdir()
    for name, content in (("__init__", ""), ("low", "import json"), ("high", code)):
        (package / f"{name}.py").write_text(content)
    assert LAYERS["read_imports"](package) == (("made.high", imported, lazy),)


def test_a_relative_import_is_refused(tmp_path):
    (tmp_path / "made.py").write_text("\nfrom . import low")
    with pytest.raises(ValueError, match="line 2: a relative import"):
        LAYERS["read_imports"](tmp_path)


def test_the_drawing_shows_the_imports_that_there_are():
    kept = (DOCS / "_pictures" / "layers.svg").read_text(encoding="utf-8")
    assert kept == LAYERS["draw"](PACKAGE), "draw it anew: python docs/layers.py"
