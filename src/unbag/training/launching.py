"""Starting the processes that train together, by Lightning Fabric, and telling how they ended."""

from __future__ import annotations

import logging
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path
from pickle import PicklingError
from threading import Event, Thread
from typing import Any, Literal

import torch
from torch.multiprocessing.spawn import ProcessException, ProcessRaisedException

from unbag._utils.files import write_atomic
from unbag.training.messages import pack, pack_error, unpack, unpack_error
from unbag.training.processes import GO_ON, Processes, ProcessLost

START_METHOD: Literal["spawn", "fork"] = "spawn"
"""A process that has run threads must not fork."""

SILENCE = timedelta(seconds=45)
"""After which a process that does not answer is lost: so long may a machine be busy with other things."""

MEETING = ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK")
"""Variables that tell processes of several machines how to find each other, where no launcher has started them."""

_launches = count()

for _name in ("distributed", "rank_zero"):  # who is there is nobody's question; here, so that it holds in all processes
    logging.getLogger(f"lightning_fabric.utilities.{_name}").setLevel(logging.WARNING)


@dataclass(frozen=True)
class Launcher:
    """How many processes train one model, and who starts them.

    Processes that torchrun, or the scheduler of a cluster, has started work together in this very call. Otherwise they
    are started for it, and end with it.

    Parameters
    ----------
    devices
        Processes on each machine. ``"auto"``: as many as torchrun has started, or one.
    nodes
        Machines.
    device
        Where each of them computes: ``"cpu"``, or ``"cuda"``, where each has a GPU of its own.

    Examples
    --------
    >>> Launcher().several, Launcher(2).several
    (False, True)
    """

    devices: int | Literal["auto"] = "auto"
    nodes: int = 1
    device: str = "cpu"

    def __post_init__(self) -> None:
        for name, value in (("devices", self.devices), ("nodes", self.nodes)):
            if value != "auto" and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                also = ' or "auto"' if name == "devices" else ""
                raise ValueError(f"{name} must be a whole number of at least 1{also}, got {value!r}")
        if self.several and self.device not in ("cpu", "cuda"):
            raise ValueError(f"several processes take device='cpu' or 'cuda', a GPU each; got {self.device!r}")

    @property
    def several(self) -> bool:
        """Whether there are several processes."""
        if self.devices == "auto" and _by_torchrun():
            return int(os.environ["WORLD_SIZE"]) > 1
        return self._n_local * self.nodes > 1

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files and reports: others that do the same work leave no trace."""
        return not self.several or self._fabric().global_rank == 0

    @property
    def _n_local(self) -> int:
        return 1 if self.devices == "auto" else self.devices

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function in all processes with ``processes=`` beside its arguments, and return its result.

        The result consists of plain values and tensors, see :func:`unbag.training.messages.pack`.
        """
        fabric = self._fabric()
        if fabric.strategy.cluster_environment.creates_processes_externally:
            fabric.launch()
            with _watched(_processes(fabric)) as processes:
                return function(*args, processes=processes)
        with tempfile.TemporaryDirectory() as name, self._ports():
            folder, before = Path(name), {*multiprocessing.active_children()}
            try:
                fabric.launch(_work, folder, partial(function, *args))
            except ProcessException as error:
                raise _what_happened(folder, error, fabric.world_size) from None
            except (PicklingError, AttributeError, TypeError) as error:
                raise TypeError(
                    f"devices={self.devices} hands models, observations and hooks to other processes, but {error}; "
                    "define functions and classes at the top of a module, or start the script by torchrun"
                ) from error
            finally:  # also when somebody has lost patience
                for child in {*multiprocessing.active_children()} - before:
                    child.terminate()
            return unpack((folder / "result").read_bytes())

    def _fabric(self) -> Any:
        try:
            from lightning_fabric import Fabric  # noqa: PLC0415 (an extra)
            from lightning_fabric.strategies.ddp import DDPStrategy  # noqa: PLC0415
        except ImportError as error:
            raise ImportError(
                "several processes need Lightning Fabric, which is not there: pip install unbag[distributed]"
            ) from error
        devices, nodes = self._n_local, self.nodes
        if self.devices == "auto" and _by_torchrun():
            devices = int(os.environ["LOCAL_WORLD_SIZE"])
            nodes = int(os.environ["WORLD_SIZE"]) // devices
        given: dict[str, Any] = {"accelerator": self.device, "devices": devices, "num_nodes": nodes}
        fabric: Any = Fabric(strategy=DDPStrategy(), **given)
        if fabric.strategy.cluster_environment.creates_processes_externally:
            return fabric
        if nodes > 1 and (missing := [one for one in MEETING if one not in os.environ]):
            raise ValueError(
                f"nodes={nodes} needs the variable {missing[0]} on each machine: MASTER_ADDR and MASTER_PORT of the "
                "first, and NODE_RANK, from 0; or start the command by torchrun, or by the scheduler of the cluster"
            )
        return Fabric(strategy=DDPStrategy(start_method=START_METHOD), **given)

    @contextmanager
    def _ports(self) -> Iterator[None]:
        """Meet at a new port at each launch: at the last one, some may not have left yet."""
        given = os.environ.get("MASTER_PORT")
        if given is not None and self.nodes > 1:
            os.environ["MASTER_PORT"] = str(int(given) + next(_launches))
        try:
            yield
        finally:
            os.environ.pop("MASTER_PORT", None)
            if given is not None:
                os.environ["MASTER_PORT"] = given


