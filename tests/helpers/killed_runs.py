"""Runs that are killed for real and resumed; `test_killed_runs.py` runs this file as a script.

A process imports everything once and forks a child for every attempt, which kills itself: at a place of a write, or
after a number of calls of functions. Then the run is resumed to its end, and compared with one that was never killed.
"""

import json
import os
import random
import signal
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from table_files import blobs, call
from training_problems import bags, network, observe, table, weights_of, without_seconds

import unbag
import unbag.persistence.saved_models
import unbag.report
import unbag.tables  # what commands import late, so that no child has to
from unbag.training import Checkpoint, Settings, held_out_likelihood, train

EPOCHS, EPOCHS_OF_TRAINING = 10, 30
N_RANDOM_KILLS, MAX_CALLS = 8, 30_000
PLACES = ["half written", "written", "on disk", "replaced"]

fsync, replace = os.fsync, os.replace


def training(folder: Path) -> None:
    """Train two replicas, and leave weights and history behind."""
    X, labels = table(60, 2)
    learned, held_out = bags(labels).split(0.25, torch.Generator().manual_seed(0))
    labelled = observe("LabelProportions", labels, unbag.Groups.from_tuples([[0], [1]], n_rows=60), 2, weight=0.5)
    settings = Settings(epochs=EPOCHS_OF_TRAINING, warm_up=2, remember_from=2, batch_size=3, learning_rate=0.01)
    trained = train(
        partial(network, 2, torch.nn.Dropout), X, [learned, labelled], settings, seeds=[0, 1],
        score=held_out_likelihood(X, [held_out]), checkpoint=Checkpoint(folder, every=1),
    )  # fmt: skip
    for place, model in enumerate(trained.models):
        save_file(weights_of(model), folder / f"weights {place}.safetensors")
    rest = {"history": without_seconds(trained), "best_epoch": trained.best_epoch, "best_score": trained.best_score}
    (folder / "result.json").write_text(json.dumps(rest))


def checkpoint(folder: Path) -> None:
    """Fit a classifier with a checkpoint, and leave weights and history behind."""
    X = np.random.default_rng(0).normal(size=(60, 3))
    groups = unbag.Groups.from_sizes([2] * 30)
    counts = unbag.LabelProportions().observe(X[:, 0] > 0, groups, 2)
    settings = unbag.NetworkTraining(EPOCHS, loss="mae", checkpoint=folder)
    clf = unbag.AggregateClassifier(model="mlp", training=settings, random_state=0).fit(X, counts, groups)
    save_file(weights_of(clf.mixture_.candidates[0].models[0].module), folder / "weights.safetensors")
    (folder / "result.json").write_text(json.dumps(_timeless(clf.history_)))


def command(folder: Path) -> None:
    """Run ``unbag fit``."""
    settings = ["--epochs", EPOCHS, "--model", "linear", "--learning-rate", 0.1, "--exclude", "label"]
    files = [folder.parent / "people.csv", folder.parent / "counts.csv"]
    done = call("fit", *files, "--out", folder, *settings)
    if done.exit_code and "has a finished run" not in done.stderr:
        raise RuntimeError(done.output)


def result_of(folder: Path) -> dict[str, Any]:
    """Return what a run leaves, but for dates and durations."""
    found: dict[str, Any] = {path.name: path.read_bytes() for path in folder.rglob("*weights*.safetensors")}
    if (folder / "result.json").exists():
        return found | {"result": (folder / "result.json").read_text()}
    run = json.loads((folder / "run.json").read_text())
    model = json.loads((folder / "model" / "model.json").read_text())["content"]
    for entries in (model["history"], model["candidates"], model["mixture"]["candidates"]):
        entries[:] = _timeless(entries)
    left = sorted(path.name for path in folder.rglob("*") if path.is_file() and "checkpoint" not in path.parts)
    return found | {"model": model, "status": run["status"], "plan": run["plan"], "left": left}


def _timeless(history: list[dict]) -> list[dict]:
    return [{name: value for name, value in one.items() if name != "seconds"} for one in history]


def kill() -> None:
    """Kill this process."""
    os.kill(os.getpid(), signal.SIGKILL)


def die_at(place: str, write: int) -> None:
    """Kill this process at a place of a later write."""
    begun = 0

    def dying_fsync(descriptor: int) -> None:
        nonlocal begun
        begun += 1
        if begun == write and place == "half written":
            os.ftruncate(descriptor, os.fstat(descriptor).st_size // 2)
            kill()
        if begun == write and place == "written":
            kill()
        fsync(descriptor)
        if begun == write and place == "on disk":
            kill()

    def dying_replace(old: str, new: str) -> None:
        replace(old, new)
        if begun == write and place == "replaced":
            kill()

    Checkpoint.due = lambda self: True  # a save after every step
    os.fsync, os.replace = dying_fsync, dying_replace


def die_after(n_calls: int) -> None:
    """Kill this process after a number of calls of functions."""
    left = n_calls

    def count(*_: object) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            kill()

    sys.setprofile(count)


def attempt(run: Callable[[Path], None], folder: Path, prepare: Callable[[], None] | None = None) -> bool:
    """Run in a process of its own, from wherever the run is, and return whether that was killed."""
    if process := os.fork():
        _, status = os.waitpid(process, 0)
        if not os.WIFSIGNALED(status) and os.WEXITSTATUS(status) != 0:
            raise SystemExit("an attempt failed; see above")
        return os.WIFSIGNALED(status)
    code = 1
    try:
        if prepare is not None:
            prepare()
        run(folder)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)  # without the exit handlers of the parent


def main(folder: Path) -> None:
    """Run everything undisturbed and with kills, and report on these."""
    blobs(folder, n_groups=24)
    checkpoint(folder / "first")  # what torch imports at the first step is imported here
    chance = random.Random(0)
    report: dict[str, Any] = {"different": [], "kills": {}, "drafts": 0, "epochs": []}
    for run in (training, checkpoint, command):
        name = run.__name__
        undisturbed, disturbed = folder / name, folder / f"{name}, disturbed"
        attempt(run, undisturbed)
        kills = [partial(die_at, place, 1) for place in PLACES]
        if run is training:
            kills += [partial(die_after, chance.randrange(MAX_CALLS)) for _ in range(N_RANDOM_KILLS)]
            kills += [partial(die_at, place, chance.randint(6, 12)) for place in PLACES]
        report["kills"][name] = 0
        for prepare in kills:
            report["kills"][name] += attempt(run, disturbed, prepare)
            report["drafts"] += any(disturbed.glob(".*.part"))
            if run is training and (disturbed / "checkpoint.safetensors").exists():
                report["epochs"].append(Checkpoint(disturbed).load()["epoch"])
        assert not attempt(run, disturbed)
        if result_of(undisturbed) != result_of(disturbed) or any(disturbed.glob(".*.part")):
            report["different"].append(name)
    print(json.dumps(report))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
