"""The default fit within the time that the match of mean proportions takes, on the tables of ``docs/defaults.md``.

``UNBAG_DATA=folder python experiments/benchmarks/equal_time.py [budget]`` fits what ``equal_time.jsonl`` does not have
yet, such as for ``9m``, and says in how many cells the default is behind, on average over draws. Both fits of a draw
run one after the other in one process, on one thread; the default is told to take no longer than the match did.
"""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unbag import AggregateClassifier, Groups
from unbag_experiments.fits.cells import measure
from unbag_experiments.fits.grouping import count, group, split
from unbag_experiments.fits.methods import learn
from unbag_experiments.fits.plan import Cell, select
from unbag_experiments.fits.runner import Kind, fill, read
from unbag_experiments.fits.sets import Data

FOLDER = Path(__file__).parent
DRAWS = 3  # of each cell at least: more where the table has more
WANTED = (one for draws in (None, DRAWS) for one in select(methods=["default"], final=True, draws=draws))
CELLS = [cell for cell in dict.fromkeys(WANTED) if not cell.in_bags]
# The one cell that was more than a point behind when each had the draws above: whether that is chance.
CELLS += [Cell("diabetes", "default", 64, "random", draw) for draw in range(12, 60)]


def run(cell: Cell, data: Data) -> dict[str, Any]:
    """Run the match and then the default on one draw."""
    assert cell.size is not None
    assert cell.grouping is not None
    train, test = split(data.y, cell.seed)
    X, X_new, y_new = data.X[train], data.X[test], data.y[test]
    ids = group(X, cell.size, cell.grouping, cell.seed)
    counts = count(ids, data.y[train], data.n_classes)
    begun = time.monotonic()
    match = learn("mean_proportions", X, ids, counts, X_new, seed=cell.seed)
    seconds = time.monotonic() - begun
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        begun = time.monotonic()
        default = AggregateClassifier(random_state=cell.seed, time_limit=seconds)
        default.fit(X, counts, groups=Groups.from_ids(torch.from_numpy(ids)))
        taken = time.monotonic() - begun
    return {
        **measure(default.predict_proba(X_new), y_new),
        "accuracy_of_match": float((match.probs.argmax(1) == y_new).mean()),
        "seconds_of_match": round(seconds, 2),
        "seconds": round(taken, 2),
        "models": len(default.models_),
        "candidates": {one["model"]: round(one["weight"], 2) for one in default.candidates_},
    }


KIND = Kind("equal_time", Cell, run)


def main() -> None:
    """Run what is missing, and say how the default compares."""
    torch.set_num_threads(1)
    # The first fit of a process imports much, which is not the match's time.
    X = np.eye(2, dtype=np.float32).repeat(30, 0)
    learn("mean_proportions", X, np.arange(60) // 2, 2 * np.eye(2, dtype=int).repeat(15, 0), X, seed=0)
    fill(CELLS, FOLDER, kind=KIND, budget=sys.argv[1] if len(sys.argv) > 1 else None)
    lines, by_cell = read(FOLDER, KIND), dict[tuple[Any, ...], list[float]]()
    for cell, line in lines.items():
        gain = 100 * (line["accuracy"] - line["accuracy_of_match"])
        by_cell.setdefault((cell.size, cell.set, cell.grouping), []).append(gain)
    gains = {place: float(np.mean(own)) for place, own in by_cell.items()}
    by_size = {size: np.mean([own for place, own in gains.items() if place[0] == size]) for size, _, _ in sorted(gains)}
    errors = {
        place: float(np.std(own, ddof=1) / len(own) ** 0.5) if len(own) > 1 else np.inf
        for place, own in by_cell.items()
    }
    times = np.array([one["seconds"] / one["seconds_of_match"] for one in lines.values()])
    told = ", ".join(f"{size:,}: {own:+.1f}" for size, own in by_size.items())
    print(f"{len(gains)} cells: {np.mean([*gains.values()]):+.1f} points on average, by size of groups {told}")
    for limit in (0, 1, 4):
        behind = sorted((own, *place) for place, own in gains.items() if own < -limit)
        beyond = sum(own < -2 * errors[tuple(place)] for own, *place in behind)
        worst = ", ".join(f"{own:+.1f} ± {errors[tuple(place)]:.1f} {place}" for own, *place in behind[:5])
        print(f"behind by more than {limit} in {len(behind)}, {beyond} of them by two standard errors; {worst}")
    print(f"{np.median(times):.2f} times the time of the match, at most {times.max():.2f}")


if __name__ == "__main__":
    main()
