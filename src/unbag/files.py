"""Writing files whole or not at all, and reading nothing but files."""

from __future__ import annotations

import errno
import os
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# Without O_NONBLOCK, opening a pipe waits for a writer. Not every platform has all of these.
_READ = sum(getattr(os, name, 0) for name in ("O_RDONLY", "O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY"))


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


def remove_drafts(path: Path) -> None:
    """Remove what writers that were killed have left beside a file, where that is allowed."""
    for draft in path.absolute().parent.glob(f".{path.name}.*.part"):
        with suppress(OSError):
            draft.unlink()


def read_regular(path: Path) -> bytes:
    """Return the content of a regular file, or of one that a link leads to; refuse anything else without waiting.

    A pipe that nobody writes to, or a device that never ends, is not read; of a file that grows, no more than its size
    when it was opened.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> write_whole(folder / "note.txt", b"kept")
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
        found = os.fstat(descriptor)  # of what was opened, whatever has come in its place since
        if not stat.S_ISREG(found.st_mode):
            raise ValueError(refusal)
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(found.st_size)
    finally:
        os.close(descriptor)
