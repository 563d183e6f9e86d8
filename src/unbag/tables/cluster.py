"""Prediction, disaggregation and training on a cluster of Ray: one task for each part of a folder of Parquet.

A task that ends with its worker is done again by Ray. Files must be where all machines see them under the same path.
"""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable, Sequence
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from unbag._utils.files import raise_if_input
from unbag._utils.problems import Problem, fail
from unbag.data.columns import Table
from unbag.data.features import Tally
from unbag.persistence.run_folder import Run
from unbag.tables.disaggregate import disaggregate_with
from unbag.tables.files import ParquetFiles, TableFile, open_table, parts_of
from unbag.tables.predict import Predicted, Rows, load_run, predict_part, read_rows, shift_notes

RETRIES = 10
"""How often a part is done again whose worker has ended."""


def predict_on_cluster(
    run: Run, instances: Path, out: Path, *, id: str | None = None, keep: Sequence[str] = (), device: str = "cpu"
) -> tuple[int, list[Problem]]:
    """Write what :func:`unbag.tables.predict_table` does as a folder with a part for each part of the instances.

    Parameters are those of :func:`unbag.tables.predict_table`; the folder must be new or empty.
    """
    parts = _parts(instances)
    if out.suffix or (out.exists() and (not out.is_dir() or any(out.iterdir()))):
        raise fail("several workers write a folder of Parquet parts; name one that is new or empty", str(out))
    raise_if_input(out, [instances, *run.inputs])
    out.mkdir(parents=True, exist_ok=True)
    own = Run(run.folder.absolute())
    _, clf = load_run(own, "cpu")
    given = {"id": id, "keep": keep, "raw_text": True}
    names = [part.name if part.suffix == ".parquet" else f"{part.name}.parquet" for part in parts]
    tasks = [(own, part, (out / name).absolute(), given, device) for part, name in zip(parts, names, strict=True)]
    predicted = map_tasks(_predict_part, tasks, device)
    tally = _add_up(predicted)
    shifts = shift_notes(clf, reduce(add, (one.seen for one in predicted)), instances)
    return sum(one.rows for one in predicted), [*tally.as_problems(str(instances)), *shifts]


def disaggregate_on_cluster(
    run: Run,
    instances: Path,
    groups: Path,
    out: Path,
    *,
    aggregate: str | None = None,
    drop_unmatched: bool = False,
    raw_text: bool = False,
    device: str = "cpu",
) -> tuple[int, list[Problem]]:
    """Write the same file as :func:`unbag.tables.disaggregate_table`; parts are predicted by the workers.

    Groups may lie across parts: ids and probabilities of all rows come back, and are joined with observations here.
    """
    own = Run(run.folder.absolute())
    content, clf = load_run(own, "cpu")

    def read(file: TableFile, keys: list[str]) -> Rows:
        parts = map_tasks(_read_part, [(own, part, keys, device) for part in _parts(instances)], device)
        kept = pa.concat_tables([one.keys.data for one in parts])
        return Rows(Table(instances, kept), np.concatenate([one.log_probs for one in parts]), _add_up(parts))

    options: dict[str, Any] = {"aggregate": aggregate, "drop_unmatched": drop_unmatched, "raw_text": raw_text}
    return disaggregate_with(read, (own, content, clf), instances, groups, out, **options)


