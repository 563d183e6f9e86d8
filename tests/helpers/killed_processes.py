"""``unbag fit --devices N``, killed at random moments; `test_launching.py` has one such kill, this script as many as asked.

    python tests/helpers/killed_processes.py FOLDER 10

One process imports everything once and forks ``unbag fit``, which forks its own processes. Each saves after every step,
with slow writes. One of all these processes is killed from outside at a random moment, the others must end within a
minute, and the same fit goes on with another number of processes, until it gets to its end. What it leaves is compared
with what one process leaves that was never killed. Then the next fit begins, until there were so many kills.
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

import unbag.report
import unbag.saving
import unbag.tables  # what commands import late, so that no child has to
from unbag import launching
from unbag.training import Checkpoint

EPOCHS = 8


def command(files: Path, folder: Path, devices: int) -> None:
    """Run ``unbag fit`` to its end, from wherever it is."""
    launching.START_METHOD = "fork"
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


def kill_one(group: int, chance: random.Random) -> float | None:
    """Kill a process of a group, and return after how many seconds all have ended; None if they had before."""
    if not (left := members(group)):
        return None
    try:
        os.kill(chance.choice(left), signal.SIGKILL)
    except ProcessLookupError:
        return None
    start = time.monotonic()
    while members(group):
        time.sleep(0.02)
    return time.monotonic() - start


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """Return the weights that a fit has left."""
    (file,) = (folder / "model").glob("weights-*")
    return load_file(file)


def main(folder: Path, kills: int) -> None:
    """Kill so many times, and report."""
    (files := folder / "files").mkdir(parents=True)
    blobs(files, n_groups=24)
    chance, ended, differences, fits = random.Random(0), [], [], 0
    os.waitpid(fork(prepare, partial(command, files, folder / "alone", 1)), 0)
    start = time.monotonic()
    os.waitpid(fork(prepare, partial(command, files, folder / "together", 2)), 0)
    longest, expected = time.monotonic() - start, weights(folder / "alone")
    while len(ended) < kills:
        fits += 1
        disturbed = folder / f"run {fits}"
        while not (disturbed / "run.json").exists() or json.loads((disturbed / "run.json").read_text())["status"] != "finished":
            group = fork(prepare, partial(command, files, disturbed, chance.choice([1, 2, 2, 3, 3])))
            if len(ended) < kills:
                time.sleep(chance.uniform(0.0, longest))
                if (seconds := kill_one(group, chance)) is not None:
                    ended.append(seconds)
            os.waitpid(group, 0)
        found = weights(disturbed)
        differences.append(max(float((found[name] - expected[name]).abs().max()) for name in expected))
    print(json.dumps({"kills": len(ended), "fits": fits, "slowest end": max(ended), "difference": max(differences)}))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), int(sys.argv[2]))
