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
    """Print how columns were read, what was understood of the files, and what is wrong with them."""
    if checked.understood:
        for one in checked.understood["observations"]:
            show_columns(console, one["file"], one["read"])
        _show_understood(console, checked.understood)
    if not checked.problems:
        console.print("[green]No problems were found.[/green]")
        return
    show_problems(console, checked.problems)
    counts = Counter(one.severity for one in checked.problems)
    named = [f"{count} {kind}{'s' if count > 1 else ''}" for kind in COLOURS if (count := counts[kind])]
    console.print(f"{', '.join(named)}. Rows are counted from 1, without the header.", highlight=False)


def show_columns(console: Console, file: str, read: Sequence[dict[str, Any]]) -> None:
    """Print how the columns of a file of observations were read, and in how many cells."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), show_edge=False)
    table.add_column(f"column of {plain(Path(file).name)}", overflow="fold")
    table.add_column("read as", overflow="fold")
    table.add_column("cells", justify="right", no_wrap=True)
    before = None
    for one in read:
        name = "" if one["column"] == before else plain(one["column"])
        table.add_row(name, plain(one["read_as"]), f"{one['cells']:,}")
        before = one["column"]
    console.print(table, highlight=False)
    console.print()


def show_problems(console: Console, problems: Sequence[Any]) -> None:
    """Print problems one below the other, each behind how bad it is."""
    if not problems:
        return
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for one in problems:
        table.add_row(f"[{COLOURS[one.severity]}]{one.severity}", plain(one))
    console.print(table, highlight=False)


def show_fit(console: Console, fitted: Any) -> None:
    """Print what was fitted to what, how well it explains held-out groups, and where the run is."""
    from unbag.report.overview import describe_error_rates, describe_estimate  # noqa: PLC0415 (slow to import)

    summary = fitted.summary
    data, training = summary["data"], summary["training"]
    if (estimate := describe_estimate(summary)) is not None:
        console.print(plain(estimate), highlight=False)
    with_shares = any(s["own_share"] is not None for s in summary["sets"])
    headings = (
        "fitted to",
        "groups",
        "scored",
        "log-\nlikelihood",
        "constant",
        *["shares of\nthe group"] * with_shares,
    )
    rows = [
        (
            s["kind"],
            f"{s['groups']:,}",
            f"{s['judged']['groups']:,} {'held out' if s['judged']['held_out'] else 'in training'}",
            _number(s["likelihood"]["model"]),
            _number(s["likelihood"]["trivial"]),
            *["" if s["own_share"] is None else _number(s["own_share"]["log_likelihood"])] * with_shares,
        )
        for s in summary["sets"]
    ]
    console.print(_table(headings, rows))
    candidates = [(c["model"], _number(c["score"]), f"{c['weight']:.0%}") for c in training["candidates"]]
    console.print(_table(("model", "log-likelihood per held-out group", "weight"), candidates))
    sentences = [
        f"{data['rows']:,} rows, {data['features']} features, classes {_list(data['classes'])}.",
        "Log-likelihoods are means per group. The constant prediction is the same for every row"
        + ("; shares of the group are those of its counts, for each of its rows." if with_shares else "."),
        *describe_error_rates(summary),
    ]
    if training["folds"] > 1:
        sentences.append(f"Each group was held out once, in {training['folds']} folds.")
    if fitted.resumed:
        sentences.append("Training was resumed from a checkpoint.")
    if (labels := summary["labels"]) is not None:
        renamed = " (under the best names for the classes)" if labels["renamed"] else ""
        sentences.append(
            f"Accuracy on {labels['rows']:,} labelled rows: {labels['accuracy']:.1%}{renamed}; "
            f"the most frequent class alone has {labels['most_common']:.1%}."
        )
    for sentence in sentences:
        console.print(plain(sentence), highlight=False)
    folder = visible(shlex.quote(str(fitted.run.folder)))
    message = f"The run is in {folder}. For a report, run: unbag report {folder}"
    console.print(message, highlight=False, markup=False, soft_wrap=True)


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Return a table of one column of names, followed by numbers."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1))  # its headings are broken to fit in 80 columns
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="right" if place else "left")
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
    for one in understood["observations"]:
        doubt = "" if one["certain"] else " (a guess: say it with --aggregate)"
        table.add_row("observations", plain(f"{one['file']}, {one['rows']:,} rows"))
        table.add_row("  aggregate", f"{one['aggregate']}{doubt}")
        keys = [("group", one["group"]), ("members", ", ".join(one["members"])), ("observed", one["observed"])]
        keys += [("weight", one["weight"])]
        for name, column in (*keys, ("size", one["size"])):
            if column:
                table.add_row(f"  {name}", f"column{'s' if name == 'members' else ''} {plain(column)}")
        if one["sizes"] is not None:
            table.add_row("  group sizes", _bars(one["sizes"]))
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


def _bars(sizes: list[dict[str, int]]) -> str:
    """Return a small histogram: sizes, a bar, and how many groups there are."""
    names = [str(one["from"]) if one["from"] == one["to"] else f"{one['from']}-{one['to']}" for one in sizes]
    wide, most = max(map(len, names)), max(one["groups"] for one in sizes)
    return "\n".join(
        f"{name:>{wide}}  {'█' * max(1, round(BAR * one['groups'] / most))} {one['groups']:,}"
        for name, one in zip(names, sizes, strict=True)
    )


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.4f}"
