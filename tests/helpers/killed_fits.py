"""``unbag fit`` and ``NetworkTraining(checkpoint=)``, killed at random moments, as `test_killed_fits.py` runs them.

    python tests/helpers/killed_fits.py FOLDER 100 7

One process imports everything once and forks a child for every attempt. Each child saves after every step, with slow
writes, and is killed from outside at a random moment; the same fit is tried again until it gets to its end, and what it
leaves is compared with what one leaves that was never killed. Then the next fit begins, until there were so many kills,
half of either kind. And ``unbag fit`` is killed at every place of its first writes: all seven, or as many as asked.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from killed_training import PLACES, die_at, fork, killed_by_signal, slow_writes
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


def prepare() -> None:
    """Save after every step, slowly."""
    Checkpoint.due = lambda self: True
    slow_writes()
    os.fsync = lambda descriptor: time.sleep(0.01)  # a kill loses nothing that was written, on disk or not


def loudly(attempt: Callable[[], None]) -> None:
    """Say what goes wrong, which the end of a child would swallow."""
    try:
        attempt()
    except BaseException:
        traceback.print_exc()
        raise


def killed_at_random(attempt: Callable[[], None], longest: float, chance: random.Random, most: int) -> int:
    """Kill a fit until it gets to its end, or so many times, and return how often it was killed."""
    for kills in range(most):
        process = fork(prepare, attempt)
        time.sleep(chance.uniform(0.0, longest))
        os.kill(process, signal.SIGKILL)
        if not killed_by_signal(process):
            return kills
    killed_by_signal(fork(lambda: None, attempt))
    return most


def killed_at_places(attempt: Callable[[], None], write: int) -> int:
    """Kill a fit at every place of one of its writes, let it get to its end, and return how often it was killed."""
    kills = sum(killed_by_signal(fork(partial(die_at, place, write), attempt)) for place in PLACES)
    killed_by_signal(fork(lambda: None, attempt))
    return kills


def main(folder: Path, kills: int, writes: int) -> None:
    """Kill so many fits, and report on them."""
    (files := folder / "files").mkdir(parents=True)
    blobs(files, n_groups=24)
    chance = random.Random(0)
    checkpoint(files, folder / "first")  # what torch imports at the first step is imported here
    report = {"fits": 0, "different": 0}
    for kind, fit in (("checkpoint", checkpoint), ("command", command)):

        def attempt(folder: Path, fit: Callable[[Path, Path], None] = fit) -> Callable[[], None]:
            return partial(loudly, partial(fit, files, folder))

        killed_by_signal(fork(lambda: None, attempt(folder / kind)))
        expected = result_of(kind, folder / kind)
        start = time.monotonic()
        killed_by_signal(fork(prepare, attempt(folder / f"{kind}, slowly")))
        longest = time.monotonic() - start
        disturbed = [folder / f"{kind}, slowly"]
        report[kind] = 0
        while report[kind] < kills // 2:
            disturbed.append(folder / f"{kind} {len(disturbed)}")
            most = kills // 2 - report[kind]
            report[kind] += killed_at_random(attempt(disturbed[-1]), 0.7 * longest, chance, most)
        if kind == "command":
            report["at places"] = 0
            for write in range(1, writes + 1):
                disturbed.append(folder / f"{kind}, write {write}")
                report["at places"] += killed_at_places(attempt(disturbed[-1]), write)
        report["fits"] += len(disturbed)
        report["different"] += sum(result_of(kind, one) != expected for one in disturbed)
    print(json.dumps(report))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
