"""Tables and picture of ``docs/scale.md``, from ``benchmarks/scale.json`` alone: ``python docs/scale.py``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pictures
from matplotlib import rc_context

from unbag.benchmarks.scale import TASKS
from unbag.benchmarks.scale_cost import FITTED, Cost, Machine, shape_of
from unbag.benchmarks.scale_files import Shape

HERE = Path(__file__).parent
PROCESSES = (1, 2, 8, 64)
STEPS = {", 1,000 rows a step": [1000] * 4, ", 10,000 rows a step": [10_000] * 4}
STEPS[", 10,000 rows a step and process"] = [10_000 * n for n in PROCESSES]
Results = list[dict[str, Any]]


def measured(results: Results) -> Iterator[str]:
    """Yield the table of what was measured of tables of 20 columns in two classes, in groups of 100."""
    yield "| task | rows | processes | rows a second | beside | its rows a second | times its time |"
    yield "|:--|--:|--:|--:|:--|--:|--:|"
    tasks = list(TASKS)
    for one in sorted(results, key=lambda one: (one["processes"], tasks.index(one["task"]), one["rows"])):
        shape = shape_of(one)
        if one["task"] != "send" and shape in (Shape(shape.rows), Shape(shape.rows, rows_of_step=10_000)):
            own, other = (_short(1e3 * one["measured_rows"] / one[name]) for name in ("unbag_ms", "reference_ms"))
            steps = f", {shape.rows_of_step:,} rows a step" if one["task"].startswith("train") else ""
            about = f"{one['task']}{steps} | {one['rows']:,} | {one['processes']}"
            yield f"| {about} | {own} | {one['reference']} | {other} | {one['ratio']:.2g} |"


def fitted(results: Results) -> Iterator[str]:
    """Yield the table of the model of the cost, and how far it is from what was measured."""
    machine, most = Machine.measured(results), max(one["rows"] for one in results)
    yield f"| task | nanoseconds for each | largest error | of {most:,} rows, fitted without them |"
    yield "|:--|:--|--:|--:|"
    for task in FITTED:
        own = [one for one in results if one["task"] == task]
        cost = Cost.fit(task, own, machine)
        errors = [_error(cost, one, machine) for one in own]
        without = Cost.fit(task, [one for one in own if one["rows"] < most], machine)
        ahead = [_error(without, one, machine) for one in own if one["rows"] == most]
        terms = ", ".join(f"{name} {_short(1e9 * value)}" for name, value in cost.coefficients.items() if value)
        yield f"| {task} | {terms} | {max(errors, key=abs):+.0%} | {', '.join(f'{one:+.0%}' for one in ahead)} |"


def projected(results: Results, rows: int = 10**9) -> Iterator[str]:
    """Yield the table of what the model says of many rows, with files that are read from disk."""
    warm, cold = Machine.measured(results), Machine.measured(results, cold=True)
    yield f"| projected minutes of {rows:,} rows, by processes | {' | '.join(map(str, PROCESSES))} |"
    yield "|:--|" + "--:|" * len(PROCESSES)
    for task in FITTED:
        cost = Cost.fit(task, results, warm)
        for words, of_step in STEPS.items() if task == "train from disk" else [("", [1000] * 4)]:
            shapes = [Shape(rows, rows_of_step=step) for step in of_step]
            found = [cost.seconds(shape, n, cold) / 60 for n, shape in zip(PROCESSES, shapes, strict=True)]
            yield f"| {task}{words} | {' | '.join(map(_short, found))} |"


def _error(cost: Cost, result: dict[str, Any], machine: Machine) -> float:
    return cost.seconds(shape_of(result), result["processes"], machine) / (result["unbag_ms"] / 1e3) - 1


def _short(number: float) -> str:
    return f"{float(f'{number:.2g}'):,.10g}"


def main() -> None:
    """Write the tables and the picture anew."""
    found = json.loads((HERE.parent / "benchmarks" / "scale.json").read_text(encoding="utf-8"))
    page, results = HERE / "scale.md", found["results"]
    cold = Machine.measured(results, cold=True)
    versions = ", ".join(f"{name} {number}" for name, number in found["versions"].items())
    tables = {
        "measured": [*measured(results), "", f"{versions}; {found['machine']}, {found['threads']} thread a process."],
        "cost": [*fitted(results)],
        "projection": [
            *projected(results),
            "",
            f"With files at {cold.bandwidth / 1e9:.2g} GB a second, which all processes share, messages at "
            f"{cold.network / 1e9:.2g} GB a second, and {_short(cold.latency * 1e6)} µs for a short one.",
        ],
    }
    text = page.read_text(encoding="utf-8")
    for name, lines in tables.items():
        body = "\n".join(lines).replace("\\", r"\\")
        text = re.sub(rf"(<!-- {name} -->\n).*?(<!-- end -->)", rf"\g<1>{body}\n\g<2>", text, flags=re.DOTALL)
    page.write_text(text, encoding="utf-8")
    with rc_context(pictures.STYLE):
        pictures.scale().savefig(HERE / "_pictures" / "scale.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
