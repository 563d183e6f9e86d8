"""What results are computed by: hardware and commit."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import unbag

if TYPE_CHECKING:
    import torch


def hardware(device: torch.device) -> str:
    """Return the name of what computes."""
    if device.type == "cuda":
        import torch  # noqa: PLC0415

        return torch.cuda.get_device_name(device)
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def commit() -> str:
    """Return the commit of the code that runs: of ``UNBAG_COMMIT``, else of the checkout that holds this file.

    ``-dirty`` is added where the code of unbag or of the experiments differs from it; ``"unknown"`` stands for no
    checkout that holds both.
    """
    if given := os.environ.get("UNBAG_COMMIT"):
        return given
    # An installed copy may lie inside a checkout of something else, which does not track it.
    packages = [Path(file).resolve().parent for file in (__file__, unbag.__file__)]
    if any(_git(package, "ls-files", "--error-unmatch", "__init__.py") is None for package in packages):
        return "unknown"
    head, *others = {_git(package, "rev-parse", "HEAD") for package in packages}
    if head is None or others:
        return "unknown"
    clean = all(_git(package, "status", "--porcelain", "--", ".") == "" for package in packages)
    return head if clean else f"{head}-dirty"


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
