"""Write the tables and the picture of ``docs/scale.md`` from ``scale.json``."""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure

from unbag_experiments.benchmarks.scale import TASKS
from unbag_experiments.benchmarks.scale_cost import FITTED, Cost, Machine, shape_of
from unbag_experiments.benchmarks.scale_files import Shape

RESULTS = Path(__file__).with_name("scale.json")
DOCS = Path(__file__).parents[2] / "docs"
PICTURES = runpy.run_path(str(DOCS / "pictures.py"))
COLOURS, PALE = PICTURES["COLOURS"], PICTURES["PALE"]
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


def picture(results: Results) -> Figure:
    """Seconds of a pass over a table, measured, and projected by a model of the cost."""
    warm, cold = Machine.measured(results), Machine.measured(results, cold=True)
    rows, most = np.logspace(5, 9, 33), max(one["rows"] for one in results)
    figure = Figure(figsize=(7.6, 5.6), facecolor="white", layout="constrained")
    for axes, task in zip(figure.subplots(2, 2, sharex=True, sharey=True).flat, FITTED, strict=True):
        cost = Cost.fit(task, results, warm)
        step, words = (10_000, ", 10,000 rows a step") if task == "train from disk" else (1000, "")
        usual = [one for one in results if shape_of(one) == Shape(one["measured_rows"], rows_of_step=step)]
        axes.axvspan(most, 2e9, color=PALE, alpha=0.45, lw=0)
        axes.text(1.3 * most, 1.5e5, "projection", fontsize=9, va="top")
        for colour, n in zip(COLOURS, (1, 2, 8, 64), strict=True):
            seconds = [cost.seconds(Shape(int(one), rows_of_step=step), n, cold) for one in rows]
            label = f"{n} {'process' if n == 1 else 'processes'}"
            axes.plot(rows, seconds, "--", color=colour, lw=1.6, label=label)
            own = [one for one in usual if (one["task"], one["processes"]) == (task, n)]
            times = [one["unbag_ms"] / 1e3 * one["rows"] / one["measured_rows"] for one in own]
            axes.plot([one["rows"] for one in own], times, "o", color=colour)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlim(7e4, 2e9)
        axes.set_ylim(2e-2, 2e5)
        axes.minorticks_off()
        axes.set_title(task + words, fontsize=10.5)
        axes.grid(color=PALE)
    for axes in figure.axes[2:]:
        axes.set_xlabel("rows")
    for axes in figure.axes[::2]:
        axes.set_ylabel("seconds of a pass")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    return figure


def _error(cost: Cost, result: dict[str, Any], machine: Machine) -> float:
    return cost.seconds(shape_of(result), result["processes"], machine) / (result["unbag_ms"] / 1e3) - 1


def _short(number: float) -> str:
    return f"{float(f'{number:.2g}'):,.10g}"


def main() -> None:
    """Write the tables and the picture anew."""
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    page, results = DOCS / "scale.md", found["results"]
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
    with rc_context(PICTURES["STYLE"]):
        picture(results).savefig(DOCS / "_pictures" / "scale.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
