"""A run that is killed again and again, for real; `test_checkpoints.py` runs this file as a script.

Starting a process takes seconds, most of them to import torch. So this one imports it once, runs undisturbed, in one
thread, and then forks a child for every attempt. Some children are killed from outside at a random moment, with writes
made so slow that many of these moments fall into them; others kill themselves at a chosen place of a write.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import save_file
from training_problems import bags, network, observe, table, weights_of, without_seconds

from unbag import Groups
from unbag.training import Checkpoint, Settings, held_out_likelihood, train

RANDOM_KILLS = 12
PLACES = ["half written", "written", "on disk", "replaced"]
SETTINGS = Settings(epochs=30, warm_up=2, remember_from=2, batch_size=3, learning_rate=0.01)

fsync, replace = os.fsync, os.replace


def run(folder: Path) -> None:
    """Train to the end from wherever the run is, and leave the result behind."""
    X, labels = table(60, 2)
    learned, held_out = bags(labels).split(0.25, torch.Generator().manual_seed(0))
    labelled = observe("LabelProportions", labels, Groups.from_tuples([[0], [1]], n_rows=60), 2, weight=0.5)
    trained = train(
        partial(network, 2, torch.nn.Dropout),
        X,
        [learned, labelled],
        SETTINGS,
        seeds=[0, 1],
        score=held_out_likelihood(X, [held_out]),
        checkpoint=Checkpoint(folder, every=1),
    )
    for place, model in enumerate(trained.models):
        save_file(weights_of(model), folder / f"model {place}.safetensors")
    rest = {"history": without_seconds(trained), "best_epoch": trained.best_epoch, "best_score": trained.best_score}
    (folder / "rest.json").write_text(json.dumps(rest))


def fork(prepare: Callable[[], None], attempt: Callable[[], None]) -> int:
    """Start an attempt and return its process."""
    if process := os.fork():
        return process
    code = 1
    try:
        prepare()
        attempt()
        code = 0
    finally:
        os._exit(code)  # without the exit handlers of the parent


def slow_writes() -> None:
    """Make every write take a while, before and after each of its parts."""

    def slowly(action):
        def slow(*arguments):
            time.sleep(0.005)
            action(*arguments)
            time.sleep(0.005)

        return slow

    os.fsync, os.replace = slowly(fsync), slowly(replace)


def die_at(place: str, write: int) -> None:
    """Kill this process at a place of a later write."""
    begun = 0

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def dying_fsync(descriptor: int) -> None:
        nonlocal begun
        begun += 1
        if begun == write and place == "half written":
            os.ftruncate(descriptor, os.fstat(descriptor).st_size // 2)
            die()
        if begun == write and place == "written":
            die()
        fsync(descriptor)
        if begun == write and place == "on disk":
            die()

    def dying_replace(old: str, new: str) -> None:
        replace(old, new)
        if begun == write and place == "replaced":
            die()

    os.fsync, os.replace = dying_fsync, dying_replace


def killed_by_signal(process: int) -> bool:
    """Wait for an attempt and say how it ended."""
    _, status = os.waitpid(process, 0)
    if not os.WIFSIGNALED(status) and os.WEXITSTATUS(status) != 0:
        raise SystemExit("an attempt failed; see above")
    return os.WIFSIGNALED(status)


def main(folder: Path) -> None:
    """Run undisturbed, then with kills, and report on these."""
    run(folder / "undisturbed")
    disturbed = folder / "disturbed"
    attempt = partial(run, disturbed)
    chance = random.Random(0)
    report = {"kills": 0, "with a draft left": 0, "epochs": []}

    def count(process: int) -> None:
        report["kills"] += killed_by_signal(process)
        report["with a draft left"] += any(disturbed.glob(".*.part"))
        if (disturbed / "checkpoint.safetensors").exists():
            report["epochs"].append(Checkpoint(disturbed).load()["epoch"])

    for place in PLACES:  # the very first write
        count(fork(partial(die_at, place, 1), attempt))
    for _ in range(RANDOM_KILLS):
        process = fork(slow_writes, attempt)
        time.sleep(chance.uniform(0.0, 0.15))
        os.kill(process, signal.SIGKILL)
        count(process)
    for place in PLACES:
        count(fork(partial(die_at, place, chance.randint(6, 12)), attempt))
    report["killed at the end"] = killed_by_signal(fork(lambda: None, attempt))
    print(json.dumps(report))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
