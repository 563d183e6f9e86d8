"""What all tests share: one thread each, the same examples in every run, kernels without a GPU, and little garbage."""

from __future__ import annotations

import gc
import os
from functools import cache
from importlib.util import find_spec

import torch
import typer.testing
from hypothesis import settings

# Tests run side by side, and their tensors are small: more threads would only wait for each other.
torch.set_num_threads(1)

# A fit uses all cores by default, and starts processes for that if it takes long; tests already use all cores.
os.environ.setdefault("LOKY_MAX_CPU_COUNT", "1")

# Kernels for a GPU are run by Triton's interpreter, which has to be known before any of them is imported.
os.environ["TRITON_INTERPRET"] = "1"

# A test that fails for one in a million inputs should fail for whoever caused it, not for whoever runs it next.
settings.register_profile("same every time", deadline=None, derandomize=True, print_blob=False)
settings.load_profile("same every time")

# What is imported stays to the end: a fifth of the time of collecting tests went into looking for garbage in it.
gc.disable()

# A command is made of its functions once, not in each of a thousand calls.
typer.testing._get_command = cache(typer.main.get_command)


def pytest_collection_finish() -> None:
    """Let the garbage collector skip all that was imported."""
    gc.freeze()
    gc.enable()


# Without triton the kernels cannot be imported.
collect_ignore = [] if find_spec("triton") else ["experiments/src/unbag_experiments/kernels"]
