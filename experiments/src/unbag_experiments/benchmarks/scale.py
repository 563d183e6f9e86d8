"""Rows per second of reading, training, predicting and disaggregating, against what the machine does at most.

One process is compared with a plain script on the same rows, and several with one. Those that train are started by
Lightning Fabric, those that read and predict by Ray.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from torch import nn

from unbag.data.columns import Table
from unbag.data.features import Preparation
from unbag.tables import cluster, disaggregate_table, predict_table
from unbag.tables.files import ROWS_AT_ONCE, open_table
from unbag.tables.predict import load_run
from unbag.training import MappedRows, Observations, Processes, Rows, Scaling
from unbag.training.architectures import MLP
from unbag.training.launching import Launcher
from unbag_experiments.benchmarks.rows import Result, row
from unbag_experiments.benchmarks.scale_files import Files, Shape
from unbag_experiments.benchmarks.training import epoch_seconds, supervised_epoch

Measure = Callable[[], Any]
"""Returns the seconds that count, or something else, if all of its time does."""
Comparison = tuple[Measure, str, Measure]
"""What is measured, what it is compared with, in words, and as a function."""

OTHERS = [
    Shape(100_000, columns=80),
    Shape(100_000, classes=5),
    Shape(100_000, group_size=20),
    Shape(100_000, group_size=500),
    *(Shape(n, rows_of_step=10_000) for n in (100_000, 1_000_000, 10_000_000)),
]
"""Tables that tell what the cost depends on, beside those of 20 columns, two classes, and groups of 100."""
MOST_ROWS = 1_000_000
"""Of an epoch of training that is measured."""
MESSAGE = 1 << 22
"""Numbers in a message that takes much longer than a short one."""


def choices() -> dict[str, tuple[str, ...]]:
    """Return the names that tasks can be chosen by, for the option."""
    return {"task": tuple(TASKS)}


def run(
    *,
    threads: int = 1,
    quick: bool = False,
    report: Callable[[str], None] = lambda case: None,
    rows: Sequence[int] = (100_000,),
    processes: Sequence[int] = (1,),
    tasks: Sequence[str] = (),
    folder: Path | None = None,
) -> list[Result]:
    """Measure tables of so many rows, and those of other shapes that have as many.

    ``tasks`` are those to measure, all if there are none; ``folder`` keeps the tables for a later call.
    """
    if unknown := [task for task in tasks if task not in TASKS]:
        raise ValueError(f"a task is one of {', '.join(TASKS)}; got {unknown[0]!r}")
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    with tempfile.TemporaryDirectory() if folder is None else nullcontext(folder) as name:
        try:
            results = []
            shapes = [*map(Shape, rows), *(shape for shape in OTHERS if shape.rows in rows)]
            for shape, n, task in product(shapes, processes, tasks or TASKS):
                if task == ("send" if n == 1 else "train from memory"):
                    continue
                if shape in OTHERS and (task != "train from disk" if shape.rows_of_step > 1000 else n > 1):
                    continue
                case = f"{task}, {shape}, {n} {'process' if n == 1 else 'processes'}"
                report(case)
                measured = _measure(task, Files(shape, Path(name)), n, threads, 0.0 if quick else 3.0)
                results.append({"case": case, **measured})
            return results
        finally:
            torch.set_num_threads(before)


def _measure(task: str, files: Files, n: int, threads: int, seconds: float) -> Result:
    ours, name, reference = TASKS[task](files, n, threads)
    own, other = _in_turns(ours, reference, seconds)
    rows = min(MOST_ROWS, files.shape.rows) if task.startswith("train") else files.shape.rows
    about = {"task": task, **asdict(files.shape), "processes": n, "threads": threads}
    about |= {"measured_rows": rows, "bytes": files.n_bytes}
    if (task, n) == ("read", 1):
        about["cold_ms"] = 1e3 * _seconds(partial(_read_bytes, files.parts, cold=True))
    target, met = ("<= 1.3x its time", own <= 1.3 * other) if (task, n) == ("train from disk", 1) else (None, None)
    note = "" if task == "send" else f"{rows / own:,.0f} rows a second"
    return {**about, **row(1e3 * own, 1e3 * other, name, own / other, target=target, met=met, note=note)}


def _compare_reading(files: Files, n: int, threads: int) -> Comparison:
    preparation = load_run(files.run, "cpu")[1].preparation_
    alone = partial(_read, preparation, files.parts)
    if n == 1:
        return alone, "the bytes of the files", partial(_read_bytes, files.parts)
    parts = [(preparation, part) for part in files.parts.iterdir()]
    _warm_up(files, n)
    return partial(cluster.map_tasks, _read, parts), "one process", alone


def _compare_training(files: Files, n: int, threads: int, *, from_disk: bool = True) -> Comparison:
    alone = partial(_train, files.shape, observed=files.observed, threads=threads)
    disk = partial(alone, MappedRows(files.arrays))
    if n > 1:
        return partial(Launcher(n).run, disk), "one process", disk
    X = torch.from_numpy(np.array(np.lib.format.open_memmap(files.arrays, "r")))
    if from_disk:
        return disk, "the same steps from memory", partial(alone, X)
    own = _network(files.shape), X, files.labels, files.observed.groups
    plain = partial(supervised_epoch, *own, **_how(files.shape))
    return partial(alone, X), "a plain supervised loop", plain


def _compare_prediction(files: Files, n: int, threads: int) -> Comparison:
    out = files.out.with_suffix(".parquet")
    alone = partial(predict_table, files.run, files.parts, out)
    if n == 1:
        return alone, "pyarrow and the network alone", partial(_predict_plainly, files)
    _warm_up(files, n)
    return partial(_predict_on_cluster, files), "one process", alone


def _compare_disaggregation(files: Files, n: int, threads: int) -> Comparison:
    given = files.run, files.parts, files.groups, files.out.with_suffix(".parquet")
    alone = partial(disaggregate_table, *given)
    if n == 1:
        return alone, "pyarrow and the network alone", partial(_predict_plainly, files)
    _warm_up(files, n)
    return partial(cluster.disaggregate_on_cluster, *given), "one process", alone


def _compare_messages(files: Files, n: int, threads: int) -> Comparison:
    return partial(Launcher(n).run, _send, MESSAGE), "a message of one number", partial(Launcher(n).run, _send, 1)


TASKS: dict[str, Callable[[Files, int, int], Comparison]] = {
    "read": _compare_reading,
    "train from disk": _compare_training,
    "train from memory": partial(_compare_training, from_disk=False),
    "predict": _compare_prediction,
    "disaggregate": _compare_disaggregation,
    "send": _compare_messages,
}


def _in_turns(ours: Measure, reference: Measure, seconds: float) -> tuple[float, float]:
    """Return the median seconds of both, in turns, so that a busy moment hits both, until so many seconds are over."""
    times: list[tuple[float, float]] = []
    stop = time.perf_counter() + seconds
    while not times or time.perf_counter() < stop:
        times.append((_seconds(ours), _seconds(reference)))
    return statistics.median(own for own, _ in times), statistics.median(other for _, other in times)


def _seconds(measure: Measure) -> float:
    start = time.perf_counter()
    result = measure()
    return result if isinstance(result, float) else time.perf_counter() - start


def _how(shape: Shape) -> dict[str, Any]:
    steps = min(MOST_ROWS, shape.rows) // shape.rows_of_step
    return {"batch_size": shape.rows_of_step // shape.group_size, "steps": steps}


def _network(shape: Shape) -> nn.Module:
    return nn.Sequential(
        Scaling(torch.zeros(shape.columns), torch.ones(shape.columns)), MLP(shape.columns, shape.classes)
    )


def _read(preparation: Preparation, parts: Path) -> None:
    """Turn Parquet into arrays, piece by piece."""
    with open_table(parts) as file:
        for piece in file.stream(preparation.names, {}):
            preparation.encode(Table(parts, piece))


def _read_bytes(parts: Path, cold: bool = False) -> float:
    """Read files, and return the seconds; cold: not from what the system has kept of them in memory."""
    seconds = 0.0
    for part in parts.iterdir():
        with open(part, "rb", buffering=0) as file:
            if cold and hasattr(os, "posix_fadvise"):
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            start = time.perf_counter()
            while file.read(1 << 22):
                pass
            seconds += time.perf_counter() - start
    return seconds


def _train(shape: Shape, X: Rows, *, observed: Observations, threads: int, processes: Processes | None = None) -> float:
    torch.set_num_threads(threads)  # which other processes have to be told
    return epoch_seconds(partial(_network, shape), X, observed, 1, processes=processes, **_how(shape))


def _predict_plainly(files: Files) -> None:
    net = _network(files.shape)
    for part in files.parts.iterdir():
        with pq.ParquetFile(part) as file, torch.inference_mode():
            for piece in file.iter_batches(ROWS_AT_ONCE):
                X = np.stack([column.to_numpy() for column in piece.columns[1:]], 1)
                net(torch.from_numpy(X)).softmax(1)


def _predict_on_cluster(files: Files) -> None:
    cluster.predict_on_cluster(files.run, files.parts, files.out)
    shutil.rmtree(files.out)


def _warm_up(files: Files, n: int) -> None:
    """Start a cluster of so many workers, and have each import what it needs."""
    cluster.start(n)
    cluster.map_tasks(load_run, [(files.run, "cpu")] * 2 * n)


def _send(numbers: int, *, processes: Processes) -> float:
    """Return the median seconds of adding up so many numbers over all processes."""
    message, times = torch.zeros(numbers), []
    for _ in range(20):
        start = time.perf_counter()
        processes.sum_([message])
        times.append(time.perf_counter() - start)
    return statistics.median(times)
