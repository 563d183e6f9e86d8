"""The layers of the package, read from its imports, and a drawing of them.

``python docs/layers.py`` draws ``docs/_pictures/layers.svg`` anew; ``tests/test_layers.py`` checks the imports.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import NamedTuple

LAYERS = {
    "command line": "cli __main__",
    "files and pages": "unbag demo tables report run_folder options",
    "estimator": "saving estimators estimator bag_model fitted_attributes fit_diagnosis saved_weights saved_trees saved_content "
    "predictor error_rates fold_fitting fitting fit_settings naming inputs frames targets",
    "learners": "ensemble learners",
    "training": "examination diagnosis class_shares sampling families out_of_fold constant launching training models",
    "risks": "testing enumeration row_diagnosis shift symmetry risks objectives losses",
    "aggregates": "aggregates",
    "groups": "alignment groups pooling published weights",
    "kernels": "kernels",
    "foundations": "data arrays checks columns environment features files findings histograms ids noise pages parts "
    "plain_json plugins problems random_state segments tallies terminal version",
}
"""Packages and modules right below ``unbag``, highest layer first; imports go down, or stay in a layer."""

CIRCLES = {
    ("predictor", "saving"): "predictors have a method that saves them",
}
"""Imports that close a circle, each with its reason; there are no others."""

ROW, BOX, WIDTH, LABEL = 42, 26, 860, 130  # pixels
INK, LINE, BORDER, BANDS = "#222222", "#9aa5b1", "#4477aa", ("#f3f6f9", "#e6ecf2")


class Import(NamedTuple):
    """One module of the package imports another."""

    importer: str
    imported: str
    lazy: bool
    """Whether that happens inside a function."""

    @property
    def units(self) -> tuple[str, str]:
        """The packages of both, or modules, right below ``unbag``."""
        return unit(self.importer), unit(self.imported)


def unit(module: str) -> str:
    """Return the package, or module, right below ``unbag`` that holds a module."""
    return module.split(".")[1] if "." in module else module


@cache
def read_imports(package: Path) -> tuple[Import, ...]:
    """Return which modules of a package import which others, wherever in a module that is."""
    return tuple(_read_imports(package))


def _read_imports(package: Path) -> Iterator[Import]:
    modules = {
        ".".join((package.name, *path.relative_to(package).with_suffix("").parts)): path
        for path in package.rglob("*.py")
    }
    modules = {name.removesuffix(".__init__"): path for name, path in modules.items()}
    for importer, path in modules.items():
        for node, lazy in _walk(ast.parse(path.read_text(encoding="utf-8"))):
            for name in _imported(node, package.name):
                if name.partition(".")[0] == package.name:
                    yield Import(importer, name if name in modules else name.rpartition(".")[0], lazy)


def _walk(tree: ast.AST) -> Iterator[tuple[ast.AST, bool]]:
    """Visit all nodes below one, level by level, and say of each whether it is inside a function."""
    level = [(tree, False)]
    while level:
        yield from level
        level = [
            (child, lazy or isinstance(node, ast.FunctionDef))
            for node, lazy in level
            for child in ast.iter_child_nodes(node)
        ]


def _imported(node: ast.AST, package: str) -> list[str]:
    """Return the full names that a statement imports, or a call of `import_module`, or a name of the package uses."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names if alias.name != package]  # which is there already
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == package:
        return [] if node.attr == "__version__" else [f"{package}.{node.attr}"]
    if isinstance(node, ast.ImportFrom):
        if node.level:
            raise ValueError(f"line {node.lineno}: a relative import; write the full name")
        return [f"{node.module}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "import_module":
        return [str(part.value) for part in ast.walk(node.args[0]) if isinstance(part, ast.Constant)]
    return []


def graph(package: Path) -> dict[str, set[str]]:
    """Return what each unit imports, without itself and without `CIRCLES`."""
    edges = {one.units for one in read_imports(package)} - CIRCLES.keys()
    units = sorted({name for edge in edges for name in edge})
    return {name: {other for one, other in edges if one == name != other} for name in units}


def reduce(imports: Mapping[str, set[str]]) -> dict[str, list[str]]:
    """Leave out what is also imported by way of others (the transitive reduction)."""
    reached: dict[str, set[str]] = {}
    for name in TopologicalSorter(imports).static_order():
        reached[name] = imports[name].union(*(reached[other] for other in imports[name]))
    return {
        name: sorted(other for other in others if not any(other in reached[way] for way in others))
        for name, others in imports.items()
    }


def rows(imports: Mapping[str, set[str]], layer: list[str]) -> list[list[str]]:
    """Put what imports others of its layer above them, and at most five side by side."""
    height: dict[str, int] = {}
    for name in TopologicalSorter({name: imports[name] & {*layer} for name in layer}).static_order():
        height[name] = max((height[other] + 1 for other in imports[name] & {*layer}), default=0)
    levels = [[name for name in layer if height[name] == level] for level in range(max(height.values()), -1, -1)]
    return [level[start : start + 5] for level in levels for start in range(0, len(level), 5)]


def draw(package: Path) -> str:
    """Draw layers as bands, units as boxes, and an arrow to each unit that is imported by no way round.

    Foundations, which everything may use, get none.
    """
    imports = graph(package)
    foundations = [*LAYERS.values()][-1].split()
    arrows = {name: [other for other in others if other not in foundations] for name, others in reduce(imports).items()}
    bands: list[str] = []
    places: dict[str, tuple[float, float]] = {}
    top = 0
    for layer, names in LAYERS.items():
        height = 0
        for line in rows(imports, names.split()):
            step = (WIDTH - LABEL) / len(line)
            for place, name in enumerate(sorted(line, key=lambda name: _mean_of_importers(name, arrows, places))):
                places[name] = (LABEL + (place + 0.5) * step, top + height + ROW / 2)
            height += ROW
        bands.append(
            f'<rect y="{top}" width="{WIDTH}" height="{height}" fill="{BANDS[len(bands) % 2]}"/>'
            f'<text x="12" y="{top + ROW / 2 + 4:g}" font-weight="bold">{layer}</text>'
        )
        top += height
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" width="{WIDTH}" height="{top}" '
        f'font-family="sans-serif" font-size="13" fill="{INK}">',
        '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        f'<path d="M0 0L8 4L0 8z" fill="{LINE}"/></marker>',
        *bands,
        f'<g fill="none" stroke="{LINE}">',
        *(_arrow(place, places[other]) for name, place in places.items() for other in arrows[name]),
        '</g>\n<g text-anchor="middle">',
        *(_box(name, *place) for name, place in places.items()),
        "</g>\n</svg>",
    ]
    return "\n".join(lines) + "\n"


