"""Files: written completely or not at all, by one process at a time, never over an input; pipes are not read."""

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

MAX_JSON_BYTES = 2**28
"""Size of the largest JSON file that is parsed: Python objects take many times the size of their text."""

WEIGHTS = re.compile(r"weights-[0-9a-f]{16}\.(safetensors|txt)")
"""Names of files of weights, which contain a digest of their content."""

# Without O_NONBLOCK, opening a pipe waits for a writer. Not every platform has all of these.
_READ = sum(getattr(os, name, 0) for name in ("O_RDONLY", "O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY"))


class FolderInUse(OSError):
    """Another process is writing to a folder."""


def write_atomic(path: Path, content: bytes) -> None:
    """Write a file so that its old content stays until the new one is complete and on disk."""
    with atomic_file(path) as draft, open(draft, "xb") as file:
        file.write(content)


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield the path of a draft, which replaces a file once it is complete and on disk."""
    with full_disk_named(path), draft_file(path) as draft:
        yield draft
        sync(draft)
        os.replace(draft, path)


@contextmanager
def draft_file(path: Path) -> Iterator[Path]:
    """Yield the path of a new file beside another file, and remove it afterwards if it is still there."""
    # Not by tempfile, whose files other users may not read.
    draft = path.absolute().with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        yield draft
    finally:
        with suppress(OSError):  # the first error is the one to report
            os.unlink(draft)


@contextmanager
def full_disk_named(path: Path) -> Iterator[None]:
    """Add the name of the file that was not written to the error of a full disk."""
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
    """Yield the drafts of a file that processes left behind when they were killed."""
    name = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{32}}\.part")
    for draft in path.absolute().parent.glob("*.part"):
        if name.fullmatch(draft.name):
            yield draft


def remove_drafts(path: Path) -> None:
    """Remove the drafts of a file, where that is allowed."""
    for draft in drafts(path):
        with suppress(OSError):
            draft.unlink()


def read_regular(path: Path, limit: int | None = None) -> bytes:
    """Read a regular file of at most ``limit`` bytes, or the one that a link leads to.

    Anything else raises an error at once: a pipe without a writer, or a device that never ends, is not read. Of a file
    that grows, no more is read than its size when it was opened.
    """
    refusal = f"{path} is no regular file, but a folder, a pipe, a device or a socket; put the file itself there"
    try:
        descriptor = os.open(path, _READ)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ENODEV, errno.ELOOP):  # a socket, no device, links in a circle
            raise ValueError(refusal) from error
        raise
    try:
        status = os.fstat(descriptor)  # of the file that was opened, whatever has replaced it since
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(refusal)
        if limit is not None and status.st_size > limit:
            raise ValueError(f"{path} has {status.st_size:,} bytes, expected at most {limit:,}")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(status.st_size)
    finally:
        os.close(descriptor)


def remove_empty(folders: Iterable[Path]) -> None:
    """Remove those folders that are empty, in this order."""
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder, or raise an error at once if another process has locked it.

    The lock ends with its process; its file stays. A folder that is not writable needs no lock.
    """
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        message = f"another process is writing to {folder}; wait until it is done, or name another folder"
        raise FolderInUse(message) from None
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
    try:
        yield
    finally:
        lock.release()


def sha256(path: Path) -> str:
    """Return the SHA-256 digest of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def raise_if_input(out: Path, inputs: Iterable[Path]) -> None:
    """Raise an error if an output is one of the input files or in one of the input folders, by any path or link."""
    for path in inputs:
        if out.exists() and path.exists() and out.samefile(path):
            same = "a file that is " if out == path else f"the same file as {path}, which is "
            raise FileExistsError(f"{out} is {same}read; name another file to write")
        if path.is_dir() and any(parent.samefile(path) for parent in out.resolve().parents if parent.exists()):
            raise FileExistsError(f"{out} is in the folder {path}, which is read; name a file elsewhere")
