"""Prediction, disaggregation and training on a cluster of Ray: one task for each part of a folder of Parquet.

Ray repeats a task whose worker ends. All machines must see the files under the same paths.
"""

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
from unbag._utils.problems import fail
from unbag.data.columns import Table
from unbag.persistence.run_folder import Run
from unbag.tables.files import ParquetFiles, TableFile, open_table
from unbag.tables.options import NetworkOptions
from unbag.tables.predict import FittedRun, Result, Rows, Seen, disaggregate_table, predict_part, read_rows

MAX_RETRIES = 10  # number of times a part is repeated whose worker has ended


def predict_on_cluster(run: Run, instances: Path, out: Path, *, device: str = "cpu", **options: Any) -> Result:
    """Write the predictions of :func:`unbag.tables.predict_table`, as a new folder with one file for each part."""
    parts = _parts(instances)
    if out.suffix or (out.exists() and (not out.is_dir() or any(out.iterdir()))):
        raise fail("several workers write a folder of Parquet parts; name one that is new or empty", str(out))
    raise_if_input(out, [instances, *run.inputs])
    out.mkdir(parents=True, exist_ok=True)
    run = Run(run.folder.absolute())
    outs = [(out / f"{part.name.removesuffix('.parquet')}.parquet").absolute() for part in parts]
    tasks = [(run, part, path, options, device) for part, path in zip(parts, outs, strict=True)]
    seen = reduce(add, map_tasks(_predict_part, tasks, device))
    return seen.rows, seen.as_problems(FittedRun.load(run).clf, instances)


def disaggregate_on_cluster(
    run: Run, instances: Path, groups: Path, out: Path, *, device: str = "cpu", **options: Any
) -> Result:
    """Write the file of :func:`unbag.tables.disaggregate_table`; workers predict the parts.

    Groups may extend over several parts: ids and probabilities of all rows are joined with observations here.
    """

    def read(fitted: FittedRun, file: TableFile, keys: Sequence[str]) -> Rows:
        tasks = [(fitted.run, part, keys, device) for part in _parts(instances)]
        parts = map_tasks(_read_part, tasks, device)
        table = Table(instances, pa.concat_tables([part.keys.data for part in parts]))
        seen = reduce(add, (part.seen for part in parts))
        return Rows(table, np.concatenate([part.log_probs for part in parts]), None, seen)

    run = Run(run.folder.absolute())
    return disaggregate_table(run, instances, groups, out, read_rows=read, **options)


def fit_on_cluster(arguments: Sequence[str], network: NetworkOptions, device: str = "cpu") -> str:
    """Run ``unbag fit`` in several processes of a cluster, which train together, and return the output of the first.

    ``arguments`` are those of the command line, without the engine and the number of processes. Each process has a
    processor, or with the device ``"cuda"`` a GPU, for itself.
    """
    n = (1 if network.devices == "auto" else network.devices) * network.nodes
    ray = start(n)
    worker = ray.remote(max_restarts=0, **_resources(device))(_Process)
    workers = [worker.remote() for _ in range(n)]
    try:
        address, port = ray.get(workers[0].find_address.remote())
        shared = {"TORCHELASTIC_RUN_ID": uuid.uuid4().hex, "MASTER_ADDR": address, "MASTER_PORT": str(port)}
        shared |= {"WORLD_SIZE": str(n), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
        tasks = [
            process.run.remote(list(arguments), {**shared, "RANK": str(rank), "GROUP_RANK": str(rank)}, os.getcwd())
            for rank, process in enumerate(workers)
        ]
        return str(_get(ray, tasks)[0])
    finally:
        for process in workers:
            ray.kill(process)


class _Process:
    """One of several processes that train together."""

    def find_address(self) -> tuple[str, int]:
        """Return the address and port of this process for the other ones."""
        import ray  # noqa: PLC0415 (an extra)

        with socket.socket() as free:
            free.bind(("", 0))
            return ray.util.get_node_ip_address(), free.getsockname()[1]

    def run(self, arguments: list[str], variables: dict[str, str], folder: str) -> str:
        """Call the command line, and return its output."""
        command = [sys.executable, "-m", "unbag.cli", "fit", *arguments]
        done = subprocess.run(command, env={**os.environ, **variables}, cwd=folder, capture_output=True, check=False)
        if done.returncode:
            lines = done.stderr.decode(errors="replace").strip().splitlines()
            raise RuntimeError(f"process {variables['RANK']} failed: {lines[-1] if lines else done.returncode}")
        return done.stdout.decode(errors="replace")


def _predict_part(run: Run, part: Path, out: Path, options: dict[str, Any], device: str) -> Seen:
    return predict_part(FittedRun.load(run, device), part, out, raw_text=True, **options)


def _read_part(run: Run, part: Path, keys: Sequence[str], device: str) -> Rows:
    with open_table(part) as file:
        return read_rows(FittedRun.load(run, device), file, keys)


def _parts(instances: Path) -> list[Path]:
    with open_table(instances) as file:
        if not isinstance(file, ParquetFiles):
            raise fail("workers read the parts of a folder of Parquet; write the table as such", str(instances))
        return [part.absolute() for part in file.parts_with_rows()]


def map_tasks(function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], device: str = "cpu") -> list[Any]:
    """Call a function once for each tuple of arguments, on the workers, and return the results in order."""
    ray = start()
    task = ray.remote(max_retries=MAX_RETRIES, **_resources(device))(function)
    return _get(ray, [task.remote(*values) for values in arguments])


def _resources(device: str) -> dict[str, int]:
    """Return the resources of a process; Ray hides GPUs from a process that has not asked for one."""
    return {"num_cpus": 1, "num_gpus": int(device.startswith("cuda"))}


def _get(ray: Any, tasks: list[Any]) -> list[Any]:
    """Return the results of tasks, or raise the first error of one."""
    try:
        return list(ray.get(tasks))
    except ray.exceptions.RayTaskError as error:
        raise (error.cause if isinstance(error.cause, Exception) else error) from None
    except ray.exceptions.RayError as error:
        message = str(error).strip().splitlines()[0]
        raise ConnectionError(f"the cluster lost a worker too often, or all of them: {message}") from error


def start(n_workers: int | None = None) -> Any:
    """Return Ray, connected to the cluster of RAY_ADDRESS, or to a new one on this machine."""
    try:
        import ray  # noqa: PLC0415 (an extra)
    except ImportError as error:
        raise ImportError("--engine ray needs Ray, which is not installed: pip install unbag[ray]") from error
    if not ray.is_initialized():
        n_workers = None if "RAY_ADDRESS" in os.environ else n_workers
        ray.init(num_cpus=n_workers, log_to_driver=False, include_dashboard=False, logging_level=logging.ERROR)
    return ray