def fit_on_cluster(arguments: Sequence[str], n: int, device: str = "cpu") -> str:
    """Run ``unbag fit`` in so many processes of a cluster, which train together, and return what the first has printed.

    Parameters
    ----------
    arguments
        Those of the command line, without the engine and the number of processes.
    n
        How many processes, each on a processor of its own.
    device
        Where they compute; ``"cuda"``: each on a GPU of its own.
    """
    ray = start(n)
    worker = ray.remote(max_restarts=0, **_needs(device))(_Process)
    workers = [worker.remote() for _ in range(n)]
    try:
        address, port = ray.get(workers[0].meet.remote())
        shared = {"TORCHELASTIC_RUN_ID": uuid.uuid4().hex, "MASTER_ADDR": address, "MASTER_PORT": str(port)}
        shared |= {"WORLD_SIZE": str(n), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
        own = [{"RANK": str(rank), "GROUP_RANK": str(rank)} for rank in range(n)]
        waiting = [
            one.run.remote(list(arguments), shared | rank, os.getcwd()) for one, rank in zip(workers, own, strict=True)
        ]
        first, *_ = _results(ray, waiting)
    finally:
        for one in workers:
            ray.kill(one)
    return str(first)


class _Process:
    """One process of a run that several train together."""

    def meet(self) -> tuple[str, int]:
        """Return where the others find the first one."""
        import ray  # noqa: PLC0415 (an extra)

        with socket.socket() as free:
            free.bind(("", 0))
            return ray.util.get_node_ip_address(), free.getsockname()[1]

    def run(self, arguments: list[str], variables: dict[str, str], folder: str) -> str:
        """Call the command line, and return what it prints."""
        command = [sys.executable, "-m", "unbag.cli", "fit", *arguments]
        done = subprocess.run(command, env={**os.environ, **variables}, cwd=folder, capture_output=True, check=False)
        if done.returncode:
            lines = done.stderr.decode(errors="replace").strip().splitlines()
            raise RuntimeError(f"process {variables['RANK']} has failed: {lines[-1] if lines else done.returncode}")
        return done.stdout.decode(errors="replace")


def _predict_part(run: Run, part: Path, out: Path, given: dict[str, Any], device: str) -> Predicted:
    return predict_part(*load_run(run, device), part, out, **given)


def _read_part(run: Run, part: Path, keys: list[str], device: str) -> Rows:
    with open_table(part) as file:
        return read_rows(load_run(run, device)[1], file, keys)


def _parts(instances: Path) -> list[Path]:
    """Return the parts of a folder that have rows, or all if none has."""
    with open_table(instances) as file:
        if not isinstance(file, ParquetFiles):
            raise fail("workers read the parts of a folder of Parquet; write the table as such", str(instances))
        parts = file.parts_with_rows() or parts_of(instances)
    return [part.absolute() for part in parts]


def map_tasks(function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], device: str = "cpu") -> list[Any]:
    """Call a function once for each of some arguments, on the workers, and return what it returns, in their order."""
    ray = start()
    task = ray.remote(max_retries=RETRIES, **_needs(device))(function)
    return _results(ray, [task.remote(*own) for own in arguments])


def _needs(device: str) -> dict[str, int]:
    """Return what Ray must set aside for a process; it shows no GPU to one that has not asked for it."""
    return {"num_cpus": 1, "num_gpus": int(device.startswith("cuda"))}


def _results(ray: Any, waiting: list[Any]) -> list[Any]:
    """Return what tasks return; the error of one ends all."""
    try:
        return list(ray.get(waiting))
    except ray.exceptions.RayTaskError as error:
        raise (error.cause if isinstance(error.cause, Exception) else error) from None
    except ray.exceptions.RayError as error:
        message = str(error).strip().splitlines()[0]
        raise ConnectionError(f"the cluster has lost a worker too often, or altogether: {message}") from error


def start(n_workers: int | None = None) -> Any:
    """Return Ray, with a cluster: that of RAY_ADDRESS, or one on this machine, of so many workers or all processors."""
    try:
        import ray  # noqa: PLC0415 (an extra)
    except ImportError as error:
        raise ImportError("--engine ray needs Ray, which is not there: pip install unbag[ray]") from error
    if not ray.is_initialized():
        own = None if "RAY_ADDRESS" in os.environ else n_workers
        ray.init(num_cpus=own, log_to_driver=False, include_dashboard=False, logging_level=logging.ERROR)
    return ray


def _add_up(parts: Sequence[Predicted] | Sequence[Rows]) -> Tally:
    total = Tally()
    for one in parts:
        for counts, own in ((total.unknown, one.tally.unknown), (total.filled, one.tally.filled)):
            for name, count in own.items():
                total.count(counts, name, count)
    return total
