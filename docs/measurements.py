"""Tables of measurements, from ``experiments/benchmarks/*.json``.

``python docs/measurements.py`` writes them between the markers of the pages. Benchmarks write the JSON files.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
BENCHMARKS = DOCS.parent / "experiments" / "benchmarks"
PAGES = [DOCS.parent / "README.md", DOCS / "performance.md", DOCS / "scale.md", DOCS / "selection.md"]
METHODS = {"default": "default fit of 0.2.0", "mean_proportions": "mean proportions, converged"}
MARKED = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end of table -->)", flags=re.DOTALL)


def load(name: str) -> dict[str, Any]:
    """Read a file of measurements."""
    return json.loads((BENCHMARKS / f"{name}.json").read_text(encoding="utf-8"))


def describe(measured: dict[str, Any]) -> str:
    """State with what a file was measured."""
    versions = measured["versions"] | measured.get("peers", {})
    parts = [*(f"{name} {number}" for name, number in versions.items()), measured["machine"], "one thread"]
    return f"{', '.join([*parts, *([measured['date'][:10]] if 'date' in measured else [])])}."


def format_table(heading: str, rows: list[tuple[Any, ...]], texts: int) -> str:
    """Write a table in Markdown, of which the first columns are text."""
    n_columns = heading.count("|") + 1
    rule = "|" + ":--|" * texts + "--:|" * (n_columns - texts)
    return "\n".join([f"| {heading} |", rule, *(f"| {' | '.join(map(str, row))} |" for row in rows)])


def compare_with_peers() -> str:
    """Tabulate speed and error of likelihoods next to other packages."""
    measured = load("peers")
    rows = [
        (
            row["case"],
            row["peer"],
            *(f"{row[name]:.3g}" for name in ("unbag_ms", "peer_ms", "ratio")),
            f"{row['unbag_error']:.0e}",
            "another objective" if row["peer_error"] is None else f"{row['peer_error']:.0e}",
        )
        for row in measured["speed"]
        if not row["peer"].endswith(("ours", "known labels"))
    ]
    heading = "case | compared with | unbag, ms | other, ms | other / unbag | error of unbag | error of other"
    return f"{format_table(heading, rows, 2)}\n\n{describe(measured)}"


def compare_accuracy() -> str:
    """Tabulate accuracies of fits next to other packages."""
    rows = [(row["case"], row["peer"], f"{100 * row['accuracy']:.1f} %") for row in load("peers")["accuracy"]]
    return format_table("case | method | accuracy on new rows", rows, 2)


def tabulate_missed(name: str) -> str:
    """Tabulate the cases of a benchmark that miss their target, and count the others."""
    measured = load(name)
    results = [row for row in measured["results"] if not row["met"]]
    rows = [
        (
            row["case"],
            row["reference"],
            *(f"{row[key]:.3g}" for key in ("unbag_ms", "reference_ms", "ratio")),
            row["target"],
        )
        for row in results
    ]
    table = format_table("case | compared with | unbag, ms | other, ms | ratio | target missed", rows, 2)
    met = f"Targets met: {sum(row['met'] for row in measured['results'])} of {len(measured['results'])}. "
    return f"{table}\n\n{met}{describe(measured)}"


def tabulate_scale() -> str:
    """Tabulate rows per second with one and with two processes."""
    measured = load("scale")
    plain = re.compile(r"[a-z ]+, [\d,]+ rows(, 10,000 rows a step)?, [12] process(es)?")
    cells: dict[tuple[str, int], dict[int, dict[str, Any]]] = {}
    for row in measured["results"]:
        if plain.fullmatch(row["case"]) and row["task"] != "send" and row["rows"] > 100_000:
            steps = f", {row['rows_of_step']:,} rows per step" if row["task"].startswith("train") else ""
            cells.setdefault((row["task"] + steps, row["rows"]), {})[row["processes"]] = row
    rows = [
        (
            task,
            f"{n_rows:,}",
            by[1]["note"].split()[0],
            f"{by[1]['ratio']:.2g} times {by[1]['reference']}",
            f"{by[2]['ratio']:.2g}" if 2 in by else "",
        )
        for (task, n_rows), by in sorted(cells.items())
    ]
    heading = "task | rows | rows per second | time compared with | time with two processes / one"
    return f"{format_table(heading, rows, 1)}\n\n{describe(measured)}"


def compare_converged() -> str:
    """Tabulate the default fit and a match of mean proportions trained to convergence, on random groups of digits."""
    lines = (
        (BENCHMARKS.parent / "results" / "before" / "fits" / "version_0_2_0.jsonl")
        .read_text(encoding="utf-8")
        .splitlines()
    )
    fits = [line for line in map(json.loads, lines) if line["set"] == "digits" and line["grouping"] == "random"]
    rows = []
    for size in (4, 16, 64):
        found = [
            [line["accuracy"] for line in fits if (line["size"], line["method"]) == (size, name)] for name in METHODS
        ]
        rows.append((f"groups of {size}", *(f"{100 * sum(of) / len(of):.1f} %" for of in found), len(found[0])))
    return format_table(f"digits | {' | '.join(METHODS.values())} | draws", rows, 1)


def tabulate_selection() -> str:
    """Tabulate accuracies from pairs that were selected by their answer."""
    rates = {"": "random pairs", "without rates": "half alike, without rates", "with rates": "half alike, with rates"}
    rows = []
    for key, title in rates.items():
        found = [
            100 * row["right"]
            for row in load("many_classes")["results"]
            if (row["set"], row["kind"], row["groups"]) == ("pendigits", "pairs", 12000)
            and row["chosen"] == key
            and row["start"] == "clusters"
        ]
        rows.append((title, f"{sum(found) / len(found):.1f} %", f"{min(found):.1f} to {max(found):.1f} %", len(found)))
    return format_table("12,000 pairs of pendigits, 10 classes | mean accuracy | range | draws", rows, 1)


def summarise() -> str:
    """Tabulate the comparison of README."""
    peers = load("peers")
    speed = {(row["case"], row["peer"]): row for row in peers["speed"]}

    def time(case: str, peer: str, name: str) -> tuple[str, str]:
        row = speed[case, peer]
        return f"{row['unbag_ms']:.2g} ms", f"{name}: {row['peer_ms']:.2g} ms"

    def share(case: str, peer: str) -> str:
        (row,) = (row for row in peers["accuracy"] if (row["case"], row["peer"]) == (case, peer))
        return f"{100 * row['accuracy']:.1f} %"

    pairs = "digits, 1,500 pairs, best naming"
    converged = {line.split(" | ")[0]: line.split(" | ")[1:3] for line in compare_converged().splitlines()}
    objective = "mean proportions (the objective of DLLP), trained to convergence"
    rows = [
        (
            "likelihood and gradient, 128 groups of 6, 10 classes",
            *time("counts, 10 classes, 128 groups of 6", "KLay, not compiled", "KLay, not compiled"),
        ),
        (
            "the same, 64 bags of 6",
            *time("bags, 64 of 6", "torchmil, MaxPool", "torchmil `MaxPool`, another objective"),
        ),
        ("the same, 256 pairs", *time("pairs, 10 classes, 256", "KLay, not compiled", "KLay, not compiled")),
        *(
            (f"digits from totals of groups of {size}, accuracy", ours, f"{objective}: {other}")
            for size, (ours, other) in ((size, converged[f"| groups of {size}"]) for size in (4, 16))
        ),
        (
            "digits from 1,500 pairs, accuracy after matching names",
            f"{share(pairs, 'unbag, default')}; a network alone {share(pairs, 'unbag, a network')}",
            f"metric-learn (ITML) and k-means: {share(pairs, 'metric-learn, ITML and k-means')}",
        ),
    ]
    return format_table("task | unbag | other", rows, 3)


def describe_training() -> str:
    """State how long epochs take next to supervised ones."""
    measured = load("training")
    steps = [row["ratio"] for row in measured["results"] if row["case"].startswith("a step")]
    (replicas,) = (row for row in measured["results"] if row["case"].startswith("five replicas"))
    return (
        f"On a processor, an epoch takes {min(steps):.2f} to {max(steps):.2f} times as long as a supervised one, and "
        f"five replicas\n{replicas['ratio']:.1f} times as long as one. {describe(measured)}"
    )


TABLES = {
    "training": describe_training,
    "summary": summarise,
    "peers": compare_with_peers,
    "accuracy": compare_accuracy,
    "converged": compare_converged,
    "engine": lambda: tabulate_missed("engine"),
    "training_gpu": lambda: tabulate_missed("training_gpu"),
    "scale": tabulate_scale,
    "selection": tabulate_selection,
}


def render(text: str) -> str:
    """Return a page with the tables of the present files."""
    return MARKED.sub(lambda match: f"{match[1]}{TABLES[match[2]]()}\n{match[3]}", text)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(render(page.read_text(encoding="utf-8")), encoding="utf-8")
