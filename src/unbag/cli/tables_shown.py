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


def show_learned(console: Console, learned: Any) -> None:
    """Print what was learned from what, how well it explains groups it has not seen, and where the run is."""
    from unbag.report.elements import count  # noqa: PLC0415
    from unbag.report.overview import describe_error_rates, describe_estimate, describe_unfinished  # noqa: PLC0415 (slow to import)

    summary = learned.summary
    data, training = summary["data"], summary["training"]
    if (estimate := describe_estimate(summary)) is not None:
        console.print(plain(estimate), highlight=False)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1))  # its headings are broken to fit in 80 columns
    counted = any(one["own_share"] is not None for one in summary["sets"])
    for heading in ("learned from", "groups", "judged on", "log-\nlikelihood", "trivial", *["own\nshare"] * counted):
        table.add_column(heading, justify="left" if heading == "learned from" else "right")
    for one in summary["sets"]:
        judged = "left out" if one["judged"]["folds"] else "held out" if one["judged"]["held_out"] else "all"
        table.add_row(
            one["kind"],
            f"{one['groups']:,}",
            f"{one['judged']['groups']:,} ({judged})",
            _number(one["likelihood"]["model"]),
            _number(one["likelihood"]["trivial"]),
            *["" if one["own_share"] is None else _number(one["own_share"]["log_likelihood"])] * counted,
        )
    console.print(table)
    if training["candidates"]:
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
        for heading in ("model", "log-likelihood per left-out group", "weight"):
            table.add_column(heading, justify="left" if heading == "model" else "right")
        for one in training["candidates"]:
            table.add_row(one["model"], _number(one["score"]), f"{one['weight']:.0%}")
        console.print(table)
    sentences = [
        f"{data['rows']:,} rows, {data['features']} features, classes {_list(data['classes'])}.",
        f"Fitted {count(len(training['candidates']), 'kind')} of models in {training['seconds']:.0f} seconds"
        + (", resuming an unfinished run." if learned.resumed else ".")
        + " Log-likelihoods are per group; trivial is a constant prediction.",
        *describe_error_rates(summary),
        *describe_unfinished(summary),
    ]
    if counted:
        sentences.append("Own share is one that knows the counts, and gives every row the shares of its own group.")
    if training["candidates"]:
        sentences.append(f"Every group was left out once, in {training['folds']} folds.")
    if (labels := summary["labels"]) is not None:
        renamed = " (under the best names for the classes)" if labels["renamed"] else ""
        sentences.append(
            f"Accuracy on {labels['rows']:,} labelled rows: {labels['accuracy']:.1%}{renamed}; "
            f"the most frequent class alone has {labels['most_common']:.1%}."
        )
    for sentence in sentences:
        console.print(plain(sentence), highlight=False)
    folder = visible(shlex.quote(str(learned.run.folder)))
    console.print(
        f"The run is in {folder}. To see more of it: unbag report {folder}",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


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
