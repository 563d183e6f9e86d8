"""The environment of a computation: versions, hardware, commit and date."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from unbag.version import __version__

if TYPE_CHECKING:
    import torch


def versions(*more: str) -> dict[str, str]:
    """Return the versions of Python and of the packages that numbers depend on, and of more packages by name.

    Examples
    --------
    >>> list(versions("pyarrow"))
    ['python', 'unbag', 'torch', 'numpy', 'pyarrow']
    """
    import numpy as np  # noqa: PLC0415 (slow to import, as torch is, and most who import this module only ask later)
    import torch  # noqa: PLC0415

    return {
        "python": platform.python_version(),
        # Not from the metadata of packages: a checkout that is not installed has none.
        **{"unbag": __version__, "torch": torch.__version__, "numpy": np.__version__},
        **{name: version(name) for name in more},
    }


def date() -> str:
    """Return the date and time in UTC, in ISO form, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


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
    """Return the commit of unbag that runs: of ``UNBAG_COMMIT``, else of the checkout that holds this file.

    ``-dirty`` is added where the code of the package differs from it. ``"unknown"`` where there is no way to tell.
    """
    if given := os.environ.get("UNBAG_COMMIT"):
        return given
    here = Path(__file__).resolve()
    package = here.parent
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
