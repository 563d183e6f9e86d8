"""Downloading a file whose checksum is known: resumed after a break, refused where it is not what it should be."""

from __future__ import annotations

import http.client
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from filelock import FileLock
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from unbag._utils.files import sha256 as checksum

CHUNK = 1 << 18


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


class _Patience(NamedTuple):
    timeout: float
    attempts: int
    pause: float


class DownloadFailed(OSError):
    """Raised where a file could not be downloaded, or is not what it should be."""


class _BrokenOff(Exception):
    """The connection did not deliver; another try may."""


class _Refused(Exception):
    """The server will not deliver, however often it is asked."""


def fetch(remote: Remote, folder: Path, *, timeout: float = 30.0, attempts: int = 4, pause: float = 1.0) -> Path:
    """Download a file into a folder, unless it is there, and return where it lies.

    What a broken download leaves is kept as ``<file>.part``, and the next try goes on from there. Only one process or
    thread downloads a file; others wait for it. A terminal shows a progress bar.

    Parameters
    ----------
    remote
        What to download. Its addresses are tried in turn.
    folder
        Where to put it; made if need be.
    timeout
        After how many seconds of silence a connection is given up.
    attempts
        How many tries in a row may bring nothing new before an address is given up.
    pause
        Seconds before the second try; twice as many before each further one.

    Examples
    --------
    >>> import hashlib, tempfile
    >>> source, folder = Path(tempfile.mkdtemp()), Path(tempfile.mkdtemp())
    >>> (source / "greeting.txt").write_bytes(b"good morning")
    12
    >>> sum_of_it = hashlib.sha256(b"good morning").hexdigest()
    >>> remote = Remote("greeting.txt", ((source / "greeting.txt").as_uri(),), sum_of_it)
    >>> fetch(remote, folder).read_bytes()
    b'good morning'
    """
    target = folder / remote.file
    _make_writable(folder)
    lock = FileLock(folder / f".{remote.file}.lock")
    with lock:
        if not target.exists():
            _fetch(remote, target, _Patience(timeout, attempts, pause))
        with suppress(OSError):  # whoever waits for the lock finds the file, with or without it
            Path(lock.lock_file).unlink()
    return target


def _make_writable(folder: Path) -> None:
    reason = ""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = f": {error.strerror}"
    if reason or not os.access(folder, os.W_OK):
        raise PermissionError(f"nothing can be downloaded into {folder}{reason}; set UNBAG_DATA to another folder")


def _fetch(remote: Remote, target: Path, patience: _Patience) -> None:
    part = target.with_name(f"{target.name}.part")
    console = Console(stderr=True)
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    task = progress.add_task(remote.file, total=None)

    def report(done: int, total: int | None) -> None:
        progress.update(task, completed=done, total=total)

    problems = []
    with progress:
        for url in remote.urls:
            try:
                _try_address(url, part, remote.sha256, patience, report)
            except (_BrokenOff, _Refused) as problem:
                problems.append(f"{url}: {problem}")
            else:
                os.replace(part, target)
                return
    kept = f"; {part.stat().st_size:,} bytes are kept, and the next try goes on from there" if part.exists() else ""
    raise DownloadFailed(
        f"{remote.file} could not be downloaded from {'; '.join(problems)}{kept}. "
        f"Try again later, or put the file into {target.parent} yourself"
    )


def _try_address(
    url: str, part: Path, sha256: str, patience: _Patience, report: Callable[[int, int | None], None]
) -> None:
    """Ask one address until the part is whole and right; give up when several tries in a row add nothing."""
    most, in_vain = _size(part), 0
    while True:
        before = _size(part)
        try:
            _transfer(url, part, patience.timeout, report)
        except _BrokenOff as problem:
            in_vain = 0 if _size(part) > most else in_vain + 1
            most = max(most, _size(part))
            if in_vain >= patience.attempts:
                raise _BrokenOff(f"{problem} ({patience.attempts} tries in a row brought nothing new)") from problem
            time.sleep(patience.pause * 2 ** max(in_vain - 1, 0))
            continue
        came = checksum(part)
        if came == sha256:
            return
        part.unlink()
        if before == 0:
            raise _Refused(f"what came has the sha256 checksum {came}, not {sha256}, and has been removed")
        # The beginning came from an earlier try, perhaps of another file: once more from the start.


def _transfer(url: str, part: Path, timeout: float, report: Callable[[int, int | None], None]) -> None:
    """Bring the rest of a file, or all of it where the server knows no ranges."""
    have = _size(part)
    headers = {"User-Agent": "unbag", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    try:
        response = urlopen(Request(url, headers=headers), timeout=timeout)
    except HTTPError as error:
        error.close()
        if error.code == 416 and have:
            return  # there is nothing after what is here; the checksum will tell whether it is the whole
        kind = _BrokenOff if error.code >= 500 or error.code in (408, 429) else _Refused
        raise kind(f"the server answers {error.code} {error.reason}") from error
    except (OSError, http.client.HTTPException) as error:
        raise _BrokenOff(_in_words(error, timeout)) from error
    with response:
        resumed = response.status == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        if response.status == 206 and not resumed:
            part.unlink(missing_ok=True)  # an answer to another question; the next try asks for all of it
            raise _BrokenOff(f"the server sends {response.headers.get('Content-Range')} when asked for bytes {have}-")
        start = have if resumed else 0
        length = response.headers.get("Content-Length")
        total = None if length is None else start + int(length)
        with open(part, "ab" if resumed else "wb") as file:
            done = start
            report(done, total)
            for chunk in _chunks(response, timeout):
                file.write(chunk)
                done += len(chunk)
                report(done, total)
        if total is not None and done < total:
            raise _BrokenOff(f"the connection broke off after {done:,} of {total:,} bytes")


def _chunks(response: http.client.HTTPResponse, timeout: float) -> Iterator[bytes]:
    """Read an answer piece by piece; what goes wrong with the connection is told apart from what does with the disk."""
    while True:
        try:
            chunk = response.read1(CHUNK)
        except (OSError, http.client.HTTPException) as error:
            raise _BrokenOff(_in_words(error, timeout)) from error
        if not chunk:
            return
        yield chunk


def _in_words(error: Exception, timeout: float) -> str:
    reason = getattr(error, "reason", error)
    if isinstance(reason, TimeoutError):
        return f"nothing came for {timeout:g} seconds"
    return str(reason) or type(reason).__name__


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
