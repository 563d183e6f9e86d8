"""Downloading a file whose checksum is known."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock


@dataclass(frozen=True)
class Remote:
    """A file that can be downloaded: its name, the addresses at which it is offered, and its checksum."""

    file: str
    urls: tuple[str, ...]
    sha256: str

    @classmethod
    def below(cls, url: str, sha256: Mapping[str, str]) -> tuple[Remote, ...]:
        """Return files that are offered below one address, from their names and checksums."""
        return tuple(cls(file, (url + file,), digest) for file, digest in sha256.items())


class DownloadFailed(OSError):
    """Raised where a file could not be downloaded, or is not what it should be."""


def fetch(remote: Remote, folder: Path, *, retries: int = 3, pause: float = 1.0) -> Path:
    """Download a file into a folder, unless it is there, and return where it lies.

    Only one process or thread downloads a file; others wait for it.
    """
    target, reason = folder / remote.file, ""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = f": {error.strerror}"
    if reason or not os.access(folder, os.W_OK):
        raise PermissionError(f"nothing can be downloaded into {folder}{reason}; set UNBAG_DATA to another folder")
    lock = FileLock(folder / f".{remote.file}.lock")
    with lock:
        if not target.exists():
            _fetch(remote, target, retries, pause)
        with suppress(OSError):  # whoever waits for the lock finds the file, with or without it
            Path(lock.lock_file).unlink()
    return target


def _fetch(remote: Remote, target: Path, retries: int, pause: float) -> None:
    from sklearn.datasets import fetch_file  # noqa: PLC0415 (slow to import)

    problems = []
    for url in remote.urls:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of another try
                fetch_file(url, target.parent, target.name, remote.sha256, n_retries=retries, delay=pause)
        except (OSError, ValueError) as error:
            problems.append(f"{url}: {error}")
        else:
            return
    raise DownloadFailed(
        f"{remote.file} could not be downloaded from {'; '.join(problems)}. Try again later, or put the file into "
        f"{target.parent} yourself"
    )
