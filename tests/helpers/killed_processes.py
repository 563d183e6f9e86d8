"""``unbag fit --devices N``, killed at random moments: this script does it as often as asked.

    python tests/helpers/killed_processes.py FOLDER 10 [SEED]

One process imports everything once and forks ``unbag fit``, which forks its own processes. Each saves after every step,
with slow writes. One of all these processes is killed from outside at a random moment, the others must end within a
minute, and the same fit goes on with another number of processes, until it gets to its end. What it leaves is compared
with what one process leaves that was never killed. Then the next fit begins, until so many processes were killed in
training; those that have started them are killed as well.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from functools import partial
from pathlib import Path

import torch
from killed_training import fork, slow_writes
from safetensors.torch import load_file
from table_files import blobs, call

from unbag.estimators import config
from unbag.training import Checkpoint, Launcher

EPOCHS = 8


def command(files: Path, folder: Path, devices: int) -> None:
    """Run ``unbag fit`` to its end, from wherever it is."""
    config.Launcher = partial(Launcher, start_method="fork")
    settings = ["--epochs", EPOCHS, "--model", "linear", "--learning-rate", 0.1, "--batch-size", 5]
    table = [files / "people.csv", files / "counts.csv", "--exclude", "label"]
    done = call("fit", *table, "--out", folder, "--devices", devices, *settings)
    with open(folder.with_suffix(".txt"), "a") as said:
        print(done.exit_code, devices, " ".join(done.stderr.split()), file=said)


def prepare() -> None:
    """Save after every step, slowly, in a process group of its own."""
    os.setpgrp()
    Checkpoint.due = lambda self: True
    slow_writes()


def members(group: int) -> list[int]:
    """Return the processes of a group that have not ended."""
    found = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, of = file.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(of) == group and state != "Z":
            found.append(int(file.parent.name))
    return sorted(found)


def kill_one(group: int, chance: random.Random) -> tuple[bool, float] | None:
    """Kill a process of a group; return if it was one that trains, and after how many seconds all have ended.

    None if they had before.
    """
    if not (left := members(group)):
        return None
    killed = chance.choice(left)
    try:
        os.kill(killed, signal.SIGKILL)
    except ProcessLookupError:
        return None
    start = time.monotonic()
    while members(group):
        time.sleep(0.02)
    return killed != group, time.monotonic() - start


def finished(folder: Path) -> bool:
    """Whether a fit has come to its end."""
    head = folder / "run.json"
    return head.exists() and json.loads(head.read_text())["status"] == "finished"


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """Return the weights that a fit has left."""
    (file,) = (folder / "model").glob("weights-*")
    return load_file(file)


def main(folder: Path, kills: int, seed: int = 0) -> None:
    """Kill so many times, and report."""
    (files := folder / "files").mkdir(parents=True)
    blobs(files, n_groups=24)
    chance, ended, differences, fits = random.Random(seed), [], [], 0
    os.waitpid(fork(prepare, partial(command, files, folder / "alone", 1)), 0)
    start = time.monotonic()
    os.waitpid(fork(prepare, partial(command, files, folder / "together", 2)), 0)
    longest, expected = time.monotonic() - start, weights(folder / "alone")
    while sum(trained for trained, _ in ended) < kills:
        fits += 1
        disturbed = folder / f"run {fits}"
        while not finished(disturbed):
            group = fork(prepare, partial(command, files, disturbed, chance.choice([2, 3])))
            if sum(trained for trained, _ in ended) < kills:
                time.sleep(chance.uniform(0.0, longest))
                if (end := kill_one(group, chance)) is not None:
                    ended.append(end)
            os.waitpid(group, 0)
        found = weights(disturbed)
        differences.append(max(float((found[name] - expected[name]).abs().max()) for name in expected))
    sentences = sum(file.read_text().count("start the run again") for file in folder.glob("run *.txt"))
    report = {"kills of training processes": sum(trained for trained, _ in ended), "kills": len(ended), "fits": fits}
    report |= {"sentences": sentences, "slowest end": max(seconds for _, seconds in ended)}
    print(json.dumps({**report, "difference": max(differences)}))


if __name__ == "__main__":
    import lightning_fabric  # noqa: F401 (so that no child has to)

    torch.set_num_threads(1)
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
