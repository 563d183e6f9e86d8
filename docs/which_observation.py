"""What each kind of observation yields for the same number of questions, on the digits of scikit-learn.

``python docs/which_observation.py`` asks what ``docs/which_observation.json`` does not have yet, adds it there, and
writes the table of ``docs/which_observation.md`` anew; ``docs/pictures.py`` draws the picture from the same file.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.stats import multinomial
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import unbag
from unbag._utils.environment import date, versions
from unbag._utils.files import write_atomic

RESULTS = Path(__file__).with_suffix(".json")
QUESTIONS, DRAWS = (50, 200, 800), 3


@dataclass(frozen=True)
class Kind:
    """A kind of question: the aggregate that reads the answer, and how many rows are asked about at once."""

    name: str
    aggregate: unbag.Aggregate
    size: int
    n_classes: int = 10


KINDS = [
    Kind("label of one row", unbag.LabelProportions(), 1),
    Kind("counts in a group of 4", unbag.LabelProportions(), 4),
    Kind("pair: the same digit?", unbag.PairwiseSimilarity(), 2),
    Kind("triplet: is 2 like 1, and 3 not?", unbag.TripletComparison(), 3),
    Kind("rank: is the first lower?", unbag.OrdinalRank(), 2),
    Kind("label: 8 or 9?", unbag.LabelProportions(), 1, 2),
    Kind("bag of 4: any 8 or 9?", unbag.MultipleInstance(), 4, 2),
    Kind("counts in a group of 4: how many?", unbag.LabelProportions(), 4, 2),
    Kind("counts in a group of 16", unbag.LabelProportions(method="saddle_point"), 16),
]


def bits(kind: Kind, labels: NDArray[Any]) -> float:
    """Return the entropy of the answer about random rows, in bits: what a question is worth at most."""
    share = np.bincount(labels, minlength=kind.n_classes) / len(labels)
    if isinstance(kind.aggregate, unbag.LabelProportions):
        return float(multinomial(kind.size, share).entropy() / np.log(2))
    yes = kind.aggregate.log_likelihood(
        torch.from_numpy(share).log().expand(kind.size, -1), unbag.Groups.from_sizes([kind.size]), [1]
    ).exp()
    return float(-(yes * yes.log2() + (1 - yes) * (1 - yes).log2()))


def accuracy(kind: Kind, n: int, seed: int, data: tuple[NDArray[Any], ...]) -> float:
    """Ask about random groups of the training rows, fit, and return the accuracy on test rows."""
    X, X_test, y, y_test = data
    rng = np.random.default_rng(seed)
    groups = unbag.Groups.from_tuples(np.stack([rng.choice(len(X), kind.size, replace=False) for _ in range(n)]))
    z = kind.aggregate.observe(y, groups, kind.n_classes)
    clf = unbag.AggregateClassifier(
        kind.aggregate, classes=range(kind.n_classes), model="linear", scaling="standard", random_state=seed
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that classes are unnamed, or that groups are few, is what is asked here
        clf.fit(X, z, groups=groups)
    table = np.zeros((kind.n_classes, kind.n_classes))
    np.add.at(table, (clf.predict(X_test), y_test), 1)
    # Pairs and triplets leave classes unnamed: the best naming, as a few labels would find it.
    unnamed = isinstance(kind.aggregate, unbag.PairwiseSimilarity | unbag.TripletComparison)
    right = table[linear_sum_assignment(-table)] if unnamed else table.diagonal()
    return float(right.sum() / table.sum())


def main() -> None:
    """Ask every kind of question in every number; what the file has is not asked again."""
    torch.set_num_threads(1)
    images, digits = load_digits(return_X_y=True)
    found = json.loads(RESULTS.read_text(encoding="utf-8"))["results"] if RESULTS.exists() else []
    known = {one["kind"]: one for one in found}
    for draw, n, kind in product(range(DRAWS), QUESTIONS, KINDS):
        labels = digits if kind.n_classes == 10 else (digits >= 8).astype(int)
        data = train_test_split(images, labels, test_size=450, random_state=0)
        about = {"kind": kind.name, "rows": kind.size, "classes": kind.n_classes, "bits": bits(kind, data[2])}
        own = known.setdefault(kind.name, {**about, "accuracy": {}})["accuracy"].setdefault(str(n), [])
        if len(own) == draw:
            own.append(accuracy(kind, n, draw, data))
            print(draw, n, kind.name, round(own[-1], 3), flush=True)
            results = {"date": date(), "versions": versions("scikit-learn"), "results": list(known.values())}
            write_atomic(RESULTS, (json.dumps(results, indent=1) + "\n").encode())


def render() -> None:
    """Write the table of the page anew."""
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    asked = sorted({int(n) for one in results["results"] for n in one["accuracy"]})
    lines = [f"| question | rows | bits | bits per row | {' | '.join(f'{n} questions' for n in asked)} |"]
    lines.append("|:--|--:|--:|--:|" + "--:|" * len(asked))
    for kind in sorted(results["results"], key=lambda one: (-one["classes"], -one["bits"])):
        found = [kind["accuracy"].get(str(n)) for n in asked]
        cells = " | ".join(f"{100 * np.mean(own):.0f} %" if own else "not run" for own in found)
        lines.append(
            f"| {kind['kind']} | {kind['rows']} | {kind['bits']:.2f} | {kind['bits'] / kind['rows']:.2f} | {cells} |"
        )
    draws = [len(own) for one in results["results"] for own in one["accuracy"].values()]
    made_by = ", ".join(f"{name} {number}" for name, number in results["versions"].items())
    often = f"{min(draws)}" if min(draws) == max(draws) else f"{min(draws)} to {max(draws)}"
    lines += ["", f"Each figure is the mean of {often} draws of the questions. {results['date'][:10]}, {made_by}."]
    page = RESULTS.with_suffix(".md")
    before, rest = page.read_text(encoding="utf-8").split("<!-- table -->\n")
    after = rest.split("<!-- end of table -->\n")[1]
    table = "\n".join(lines)
    text = f"{before}<!-- table -->\n{table}\n<!-- end of table -->\n{after}"
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
    render()
