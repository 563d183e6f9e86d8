"""Where results come from: the machine, the versions, the state of the code."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

import unbag
from unbag.datasets import Dataset
from unbag.experiments.ordered import OrderedTable


def describe(device: torch.device) -> dict[str, Any]:
    """Return what every result is stored with."""
    return {"hardware": hardware(device), "versions": versions(), "commit": commit()}


def content_digest(data: Dataset | OrderedTable) -> str:
    """Return a digest of the rows and labels of a data set, of which there may be several versions."""
    labels = data.values if isinstance(data, OrderedTable) else data.y
    content = hashlib.sha256()
    for array in (data.X, labels):
        content.update(f"{array.dtype} {array.shape}".encode())
        content.update(np.ascontiguousarray(array).data)
    return content.hexdigest()[:12]


def hardware(device: torch.device) -> str:
    """Return the name of what computes."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    """Return the versions of Python and of the libraries that results depend on."""
    return {
        "python": platform.python_version(),
        "unbag": unbag.__version__,
        **{name: version(name) for name in ("torch", "numpy", "scikit-learn")},
    }


def commit() -> str:
    """Return the commit of unbag that runs: of ``UNBAG_COMMIT``, else of the checkout that holds this file.

    ``-dirty`` is added where the code of the package differs from it. ``"unknown"`` where there is no way to tell.
    """
    if given := os.environ.get("UNBAG_COMMIT"):
        return given
    here = Path(__file__).resolve()
    package = here.parents[1]
    # An installed copy may lie inside a checkout of something else, which does not track it.
    if _git(package, "ls-files", "--error-unmatch", str(here)) is None:
        return "unknown"
    head = _git(package, "rev-parse", "HEAD")
    if head is None:
        return "unknown"
    return head if _git(package, "status", "--porcelain", "--", str(package)) == "" else f"{head}-dirty"


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
