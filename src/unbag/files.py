"""Writing files whole or not at all."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


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