def _by_torchrun() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ


def _processes(fabric: Any) -> Processes:
    return Processes(fabric.global_rank, fabric.world_size, str(fabric.device))


@contextmanager
def _watched(processes: Processes) -> Iterator[Processes]:
    """End this process where another has not answered for a while: its machine may be cut off, which torch cannot tell.

    Threads of all processes tell each other every second whether they have done their work, also while that takes long,
    and end together.
    """
    group = torch.distributed.new_group(timeout=SILENCE, backend="gloo")
    done = Event()

    def watch() -> None:
        finished = torch.zeros(1)
        while finished < processes.size:
            finished.fill_(done.wait(1.0))
            try:
                torch.distributed.all_reduce(finished, group=group)
            except RuntimeError:
                seconds = SILENCE.total_seconds()
                if not done.wait(seconds / 9):  # who waits for one that has ended is told so, and says more
                    message = (
                        f"another process of the run has ended, or has not answered for {seconds:g} seconds; {GO_ON}"
                    )
                    print(message, file=sys.stderr, flush=True)
                    os._exit(1)
                return

    watcher = Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield processes
        processes.any(True)  # nobody leaves while others still listen
        done.set()
        watcher.join()
    finally:
        done.set()


def _work(fabric: Any, folder: Path, function: Callable[..., Any]) -> None:
    """Do the work of one process, and leave its result, or what went wrong, in a folder."""
    processes = _processes(fabric)
    try:
        with _watched(processes):
            result = function(processes=processes)
    except Exception as error:
        write_atomic(folder / f"error-{processes.rank}", pack_error(error))
        raise
    if fabric.local_rank == 0:
        write_atomic(folder / "result", pack(result))
    torch.distributed.destroy_process_group()


def _what_happened(folder: Path, error: Any, n: int) -> Exception:
    """Return the error of a process, other than that it has lost another; or else how one of them ended."""
    errors = [unpack_error(file.read_bytes()) for file in sorted(folder.glob("error-*"))]
    if own := [one for one in errors if not isinstance(one, ProcessLost)]:
        return own[0]
    if not errors and isinstance(error, ProcessRaisedException):  # raised outside of its work
        return RuntimeError(f"one of {n} processes has failed: {str(error).strip().splitlines()[-1]}")
    signal = getattr(error, "signal_name", None)
    how = f" by {signal}{', as where memory runs out' if signal == 'SIGKILL' else ''}" if signal else ""
    return ProcessLost(f"one of {n} processes of the run was ended{how}; {GO_ON}")
