"""Workers: where jobs run, in threads and, in longer fits, in processes that read the rows from shared memory maps."""

from __future__ import annotations

import math
import os
import pickle
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from itertools import count
from pathlib import Path
from threading import Event, Lock
from typing import Any

import numpy as np
import torch
from joblib.externals.loky.backend.reduction import dump, dumps
from joblib.externals.loky.process_executor import ProcessPoolExecutor
from threadpoolctl import threadpool_limits
from torch import Tensor

MIN_MAPPED_BYTES = 2**16
"""Size of a tensor from which processes map a file into memory in place of reading a copy."""
MAX_THREADS_BEFORE_PROCESSES = 2
"""Threads while processes start: steps of small matrices hold the interpreter's lock, and do not run side by side."""
SECONDS_IDLE = 60
"""Time after which processes without a job end."""

Function = Callable[[Any, Callable[[], float]], Any]
"""A function of data, such as a fold, and of a function that returns the seconds left."""


class Workers:
    """Runs ``n_jobs`` functions at a time in threads, and in processes as well once a fit takes long enough.

    ``data`` is what the functions receive, by key. It is written to files once, which all processes map into memory.
    """

    def __init__(
        self,
        n_jobs: int,
        data: dict[Any, Any],
        seconds_before_processes: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.n_jobs, self.data, self.clock = n_jobs, data, clock
        several = n_jobs > 1 and seconds_before_processes is not None
        self.processes_begin = clock() + seconds_before_processes if several else math.inf  # type: ignore[operator]
        self._threads, self._processes = ThreadPoolExecutor(n_jobs), _Processes(n_jobs - 1, data)
        self._running: dict[Future, tuple[Any, Any]] = {}
        self._in_processes: set[Future] = set()

    def __enter__(self) -> Workers:
        self._n_threads = torch.get_num_threads()
        self._limits = threadpool_limits(1)
        return self

    def __exit__(self, *error: object) -> None:
        for key in [key for key, _ in self._running.values()]:
            self.stop(key)
        self._threads.shutdown(cancel_futures=True)
        self._processes.close()
        self._limits.restore_original_limits()
        torch.set_num_threads(self._n_threads)  # also the number with which new threads begin

    def has_room(self) -> bool:
        """Return whether another function may begin, and start processes when it is time."""
        if self.processes_begin == math.inf or self._processes.ready:
            return len(self._running) < self.n_jobs
        if self.clock() >= self.processes_begin:
            self._processes.start()
        return len(self._running) < MAX_THREADS_BEFORE_PROCESSES

    def submit(
        self, key: Any, function: Function, data: Any, deadline: float = math.inf, *, in_thread: bool = False
    ) -> None:
        """Begin to compute a function of the data with a key."""
        if not in_thread and self._processes.ready and len(self._in_processes) < self.n_jobs - 1:
            try:
                future, stop = self._processes.submit(function, data, deadline)
            except (pickle.PicklingError, TypeError, AttributeError):  # an object of the caller that only threads share
                self.processes_begin = math.inf
            else:
                self._in_processes.add(future)
                self._running[future] = key, stop
                return
        stopped = Event()
        left = partial(self._seconds_left, stopped, deadline)
        self._running[self._threads.submit(_on_one_thread, function, self.data[data], left)] = key, stopped.set

    def _seconds_left(self, stopped: Event, deadline: float) -> float:
        return 0.0 if stopped.is_set() else deadline - self.clock()

    def stop(self, key: Any) -> None:
        """Let a function end with its current step."""
        for running, stop in self._running.values():
            if running == key:
                stop()

    def finished(self) -> list[tuple[Any, Callable[[], Any]]]:
        """Wait for some time; return the keys of the functions that ended, and functions that return their results."""
        done, _ = wait(self._running, timeout=0.2, return_when=FIRST_COMPLETED)  # handlers of signals run between calls
        self._in_processes -= done
        return [(self._running.pop(future)[0], future.result) for future in done]

    @property
    def busy(self) -> bool:
        """Return whether a function runs."""
        return bool(self._running)


class _Processes:
    """Processes that start in the background, and the files through which they share data."""

    def __init__(self, number: int, data: dict[Any, Any]) -> None:
        self.number, self.data, self.folder, self.started = number, data, "", list[Future]()
        self.files: dict[Any, str] = {}
        self.numbers = count()

    def start(self) -> None:
        """Start all processes, unless they have been."""
        if not self.started:
            self.folder = tempfile.mkdtemp(prefix="unbag-")
            # Any function of this module lets a process load what jobs need.
            self.started = [_submit(self.number, _ignore_interrupts) for _ in range(self.number)]

    @property
    def ready(self) -> bool:
        """Return whether the processes are ready for jobs."""
        return bool(self.started) and all(future.done() for future in self.started)

    def submit(self, function: Function, data: Any, deadline: float) -> tuple[Future, Callable[[], None]]:
        """Begin to compute a function, and return what stops it."""
        if data not in self.files:
            self.files[data] = os.path.join(self.folder, f"data-{len(self.files)}")
            _write(self.data[data], self.files[data])
        stop = Path(self.folder, f"stop-{next(self.numbers)}")
        content = bytes(dumps(function))  # functions and classes of the caller by value
        return _submit(self.number, _run, content, self.files[data], str(stop), deadline), stop.touch

    def close(self) -> None:
        """Delete the files; the processes remain for a while, for the next fit."""
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)