def _mean_of_importers(name: str, arrows: Mapping[str, list[str]], places: Mapping[str, tuple[float, float]]) -> float:
    """Return where above a unit those that import it are, so that arrows are short."""
    found = [x for importer, (x, _) in places.items() if name in arrows[importer]]
    return sum(found) / len(found) if found else WIDTH


def _arrow(start: tuple[float, float], end: tuple[float, float]) -> str:
    """Draw an arrow from the lower end of a box to the upper end of another, around boxes right between them."""
    (x, y), (to_x, to_y) = start, end
    aside = 90 + (to_y - y) / 4 if abs(to_x - x) < 60 and to_y - y > ROW else 0
    middle = f"{(x + to_x) / 2 + aside:g} {(y + to_y) / 2:g}"
    return f'<path d="M{x:g} {y + BOX / 2:g} Q{middle} {to_x:g} {to_y - BOX / 2:g}" marker-end="url(#tip)"/>'


def _box(name: str, x: float, y: float) -> str:
    width = 7 * len(name) + 16
    return (
        f'<rect x="{x - width / 2:g}" y="{y - BOX / 2:g}" width="{width}" height="{BOX}" rx="5" fill="white" '
        f'stroke="{BORDER}"/><text x="{x:g}" y="{y + 4:g}">{name}</text>'
    )


if __name__ == "__main__":
    here = Path(__file__).parent
    (here / "_pictures" / "layers.svg").write_text(draw(here.parent / "src" / "unbag"), encoding="utf-8")
