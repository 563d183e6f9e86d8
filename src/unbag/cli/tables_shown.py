"""What the commands on tables print."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from unbag._utils.terminal import plain, visible

COLOURS = {"error": "red", "warning": "yellow", "note": "dim"}
BAR = 24
MOST_FEATURES = 40


def show_checked(console: Console, checked: Any) -> None:
    """Print how the files were understood, and their problems."""
    if checked.understood:
        for source in checked.understood["observations"]:
            show_columns(console, source["file"], source["read"])
        _show_understood(console, checked.understood)
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
    if not problems:
        return
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for problem in problems:
        table.add_row(f"[{COLOURS[problem.severity]}]{problem.severity}", plain(problem))
    console.print(table, highlight=False)


def show_fit(console: Console, fitted: Any) -> None:
    """Print what was fitted to what, how well it explains held-out groups, and where the run is."""
    from unbag.report.overview import describe_error_rates, describe_estimate  # noqa: PLC0415 (slow to import)

    summary = fitted.summary
    data, training = summary["data"], summary["training"]
    if (estimate := describe_estimate(summary)) is not None:
        console.print(plain(estimate), highlight=False)
    with_shares = any(s["own_share"] is not None for s in summary["sets"])
    figures = ("groups", "held\nout", "log-\nlikelihood", "constant", *["shares of\nthe group"] * with_shares)
    rows = [
        (
            s["kind"],
            f"{s['groups']:,}",
            f"{s['judged']['groups']:,}" if s["judged"]["held_out"] else "none",
            _number(s["likelihood"]["model"]),
            _number(s["likelihood"]["trivial"]),
            *["" if s["own_share"] is None else _number(s["own_share"]["log_likelihood"])] * with_shares,
        )
        for s in summary["sets"]
    ]
    console.print(make_table(("fitted to", *figures), rows))
    candidates = [(c["model"], _number(c["score"]), f"{c['weight']:.0%}") for c in training["candidates"]]
    console.print(make_table(("model", "log-likelihood per held-out group", "weight"), candidates))
    sentences = [
        f"{data['rows']:,} rows, {data['features']} features, classes {_list(data['classes'])}.",
        "Log-likelihoods are means per group, of held-out groups if there are any. The constant prediction is the same "
        "for every row"
        + ("; shares of the group are those of its counts, for each of its rows." if with_shares else "."),
        *describe_error_rates(summary),
    ]
    if training["folds"] > 1:
        sentences.append(f"Each group was held out once, in {training['folds']} folds.")
    if fitted.resumed:
        sentences.append("Training was resumed from a checkpoint.")
    if (labels := summary["labels"]) is not None:
        renamed = " (under the best names for the classes)" if labels["renamed"] else ""
        accuracy = f"Accuracy on {labels['rows']:,} labelled rows: {labels['accuracy']:.1%}{renamed}"
        sentences.append(f"{accuracy}; the most frequent class alone has {labels['most_common']:.1%}.")
    for sentence in sentences:
        console.print(plain(sentence), highlight=False)
    folder = visible(shlex.quote(str(fitted.run.folder)))
    message = f"The run is in {folder}. For a report, run: unbag report {folder}"
    console.print(message, highlight=False, markup=False, soft_wrap=True)


def make_table(headings: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 1, **options: Any) -> Table:
    """Return a table whose first columns are texts, and whose others are numbers."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), show_edge=texts == 1, **options)
    for place, heading in enumerate(headings):
        if place < texts:
            table.add_column(plain(heading), overflow="fold")
        else:
            table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*map(plain, row))
    return table


def _show_understood(console: Console, understood: dict[str, Any]) -> None:
    instances = understood["instances"]
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("instances", plain(f"{instances['file']}, {instances['rows']:,} rows"))
    for name in ("id", "group", "label", "subject"):
        if instances.get(name) is not None:
            table.add_row(f"  {name}", f"column {plain(instances[name])}")
    table.add_row("  features", "\n".join(map(plain, _features(instances["features"]))))
    for source in understood["observations"]:
        table.add_row("observations", plain(f"{source['file']}, {source['rows']:,} rows"))
        doubt = "" if source["certain"] else " (inferred; name it with --aggregate)"
        table.add_row("  aggregate", f"{source['aggregate']}{doubt}")
        for name in ("group", "members", "observed", "weight", "size"):
            if columns := source[name]:
                several = f"columns {', '.join(columns)}" if name == "members" else f"column {columns}"
                table.add_row(f"  {name}", plain(several))
        if source["sizes"] is not None:
            table.add_row("  group sizes", _draw_histogram(source["sizes"]))
    table.add_row("classes", plain(_list(understood["classes"])))
    console.print(table, highlight=False)
    console.print()


def _features(kinds: dict[str, str]) -> list[str]:
    """Return a line for each kind of feature."""
    by_kind: dict[str, list[str]] = {}
    for name, kind in kinds.items():
        by_kind.setdefault(kind, []).append(name)
    return [f"{len(names)} {kind}: {_list(names)}" for kind, names in by_kind.items()]


def _list(names: list[str]) -> str:
    more = len(names) - MOST_FEATURES
    return ", ".join(names[:MOST_FEATURES]) + (f" and {more:,} more" if more > 0 else "")


def _draw_histogram(sizes: list[dict[str, int]]) -> str:
    """Return a histogram of sizes as text."""
    names = [str(one["from"]) if one["from"] == one["to"] else f"{one['from']}-{one['to']}" for one in sizes]
    wide, most = max(map(len, names)), max(one["groups"] for one in sizes)
    return "\n".join(
        f"{name:>{wide}}  {'█' * max(1, round(BAR * one['groups'] / most))} {one['groups']:,}"
        for name, one in zip(names, sizes, strict=True)
    )


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.4f}"
