"""``unbag fit`` and ``NetworkTraining(checkpoint=)``, killed while they write, as `test_killed_fits.py` runs them.

    python tests/helpers/killed_fits.py FOLDER 7

A process imports everything once and forks a child for every attempt, which kills itself at a place of a write. The
same fit is then run to its end, and its results are compared with those of a fit that was never killed.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from killed_training import PLACES, die_at, fork, killed_by_signal
from safetensors.torch import save_file
from table_files import blobs, call
from training_problems import weights_of

import unbag
import unbag.persistence.saved_models
import unbag.report
import unbag.tables  # what commands import late, so that no child has to
from unbag.training import Checkpoint

EPOCHS = 10


def command(files: Path, folder: Path) -> None:
    """Run ``unbag fit`` to its end, from wherever it is."""
    settings = ["--epochs", EPOCHS, "--model", "linear", "--learning-rate", 0.1]
    done = call("fit", files / "people.csv", files / "counts.csv", "--exclude", "label", "--out", folder, *settings)
    if done.exit_code and "has a finished run" not in done.stderr:
        raise RuntimeError(done.output)


def checkpoint(files: Path, folder: Path) -> None:
    """Run a fit with a checkpoint to its end, from wherever it is, and leave the weights behind."""
    X = np.random.default_rng(0).normal(size=(60, 3))
    groups = unbag.Groups.from_sizes([2] * 30)
    counts = unbag.LabelProportions().observe(X[:, 0] > 0, groups, 2)
    training = unbag.NetworkTraining(EPOCHS, loss="mae", checkpoint=folder)
    clf = unbag.AggregateClassifier(model="mlp", training=training, random_state=0).fit(X, counts, groups)
    save_file(weights_of(clf.mixture_.candidates[0].models[0].module), folder / "weights.safetensors")
    (folder / "history.json").write_text(json.dumps(clf.history_))


def result_of(kind: str, folder: Path) -> dict[str, object]:
    """Return what a fit leaves, but for dates and durations."""
    if kind == "checkpoint":
        history = json.loads((folder / "history.json").read_text())
        return {"weights": (folder / "weights.safetensors").read_bytes(), "history": _timeless(history)}
    run = json.loads((folder / "run.json").read_text())
    (weights,) = (folder / "model").glob("weights-*")
    model = json.loads((folder / "model" / "model.json").read_text())["content"]
    for entries in (model["history"], model["candidates"], model["mixture"]["candidates"]):
        entries[:] = _timeless(entries)
    files = {name: (folder / name).read_bytes() for name in (f"model/{weights.name}",)}
    left = sorted(path.name for path in folder.rglob("*") if path.is_file() and "checkpoint" not in path.parts)
    return {**files, "model": model, "status": run["status"], "plan": run["plan"], "left": left}


def _timeless(history: list[dict]) -> list[dict]:
    return [{name: value for name, value in one.items() if name != "seconds"} for one in history]


def loudly(attempt: Callable[[], None]) -> None:
    """Say what goes wrong, which the end of a child would swallow."""
    try:
        attempt()
    except BaseException:
        traceback.print_exc()
        raise


def killed_at_places(attempt: Callable[[], None], write: int) -> int:
    """Kill a fit at every place of a write, run it to its end, and return how often it was killed."""

    def prepare(place: str) -> None:
        Checkpoint.due = lambda self: True  # a save after every step
        die_at(place, write)

    kills = sum(killed_by_signal(fork(partial(prepare, place), attempt)) for place in PLACES)
    killed_by_signal(fork(lambda: None, attempt))
    return kills


def main(folder: Path, writes: int) -> None:
    """Kill fits at every place of some of their writes, and report on them."""
    (files := folder / "files").mkdir(parents=True)
    blobs(files, n_groups=24)
    checkpoint(files, folder / "first")  # what torch imports at the first step is imported here
    report = {"different": 0}
    for kind, fit in (("checkpoint", checkpoint), ("command", command)):
        report[kind] = 0
        killed_by_signal(fork(lambda: None, partial(loudly, partial(fit, files, folder / kind))))
        for write in range(1, writes + 1):
            disturbed = folder / f"{kind}, write {write}"
            report[kind] += killed_at_places(partial(loudly, partial(fit, files, disturbed)), write)
            report["different"] += result_of(kind, disturbed) != result_of(kind, folder / kind)
    print(json.dumps(report))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), int(sys.argv[2]))
