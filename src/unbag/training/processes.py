"""Processes that train together: each trains on its part of every step, and sums over all keep their models equal."""

import logging
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path
from pickle import PicklingError
from typing import Any, Literal

import torch
from torch import Tensor
from torch.multiprocessing.spawn import ProcessException, ProcessRaisedException

from unbag._utils.files import write_atomic
from unbag.training.checkpoint import pack, unpack

RESUME = "start the run again, with any number of processes: it resumes from its checkpoint if it has one"

_launches = count()

for _name in ("distributed", "rank_zero"):  # Lightning logs the rank of every process
    logging.getLogger(f"lightning_fabric.utilities.{_name}").setLevel(logging.WARNING)


class ProcessLost(ConnectionError):
    """A process of a run that several train together has ended, or cannot be reached."""


@dataclass(frozen=True)
class Processes:
    """One process among those that train together, in the default process group of ``torch.distributed``.

    ``rank`` is its number, from 0, ``size`` the number of processes, and ``device`` that of its tensors.
    """

    rank: int = 0
    size: int = 1
    device: str = "cpu"

    @property
    def first(self) -> bool:
        """Whether this process reads and writes checkpoints."""
        return self.rank == 0

    def sum_(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by their sums over all processes, in one message for each dtype."""
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors if self.size > 1):
            summed = [tensor.detach() for tensor in tensors if tensor.dtype == dtype]
            flat = torch.cat([tensor.flatten() for tensor in summed])
            with _raise_process_lost():
                torch.distributed.all_reduce(flat)
            for tensor, total in zip(summed, flat.split([tensor.numel() for tensor in summed]), strict=True):
                tensor.copy_(total.view_as(tensor))

    def any(self, *flags: bool) -> list[bool]:
        """Return for each flag whether it is set in any process."""
        counts = torch.tensor(flags, dtype=torch.float32, device=self.device)
        self.sum_([counts])
        return counts.bool().tolist()

    def copy_first_(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by those of the first process."""
        for tensor in tensors if self.size > 1 else ():
            copied = tensor.detach().contiguous()
            with _raise_process_lost():
                torch.distributed.broadcast(copied, 0)
            tensor.detach().copy_(copied)

    def broadcast(self, content: bytes) -> bytes:
        """Return the bytes of the first process."""
        length = torch.tensor([len(content)], device=self.device)
        self.copy_first_([length])
        received = torch.zeros(int(length), dtype=torch.uint8, device=self.device)
        if self.first:
            received.copy_(torch.frombuffer(bytearray(content), dtype=torch.uint8))
        self.copy_first_([received])
        return received.cpu().numpy().tobytes()


@contextmanager
def _raise_process_lost() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise ProcessLost(f"another process of the run has ended, or cannot be reached ({reason}); {RESUME}") from error


@dataclass(frozen=True)
class Launcher:
    """Start the processes that train one model together.

    Processes that torchrun or the scheduler of a cluster has started work together in the call of :meth:`run`.
    Otherwise they are started for it, and end with it.

    Parameters
    ----------
    devices
        Processes on each machine. ``"auto"``: as many as torchrun has started, or one.
    nodes
        Machines.
    device
        Device of each process: ``"cpu"``, or ``"cuda"`` for a GPU each.
    start_method
        How processes are started; one that has run threads must not fork.
    timeout
        Seconds after which a process that does not answer counts as lost.
    """

    devices: int | Literal["auto"] = "auto"
    nodes: int = 1
    device: str = "cpu"
    start_method: Literal["spawn", "fork"] = "spawn"
    timeout: float = 1800.0

    def __post_init__(self) -> None:
        for name, value, also in (("devices", self.devices, ' or "auto"'), ("nodes", self.nodes, "")):
            if value != "auto" and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise ValueError(f"{name} must be a whole number of at least 1{also}, got {value!r}")
        if self.several and self.device not in ("cpu", "cuda"):
            raise ValueError(f"several processes take device='cpu' or 'cuda', a GPU each; got {self.device!r}")

    @property
    def several(self) -> bool:
        """Whether there are several processes."""
        devices, nodes = self._world
        return devices * nodes > 1

    @property
    def first(self) -> bool:
        """Whether this process writes files and reports."""
        return not self.several or self._fabric().global_rank == 0

    @property
    def _world(self) -> tuple[int, int]:
        """Processes on each machine, and machines."""
        if self.devices != "auto":
            return self.devices, self.nodes
        if "TORCHELASTIC_RUN_ID" not in os.environ:
            return 1, self.nodes
        devices = int(os.environ["LOCAL_WORLD_SIZE"])
        return devices, int(os.environ["WORLD_SIZE"]) // devices

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function in all processes with ``processes=`` beside its arguments, and return its result.

        The result consists of plain values and tensors; see :func:`unbag.training.checkpoint.pack`.
        """
        fabric = self._fabric()
        if fabric.strategy.cluster_environment.creates_processes_externally:
            fabric.launch()
            return _call(fabric, function, *args)
        port = os.environ.get("MASTER_PORT")
        if port is not None and self.nodes > 1:  # a new one for each launch: some processes may not have left the last
            os.environ["MASTER_PORT"] = str(int(port) + next(_launches))
        with tempfile.TemporaryDirectory() as name:
            folder, before = Path(name), {*multiprocessing.active_children()}
            try:
                fabric.launch(_work, folder, partial(function, *args))
            except ProcessException as error:
                raise _explain(folder, error, fabric.world_size) from None
            except (PicklingError, AttributeError, TypeError) as error:
                raise TypeError(
                    f"devices={self.devices} hands models, observations and hooks to other processes, but {error}; "
                    "define functions and classes at the top of a module, or start the script by torchrun"
                ) from error
            finally:  # also on KeyboardInterrupt
                for child in {*multiprocessing.active_children()} - before:
                    child.terminate()
                os.environ.pop("MASTER_PORT", None)  # of this launch
                os.environ.update({} if port is None else {"MASTER_PORT": port})
            return unpack((folder / "result").read_bytes())

    def _fabric(self) -> Any:
        try:
            from lightning_fabric import Fabric  # noqa: PLC0415 (an extra)
            from lightning_fabric.strategies.ddp import DDPStrategy  # noqa: PLC0415
        except ImportError as error:
            raise ImportError(
                "several processes need Lightning Fabric, which is not installed: pip install unbag[distributed]"
            ) from error
        devices, nodes = self._world

        def make(**how: Any) -> Any:
            strategy = DDPStrategy(timeout=timedelta(seconds=self.timeout), **how)
            return Fabric(strategy=strategy, accelerator=self.device, devices=devices, num_nodes=nodes)

        if (fabric := make()).strategy.cluster_environment.creates_processes_externally:
            return fabric
        missing = [name for name in ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK") if name not in os.environ]
        if nodes > 1 and missing:
            raise ValueError(
                f"nodes={nodes} needs the variable {missing[0]} on each machine: MASTER_ADDR and MASTER_PORT of the "
                "first, and NODE_RANK, from 0; or start the command by torchrun, or by the scheduler of the cluster"
            )
        return make(start_method=self.start_method)


def _call(fabric: Any, function: Callable[..., Any], *args: Any) -> Any:
    """Call a function in this process, and wait until all processes have finished."""
    processes = Processes(fabric.global_rank, fabric.world_size, str(fabric.device))
    result = function(*args, processes=processes)
    processes.any(True)
    return result


def _work(fabric: Any, folder: Path, function: Callable[..., Any]) -> None:
    """Do the work of one process, and write its result or its error to a folder."""
    # Fabric would return the result through a pipe, which nothing reads before the process ends.
    try:
        result = _call(fabric, function)
    except Exception as error:
        known = next(k for k in type(error).__mro__ if k.__module__.partition(".")[0] in ("builtins", "unbag"))
        text = str(error) if known is type(error) else f"{type(error).__qualname__}: {error}"
        write_atomic(folder / f"error-{fabric.global_rank}", pack([known.__module__, known.__qualname__, text]))
        raise
    if fabric.local_rank == 0:
        write_atomic(folder / "result", pack(result))
    torch.distributed.destroy_process_group()


def _explain(folder: Path, error: Any, n: int) -> Exception:
    """Return the error of a process, unless it only lost another one, or say how one of them ended."""
    errors = [_read_error(*unpack(file.read_bytes())) for file in sorted(folder.glob("error-*"))]
    if causes := [cause for cause in errors if not isinstance(cause, ProcessLost)]:
        return causes[0]
    if not errors and isinstance(error, ProcessRaisedException):  # outside of its work
        return RuntimeError(f"one of {n} processes has failed: {str(error).strip().splitlines()[-1]}")
    signal = getattr(error, "signal_name", None)
    how = f" by {signal}{', as where memory runs out' if signal == 'SIGKILL' else ''}" if signal else ""
    return ProcessLost(f"one of {n} processes of the run was ended{how}; {RESUME}")


def _read_error(module: str, name: str, text: str) -> Exception:
    """Return an error of another process; no module is imported for it."""
    try:
        return getattr(sys.modules.get(module), name, RuntimeError)(text)
    except TypeError:  # a class with other arguments
        return RuntimeError(f"{name}: {text}")
