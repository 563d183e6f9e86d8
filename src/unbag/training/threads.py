"""How many threads a step runs on: small ones on a single thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import torch

from unbag.data.row_source import Rows, row_shape

WORTH_THREADS = 3e8
"""Floating-point operations of a step from which on several threads pay.

Measured with a perceptron of 300 units on two busy cores. At their best, two threads take twice the time of one at 3e7
operations and three quarters of it at 1e8. In the median, where one thread waits for the other to get its turn, they
take hundreds of times as long at 3e7, ten times at 1e8 and three times at 2e9.
"""


@contextmanager
def threads_for_step(X: Rows, n_rows: int, n_parameters: int) -> Iterator[None]:
    """Run on one thread where a step on so many rows of a table is small; other threads are left alone.

    Images are left as they are: the layers of their models use each parameter many times.
    """
    before = torch.get_num_threads()
    forward_and_backward = 6.0 * n_rows * n_parameters
    if X.device.type != "cpu" or len(row_shape(X)) != 1 or before == 1 or forward_and_backward >= WORTH_THREADS:
        yield
        return
    torch.set_num_threads(1)
    # The number is that of the calling thread, and also the one that new threads begin with; theirs is set back.
    elsewhere = Thread(target=torch.set_num_threads, args=(before,))
    elsewhere.start()
    elsewhere.join()
    try:
        yield
    finally:
        torch.set_num_threads(before)
