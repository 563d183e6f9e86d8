"""What beginning with clusters brings where comparisons must tell many classes apart, and rates where they were chosen.

``UNBAG_DATA=folder python experiments/benchmarks/many_classes.py`` fits what ``many_classes.json`` does not have yet,
adds it there, and writes the tables of ``docs/what_can_go_wrong.md`` anew; with names of sets, of these alone.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from unbag import AggregateClassifier, Groups, OrdinalRank, OrdinalTriplet, PairwiseSimilarity
from unbag._utils.environment import date, versions
from unbag._utils.files import write_atomic
from unbag.training import permuted_accuracy
from unbag_experiments import datasets

RESULTS = Path(__file__).with_suffix(".json")
PAGE = Path(__file__).parents[2] / "docs" / "what_can_go_wrong.md"
STARTS = ("clusters", "random weights")
KINDS = {"pairs": PairwiseSimilarity(), "ranks": OrdinalRank(), "ordered triplets": OrdinalTriplet()}


@dataclass(frozen=True)
class Case:
    """Comparisons of random rows of a set; of ``chosen`` pairs half are alike, learned from with or without rates."""

    set: str
    kind: str
    groups: int
    draw: int = 0
    chosen: str = ""


CASES = [
    Case(*own, draw, chosen)
    for draw in range(3)
    for *own, chosen in (
        ("letters", "pairs", 12_000, ""),
        ("letters", "pairs", 30_000, ""),
        ("pendigits", "pairs", 3_000, ""),
        ("pendigits", "pairs", 12_000, ""),
        ("digits", "pairs", 3_000, ""),
        ("pendigits", "pairs", 12_000, "without rates"),
        ("pendigits", "pairs", 12_000, "with rates"),
        ("pendigits", "ranks", 12_000, ""),
        ("letters", "ranks", 12_000, ""),
        ("pendigits", "ordered triplets", 12_000, ""),
    )
]


def letters(per_class: int = 600, new: int = 100) -> tuple[np.ndarray, ...]:
    """26 classes of images from three sets, 32 principal components."""
    random, train, test = np.random.default_rng(0), [], []
    for name, k in (("mnist", 10), ("kuzushiji-mnist", 10), ("fashion-mnist", 6)):
        data = datasets.load(name)
        images, labels = data.X.reshape(len(data.X), -1), data.y[: data.n_train]
        for label in range(k):
            rows = random.permutation(np.flatnonzero(labels == label))
            train.append(images[rows[:per_class]])
            test.append(images[rows[per_class : per_class + new]])
    components = PCA(32, random_state=0).fit(np.concatenate(train))
    X, X_new = (components.transform(np.concatenate(part)).astype(np.float32) for part in (train, test))
    return X, np.repeat(np.arange(26), per_class), X_new, np.repeat(np.arange(26), new)


def load(name: str) -> tuple[np.ndarray, ...]:
    """Return rows and labels to learn from, and new ones."""
    if name == "letters":
        return letters()
    if name == "digits":
        (X, y), n = load_digits(return_X_y=True), 1200
    else:
        data = datasets.load(name)
        X, y, n = np.asarray(data.X, dtype=np.float32), np.asarray(data.y), data.n_train
    return X[:n], y[:n], X[n:], y[n:]


def compare(y: np.ndarray, case: Case) -> np.ndarray:
    """Return the rows of each group: at random, or such that half of the pairs are alike."""
    random, n = np.random.default_rng(case.draw), case.groups
    if not case.chosen:
        return np.stack([random.choice(len(y), KINDS[case.kind].size, replace=False) for _ in range(n)])
    pairs = random.integers(0, len(y), (40 * n, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    same = y[pairs[:, 0]] == y[pairs[:, 1]]
    return random.permutation(np.concatenate([pairs[same][: n // 2], pairs[~same][: n // 2]]))


def fit(case: Case, data: tuple[np.ndarray, ...]) -> list[dict[str, Any]]:
    """Train two replicas in one run, and return how often each is right on new rows, under the best names."""
    X, y, X_new, y_new = data
    k, begun = int(y.max()) + 1, time.process_time()
    aggregate, groups = KINDS[case.kind], Groups.from_tuples(compare(y, case), n_rows=len(X))
    z = aggregate.observe(y, groups, k)
    shares = np.bincount(y) / len(y)
    settings: dict[str, Any] = {"n_classes": k, "n_restarts": 2, "ensemble": True, "random_state": case.draw}
    if case.chosen == "with rates":
        settings["sampling"] = float((shares**2).sum())  # the share of pairs that are alike among random ones
    if case.kind == "ranks":
        settings["class_shares"] = shares
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        clf = AggregateClassifier(aggregate, "mlp", scaling="standard", **settings).fit(X, z, groups=groups)
    best = int(np.argmax([one["score"] for one in clf.replicas_]))
    found, labels = [], torch.as_tensor(y_new).long()
    for model, replica in zip(clf.models_, (best, 1 - best), strict=True):
        guessed = model.log_probs(torch.as_tensor(X_new, dtype=torch.float32)).argmax(1)
        if case.kind == "pairs":
            right = permuted_accuracy(guessed, labels)
        else:  # the end that comes first is unknown of ordered triplets
            orders = (guessed, k - 1 - guessed) if clf.symmetry_ == "reversal" else (guessed,)
            right = max(float((own == labels).double().mean()) for own in orders)
        found.append(
            asdict(case)
            | {
                "start": STARTS[replica],
                "right": right,
                "classes": k,
                "used": len(guessed.unique()),
                "score": clf.replicas_[replica]["score"],
                "best": replica == best,
                "seconds": round(time.process_time() - begun, 1),
                "findings": sorted({one.kind for one in clf.diagnosis_}),
                "warnings": len(caught),
            }
        )
    return found


def render(results: dict[str, Any], text: str) -> str:
    """Return a page with its tables written anew: means over draws; what was kept is the better by held-out groups."""
    by_start, chosen = [], []
    for name, kind, n in dict.fromkeys((one["set"], one["kind"], one["groups"]) for one in results["results"]):
        own = [one for one in results["results"] if (one["set"], one["kind"], one["groups"]) == (name, kind, n)]
        about = f"{name}, {own[0]['classes']} classes | {n:,} {kind}"
        starts = [_cell([one for one in own if one["start"] == start and not one["chosen"]]) for start in STARTS]
        kept = [one for one in own if one["best"]]
        at_random = [one for one in kept if not one["chosen"]]
        by_start.append(f"| {about} | {' | '.join([*starts, _cell(at_random)])} | {len(at_random)} |")
        if len(kept) > len(at_random):
            rates = [_cell([one for one in kept if one["chosen"] == how]) for how in ("without rates", "with rates")]
            chosen.append(f"| {about} | {' | '.join([*rates, _cell(at_random)])} |")
    made_by = ", ".join(f"{name} {number}" for name, number in results["versions"].items())
    tables = {
        "restarts": [
            "| set | comparisons | from clusters | from random weights | kept | draws |",
            "|:--|--:|--:|--:|--:|--:|",
            *by_start,
            "",
            f"In brackets: classes used, where not all are. {results['date'][:10]}, {made_by}.",
        ],
        "rates": ["| set | half alike | without rates | with rates | at random |", "|:--|--:|--:|--:|--:|", *chosen],
    }
    for name, lines in tables.items():
        before, rest = text.split(f"<!-- {name} -->\n")
        after = rest.split(f"<!-- end of {name} -->\n")[1]
        text = "\n".join([f"{before}<!-- {name} -->", *lines, f"<!-- end of {name} -->", after])
    return text


def _cell(found: list[dict[str, Any]]) -> str:
    if not found:
        return "-"
    right, used = (np.mean([one[name] for one in found]) for name in ("right", "used"))
    return f"{100 * right:.1f} %" + (f" ({used:.3g})" if used < found[0]["classes"] else "")


def main(names: list[str]) -> None:
    """Fit every case; what the file has is not fitted again."""
    torch.set_num_threads(1)
    found = json.loads(RESULTS.read_text(encoding="utf-8"))["results"] if RESULTS.exists() else []
    for case in CASES:
        known = any(all(one[name] == value for name, value in asdict(case).items()) for one in found)
        if not known and (not names or case.set in names):
            found += fit(case, load(case.set))
            print(*found[-2:], sep="\n", flush=True)
            results = {"date": date(), "versions": versions("scikit-learn"), "results": found}
            write_atomic(RESULTS, (json.dumps(results, indent=1) + "\n").encode())


if __name__ == "__main__":
    main(sys.argv[1:])
    page = render(json.loads(RESULTS.read_text(encoding="utf-8")), PAGE.read_text(encoding="utf-8"))
    write_atomic(PAGE, page.encode())
