"""How often intervals of the estimated accuracy contain the actual accuracy, on simulated data.

``tests/helpers/estimate_coverage.py LINES.jsonl --jobs 16 --seeds 1000 1240`` fits one classifier for each seed and
appends a line for each to a file; seeds that the file has are left out. ``--summary`` prints figures from the file, and
``--page docs/trust.md`` puts them into the page. Seeds below 1000 were used to develop the estimate.
"""

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from joblib import Parallel, delayed
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans

import unbag
from unbag.aggregates.registry import find_aggregate

KINDS = ("counts", "counts", "counts", "bags", "pairs", "counts", "counts", "counts", "ranks", "pairs")
COMPOSITIONS = ("random", "sorted", "clusters")
MODELS = ("auto", "auto", "auto", "linear", "mlp")
SIZES = {4: (100, 400), 16: (50, 150), 64: (20, 60), 256: (12, 24)}
N_TEST = 4000
MARKER = "<!-- table of tests/helpers/estimate_coverage.py -->"


class Data(NamedTuple):
    """Rows in observed groups, further rows of these groups, and rows of groups that are not observed."""

    X: np.ndarray
    y: np.ndarray
    groups: unbag.Groups
    like: np.ndarray  # (rows, columns)
    y_like: np.ndarray
    new: np.ndarray
    y_new: np.ndarray


def describe(seed: int) -> dict[str, Any]:
    """Return what is simulated for a seed."""
    rng = np.random.default_rng([seed, 1])
    kind = KINDS[seed % len(KINDS)]
    size = int(rng.choice([*SIZES])) if kind == "counts" else int(rng.choice([4, 10])) if kind == "bags" else 2
    few, many = SIZES[size] if kind == "counts" else (80, 250) if kind == "bags" else (400, 1200)
    composition = COMPOSITIONS[int(rng.integers(3))] if kind == "counts" else "random"
    n_groups = int(np.exp(rng.uniform(np.log(few), np.log(many))))
    n_classes = {"bags": [2], "ranks": [2, 3]}.get(kind, [2, 3, 6])
    return {
        "seed": seed,
        "kind": kind,
        "composition": composition,
        "size": size,
        "n_groups": n_groups,
        "n_classes": n_classes[0] if len(n_classes) == 1 else int(rng.choice(n_classes)),
        "n_columns": int(rng.choice([4, 8, 20])),
        "difficulty": float(rng.uniform(0.5, 2.0)),
        "model": MODELS[int(rng.integers(len(MODELS)))],
    }


