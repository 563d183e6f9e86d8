"""Files: written whole or not at all, by one process at a time, never over what is read; only regular ones are read."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

LOCK = ".lock"

# Without O_NONBLOCK, opening a pipe waits for a writer. Not every platform has all of these.
_READ = sum(getattr(os, name, 0) for name in ("O_RDONLY", "O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY"))

MAX_JSON_BYTES = 2**28
"""Size of the largest JSON file that is parsed: Python objects take many times the size of their text."""

WEIGHTS = re.compile(r"weights-[0-9a-f]{16}\.(safetensors|txt)")
"""What files of weights are called, by what they hold."""


class FolderInUse(OSError):
    """Another process is writing to a folder."""


def write_atomic(path: Path, content: bytes) -> None:
    """Write a file so that its old content stays until the new one is complete and on disk.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> write_atomic(folder / "note.txt", b"kept")
    >>> (folder / "note.txt").read_bytes(), len(list(folder.iterdir()))
    (b'kept', 1)
    """
    with atomic_file(path) as draft, open(draft, "xb") as file:
        file.write(content)


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Give a draft to write to, beside a file that it replaces once it is complete and on disk.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "note.txt"
    >>> with atomic_file(path) as draft:
    ...     _ = draft.write_text("long")
    >>> path.read_text()
    'long'
    """
    with full_disk_named(path), draft_file(path) as draft:
        yield draft
        sync(draft)
        os.replace(draft, path)


@contextmanager
def draft_file(path: Path) -> Iterator[Path]:
    """Yield the path of a new file beside another file, and remove it afterwards if it is still there."""
    # Not by tempfile, whose files nobody else may read.
    draft = path.absolute().with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        yield draft
    finally:
        with suppress(OSError):  # the first error is the one to report
            os.unlink(draft)


@contextmanager
def full_disk_named(path: Path) -> Iterator[None]:
    """Report a full disk in a sentence that names the file that was to be written."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise OSError(f"{path} was not written: {os.strerror(error.errno)}; free some space and try again") from error


def sync(path: Path) -> None:
    """Wait until the content of a file is on disk."""
    with open(path, "r+b") as file:
        os.fsync(file.fileno())


def drafts(path: Path) -> Iterator[Path]:
    """Find what writers that were killed have left beside a file."""
    name = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{32}}\.part")
    for draft in path.absolute().parent.glob("*.part"):
        if name.fullmatch(draft.name):
            yield draft


def remove_drafts(path: Path) -> None:
    """Remove what writers that were killed have left beside a file, where that is allowed."""
    for draft in drafts(path):
        with suppress(OSError):
            draft.unlink()


def read_regular(path: Path, limit: int | None = None) -> bytes:
    """Return the content of a regular file, or of one that a link leads to; refuse anything else without waiting.

    A pipe that nobody writes to, or a device that never ends, is not read; of a file that grows, no more than its size
    when it was opened. A file of more than ``limit`` bytes is refused before any of it is read.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> write_atomic(folder / "note.txt", b"kept")
    >>> read_regular(folder / "note.txt")
    b'kept'
    >>> read_regular(folder)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    ValueError: ... is no regular file, ...
    """
    refusal = f"{path} is no regular file, but a folder, a pipe, a device or a socket; put the file itself there"
    try:
        descriptor = os.open(path, _READ)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ENODEV, errno.ELOOP):  # a socket, no device, links in a circle
            raise ValueError(refusal) from error
        raise
    try:
        status = os.fstat(descriptor)  # of what was opened, whatever has come in its place since
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(refusal)
        if limit is not None and status.st_size > limit:
            raise ValueError(f"{path} has {status.st_size:,} bytes, expected at most {limit:,}")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(status.st_size)
    finally:
        os.close(descriptor)


def remove_empty(folders: Iterable[Path]) -> None:
    """Remove those folders that hold nothing, in this order."""
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Have a folder to oneself, as all who write to it do; refuse at once where another process has it.

    The lock of a process ends with it, however it ends; the file of the lock stays.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with locked(folder):
    ...     [one.name for one in folder.iterdir()]
    ['.lock']
    """
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise FolderInUse(
            f"another process is writing to {folder}; wait until it is done, or name another folder"
        ) from None
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        yield  # nobody can write there
        return
    try:
        yield
    finally:
        lock.release()


def sha256(path: Path) -> str:
    """Return the digest of a file.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "empty"
    >>> path.touch()
    >>> sha256(path)[:16]
    'e3b0c44298fc1c14'
    """
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def raise_if_input(out: Path, inputs: Iterable[Path]) -> None:
    """Refuse to write over a file that is read, or into a folder that is read, however the path is spelled or linked.

    Parameters
    ----------
    out
        The file to write.
    inputs
        Files and folders that are read.
    """
    for one in inputs:
        if out.exists() and one.exists() and out.samefile(one):
            raise FileExistsError(f"{out} is {_also(out, one)}read; name another file to write")
        if one.is_dir() and any(parent.samefile(one) for parent in out.resolve().parents if parent.exists()):
            raise FileExistsError(f"{out} is in the folder {one}, which is read; name a file elsewhere")


def _also(out: Path, one: Path) -> str:
    return "a file that is " if out == one else f"the same file as {one}, which is "
