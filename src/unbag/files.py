"""Writing files whole or not at all, by one process at a time, and never over what is read."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

LOCK = ".lock"

WEIGHTS = re.compile(r"weights-[0-9a-f]{16}\.safetensors")
"""What files of weights are called, by what they hold."""


class FolderInUse(OSError):
    """Another process is writing to a folder."""


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that its old content stays until the new one is complete and on disk.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> write_whole(folder / "note.txt", b"kept")
    >>> (folder / "note.txt").read_bytes(), len(list(folder.iterdir()))
    (b'kept', 1)
    """
    with whole_file(path) as draft, open(draft, "xb") as file:
        file.write(content)


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Give a draft to write to, beside a file that it replaces once it is complete and on disk.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "note.txt"
    >>> with whole_file(path) as draft:
    ...     _ = draft.write_text("long")
    >>> path.read_text()
    'long'
    """
    # Not by tempfile, whose files nobody else may read.
    draft = path.absolute().with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        yield draft
        with open(draft, "r+b") as file:
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        with suppress(OSError):  # what went wrong first is what the caller should hear of
            os.unlink(draft)
        raise


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


def refuse_input(out: Path, inputs: Iterable[Path]) -> None:
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
