"""What the commands print."""

import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from unbag._utils.terminal import plain, visible

COLOURS = {"error": "red", "warning": "yellow", "note": "dim"}
MOST_FEATURES = 12


def show_checked(console: Console, checked: Any) -> None:
    """Print how the files were understood, and their problems."""
    if checked.understood:
        for source in checked.understood["observations"]:
            show_columns(console, source["file"], source["read"])
        _show_grid(console, _describe_files(checked.understood))
        console.print()
    if not checked.problems:
        console.print("[green]No problems were found.[/green]")
        return
    show_problems(console, checked.problems)
    counts = Counter(problem.severity for problem in checked.problems)
    named = [f"{count} {kind}{'s' if count > 1 else ''}" for kind in COLOURS if (count := counts[kind])]
    console.print(f"{', '.join(named)}. Rows are counted from 1, without the header.", highlight=False)


def show_columns(console: Console, file: str, read: Sequence[dict[str, Any]]) -> None:
    """Print how the columns of a file of observations were read, and in how many cells."""
    names = [column["column"] for column in read]
    rows = [
        ("" if name == before else name, column["read_as"], f"{column['cells']:,}")
        for name, before, column in zip(names, [None, *names], read, strict=False)
    ]
    console.print(make_table((f"column of {Path(file).name}", "read as", "cells"), rows, texts=2), highlight=False)
    console.print()


def show_problems(console: Console, problems: Sequence[Any]) -> None:
    """Print problems, each after its severity."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for problem in problems:
        table.add_row(f"[{COLOURS[problem.severity]}]{problem.severity}", _unbroken(problem))
    if problems:
        console.print(table, highlight=False)


def show_fit(console: Console, fitted: Any) -> None:
    """Print how good the model is, what it was fitted to, and where the run is."""
    from unbag.report.overview import describe_error_rates, describe_estimate  # noqa: PLC0415 (slow to import)

    summary = fitted.summary
    data, training, labels = summary["data"], summary["training"], summary["labels"]
    for sentence in [*describe_estimate(summary), *describe_error_rates(summary), ""]:
        console.print(_unbroken(sentence), highlight=False)
    described = [
        ("rows", f"{data['rows']:,}"),
        ("features", str(data["features"])),
        ("classes", _list(data["classes"])),
    ]
    for s in summary["sets"]:
        judged = f"{s['judged']['groups']:,} held out" if s["judged"]["held_out"] else "none held out"
        if training["folds"] > 1:
            judged = f"held out once each in {training['folds']} folds"
        better = f"{s['likelihood']['better']:.0%} predicted better than by class shares alone"
        described.append((s["wording"]["groups"], f"{s['groups']:,}, {judged}; {better}"))
    weights = sorted(((c["weight"], c["model"]) for c in training["candidates"]), reverse=True)
    described.append(("models", ", ".join(f"{name} {weight:.0%}" for weight, name in weights)))
    if fitted.resumed:
        described.append(("training", "resumed from a checkpoint"))
    if labels is not None:
        renamed = ", with the best assignment of class names" if labels["renamed"] else ""
        accuracy = f"accuracy {labels['accuracy']:.1%} on {labels['rows']:,} labelled rows{renamed}"
        described.append(("labels", f"{accuracy}; the most frequent class has {labels['most_common']:.1%}"))
    folder = shlex.quote(str(fitted.run.folder))
    _show_grid(console, [*described, ("run", folder), ("next", f"unbag report {folder}")])


def make_table(headings: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 1, **options: Any) -> Table:
    """Return a table whose first columns are texts, and whose others are numbers."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), show_edge=texts == 1, **options)
    for heading in headings[:texts]:
        table.add_column(plain(heading), overflow="fold")
    for heading in headings[texts:]:
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*map(plain, row))
    return table


def _unbroken(sentence: object) -> str:
    """Return a sentence whose percentages are not broken at the end of a line; no space stops a terminal from that."""
    return plain(sentence).replace(" %", "%")


def _show_grid(console: Console, rows: Iterable[tuple[str, str]]) -> None:
    """Print names and values side by side."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, "\n".join(map(plain, value.split("\n"))))
    console.print(table, highlight=False)


def _describe_files(understood: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the roles of the columns of all files, as names and values."""
    instances = understood["instances"]
    rows = [("instances", f"{visible(instances['file'])}, {instances['rows']:,} rows")]
    roles = ("id", "group", "label", "subject")
    rows += [(f"  {name}", f"column {visible(instances[name])}") for name in roles if instances.get(name) is not None]
    by_kind: dict[str, list[str]] = {}
    for name, kind in instances["features"].items():
        by_kind.setdefault(kind, []).append(name)
    rows.append(("  features", "\n".join(f"{len(names)} {kind}: {_list(names)}" for kind, names in by_kind.items())))
    for source in understood["observations"]:
        rows.append(("observations", f"{visible(source['file'])}, {source['rows']:,} rows"))
        doubt = "" if source["certain"] else " (inferred; name it with --aggregate)"
        rows.append(("  aggregate", f"{source['aggregate']}{doubt}"))
        if source["members"]:
            rows.append(("  members", f"columns {_list(source['members'])}"))
        roles = ("group", "observed", "weight", "size")
        rows += [(f"  {name}", f"column {visible(source[name])}") for name in roles if source[name]]
        if source["sizes"] is not None:
            sizes = [(b["from"], f"-{b['to']}" if b["to"] > b["from"] else "", b["groups"]) for b in source["sizes"]]
            shown = ", ".join(f"{low}{high} ({groups:,} groups)" for low, high, groups in sizes)
            rows.append(("  group sizes", shown))
    return [*rows, ("classes", _list(understood["classes"]))]


def _list(names: Sequence[str]) -> str:
    more = len(names) - MOST_FEATURES
    return ", ".join(map(visible, names[:MOST_FEATURES])) + (f" and {more:,} more" if more > 0 else "")