def draw_rows(plan: dict[str, Any], n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw rows of classes with two normal components each; for ranks, classes are parts of a noisy score."""
    k, d = plan["n_classes"], plan["n_columns"]
    if plan["kind"] == "ranks":
        X = rng.normal(size=(n, d))
        score = X[:, 0] + 0.5 * X[:, 1] ** 2 + plan["difficulty"] * rng.normal(size=n)
        return X, np.digitize(score, np.quantile(score, np.arange(1, k) / k))
    centres = rng.normal(size=(k, 2, d)) * 2.2 / plan["difficulty"] / np.sqrt(d / 4)
    shares = rng.dirichlet(np.full(k, 8.0))
    if plan["kind"] == "bags":
        positive = 1 - 0.5 ** (1 / plan["size"])
        shares = np.array([1 - positive, positive])
    y = rng.choice(k, n, p=shares)
    X = centres[y, rng.integers(0, 2, n)] + rng.normal(size=(n, d))
    X[:, -1] = np.exp(X[:, -1] / 2)
    return X, y


def simulate(plan: dict[str, Any]) -> Data:
    """Draw rows, put them into groups, and observe one half of the rows of three quarters of the groups."""
    rng = np.random.default_rng([plan["seed"], 2])
    size, n_groups = plan["size"], plan["n_groups"]
    if plan["kind"] in ("pairs", "ranks"):
        n = n_groups // int(rng.choice([1, 2]))
        X, y = draw_rows(plan, n + N_TEST, rng)
        first = rng.permutation(np.arange(n_groups) % n)
        pairs = np.stack([first, (first + rng.integers(1, n, n_groups)) % n], 1)
        return Data(X[:n], y[:n], unbag.Groups.from_tuples(pairs), X[n:], y[n:], X[n:], y[n:])
    n_parents = n_groups * 4 // 3
    n = 2 * size * n_parents
    X, y = draw_rows(plan, n + N_TEST, rng)
    parent = np.arange(n) // (2 * size)
    if plan["composition"] == "sorted":
        parent[np.argsort(X[:n, 0] + rng.normal(0, 0.5, n))] = parent.copy()
    elif plan["composition"] == "clusters":
        parent = KMeans(n_parents, n_init=1, max_iter=20, random_state=0).fit(X[:n]).labels_
    observed = rng.permutation(n_parents)[:n_groups]
    inside = np.isin(parent, observed)
    half = rng.random(n) < 0.5
    train, like, new = np.flatnonzero(inside & half), np.flatnonzero(inside & ~half), np.flatnonzero(~inside)
    if plan["composition"] == "random":
        like = new = np.arange(n, n + N_TEST)
    groups = unbag.Groups.from_ids(parent[train])
    return Data(X[train], y[train], groups, X[like], y[like], X[new], y[new])


def fit(plan: dict[str, Any]) -> dict[str, Any]:
    """Fit a classifier and return its estimates beside its accuracy."""
    torch.set_num_threads(1)
    data, k = simulate(plan), plan["n_classes"]
    names = {"counts": "label_proportions", "bags": "multiple_instance", "pairs": "pairwise_similarity"}
    aggregate = find_aggregate(names.get(plan["kind"], "ordinal_rank"))
    shares = (np.bincount(data.y, minlength=k) / len(data.y)).tolist() if plan["kind"] == "ranks" else None
    clf = unbag.AggregateClassifier(
        aggregate, plan["model"], n_classes=k, class_shares=shares, n_jobs=1, random_state=plan["seed"]
    )
    begun = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clf.fit(data.X, aggregate.observe(data.y, data.groups, k), groups=data.groups)
    seconds = time.process_time() - begun
    probs = [clf.predict_proba(X) for X in (data.like, data.new)]
    order = np.arange(k)
    if clf.symmetry_ != "none":
        together = np.array([[(probs[0].argmax(1) == j)[data.y_like == i].sum() for j in range(k)] for i in range(k)])
        order = linear_sum_assignment(-together)[1]
    right = [p[:, order].argmax(1) == y for p, y in zip(probs, (data.y_like, data.y_new), strict=True)]
    line = plan | {
        "n_rows": len(data.X),
        "n_test": [len(r) for r in right],
        "accuracy": [float(r.mean()) for r in right],
        "confidence": float(probs[0].max(1).mean()),
        "estimate": describe_estimate(clf.estimated_accuracy_),
        "new_groups": describe_estimate(getattr(clf.estimated_accuracy_, "new_groups", None)),
        "findings": sorted({finding.kind for finding in clf.diagnosis_}),
        "weights": {c["model"]: round(c["weight"], 3) for c in clf.candidates_},
        "seconds": round(seconds, 2),
    }
    line |= {name: float(f"{line[name]:.4g}") for name in ("confidence", "difficulty")}
    return line


def describe_estimate(estimate: Any) -> list[float] | None:
    """Return an estimate and its interval as a list."""
    return None if estimate is None else [estimate.value, estimate.low, estimate.high]


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lines", type=Path)
    parser.add_argument("--seeds", type=int, nargs=2, default=(1000, 1240))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--summary", action="store_true")
    parser.add_argument("--page", type=Path, help="page that receives the table")
    options = parser.parse_args()
    known = [json.loads(line) for line in options.lines.read_text().splitlines()] if options.lines.exists() else []
    if options.page:
        options.page.write_text(put_into_page(summarise(known), options.page.read_text()))
    if options.summary or options.page:
        print(summarise(known))
        return
    seeds = sorted(set(range(*options.seeds)) - {line["seed"] for line in known})
    calls = (delayed(fit)(describe(seed)) for seed in seeds)
    for line in Parallel(options.jobs, return_as="generator_unordered")(calls):
        with options.lines.open("a") as file:
            file.write(json.dumps(line) + "\n")


def summarise(lines: list[dict[str, Any]]) -> str:
    """Return a table of coverage, widths and errors, by kind, and for counts by size of groups."""
    sections: dict[str, list[dict[str, Any]]] = {"all": lines}
    for key in ("kind", "size"):
        counts = [line for line in lines if line["kind"] == "counts" or key == "kind"]
        for value in sorted({line[key] for line in counts}, key=str):
            sections[f"{key} {value}"] = [line for line in counts if line[key] == value]
    head = ["fits", "no estimate", "interval contains accuracy", "half-width", "within 5 points", "mean error"]
    head = ["", *head, "mean error of confidence"]
    rows = [head, ["---"] * len(head)]
    for name, chosen in sections.items():
        known = [line for line in chosen if line["estimate"]]
        if not known:
            rows.append([name, str(len(chosen)), str(len(chosen)), *["-"] * 5])
            continue
        value, low, high = np.array([line["estimate"] for line in known]).T
        accuracy = np.array([line["accuracy"][0] for line in known])
        confidence = np.array([line["confidence"] for line in known])
        noise = 1.96 * np.sqrt(accuracy * (1 - accuracy) / np.array([line["n_test"][0] for line in known]))
        below, above = (value - low) ** 2 + noise**2, (high - value) ** 2 + noise**2
        inside = (accuracy >= value - np.sqrt(below)) & (accuracy <= value + np.sqrt(above))
        error = 100 * np.abs(value - accuracy)
        figures = [f"{inside.mean():.0%}", f"{50 * np.median(high - low):.1f}", f"{(error < 5).mean():.0%}"]
        figures += [f"{error.mean():.1f}", f"{100 * np.abs(confidence - accuracy).mean():.1f}"]
        rows.append([name, str(len(chosen)), str(len(chosen) - len(known)), *figures])
    return "".join("| " + " | ".join(row) + " |\n" for row in rows)


def put_into_page(table: str, page: str) -> str:
    """Return a page with the table between its two markers."""
    before, _, rest = page.partition(MARKER)
    _, _, after = rest.partition(MARKER)
    return f"{before}{MARKER}\n{table}{MARKER}{after}"


if __name__ == "__main__":
    main()
