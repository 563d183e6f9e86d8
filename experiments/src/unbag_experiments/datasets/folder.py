"""The data folder: the one that UNBAG_DATA names, or a cache in the home folder."""

from __future__ import annotations

import os
from pathlib import Path


def data_folder() -> Path:
    """Return the folder that data sets are read from and downloaded into.

    Examples
    --------
    >>> data_folder().is_absolute()
    True
    """
    named = os.environ.get("UNBAG_DATA")
    if named:
        folder = Path(named).expanduser().absolute()
        if not folder.is_dir():
            raise FileNotFoundError(
                f"UNBAG_DATA names the folder {folder}, which does not exist; make it, or unset UNBAG_DATA"
            )
        return folder
    cache = os.environ.get("XDG_CACHE_HOME")
    # An XDG folder counts only where it is absolute, says its specification.
    base = Path(cache) if cache and Path(cache).is_absolute() else Path.home() / ".cache"
    return base / "unbag"


def existing(folder: Path, file: str) -> Path | None:
    """Return where a file lies, as it is or compressed by gzip; None where it does not exist.

    Examples
    --------
    >>> existing(Path("."), "no such file") is None
    True
    """
    for path in (folder / file, folder / f"{file}.gz"):
        if path.is_file():
            return path
    return None