_pools: dict[int, ProcessPoolExecutor] = {}
_lock = Lock()


def _submit(number: int, *call: Any) -> Future:
    """Submit a call to a number of processes, which all fits share; new ones replace those of which one was killed."""
    with _lock:
        if number not in _pools or _pools[number]._flags.broken:
            _pools[number] = ProcessPoolExecutor(number, timeout=SECONDS_IDLE, initializer=_ignore_interrupts)
        return _pools[number].submit(*call)


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process decides what an interrupt stops


def _run(function: bytes, data: str, stop: str, deadline: float) -> Any:
    """Compute a function in a process."""

    def seconds_left() -> float:
        return 0.0 if os.path.exists(stop) else deadline - time.monotonic()

    with threadpool_limits(1):
        return _on_one_thread(pickle.loads(function), _read(data), seconds_left)


def _on_one_thread(function: Function, data: Any, seconds_left: Callable[[], float]) -> Any:
    torch.set_num_threads(1)
    return function(data, seconds_left)


def _write(value: Any, file: str) -> None:
    """Write a value to a file, and each of its large tensors to another one."""
    names: dict[int, str] = {}

    def reduce(tensor: Tensor) -> Any:
        if tensor.requires_grad or tensor.dtype == torch.bfloat16:  # NumPy has neither
            return tensor.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        if tensor.nbytes < MIN_MAPPED_BYTES:
            return torch.from_numpy, (tensor.numpy().copy(),)  # without the storage that it is a part of
        if id(tensor) not in names:
            names[id(tensor)] = f"{file}-{len(names)}.npy"
            np.save(names[id(tensor)], tensor.numpy())
        return _map, (names[id(tensor)],)

    with open(file, "wb") as stream:
        dump(value, stream, reducers={Tensor: reduce})


def _map(file: str) -> Tensor:
    """Return a tensor of a file that is mapped into memory, and copied only where it is changed."""
    return torch.from_numpy(np.load(file, mmap_mode="c"))


_data: dict[str, Any] = {}
"""What a process has read for the current fit."""


def _read(file: str) -> Any:
    """Read a value, once in each process."""
    if file not in _data:
        if any(os.path.dirname(known) != os.path.dirname(file) for known in _data):
            _data.clear()
        with open(file, "rb") as stream:
            _data[file] = pickle.load(stream)
    return _data[file]
