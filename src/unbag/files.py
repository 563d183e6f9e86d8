"""Writing files whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that its old content stays until the new one is complete and on disk.

    Examples
    --------
    >>> folder = Path(tempfile.mkdtemp())
    >>> write_whole(folder / "note.txt", b"kept")
    >>> (folder / "note.txt").read_bytes(), len(list(folder.iterdir()))
    (b'kept', 1)
    """
    folder = path.absolute().parent
    descriptor, draft = tempfile.mkstemp(dir=folder, prefix=f".{path.name}.", suffix=".part")
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise


def remove_drafts(path: Path) -> None:
    """Remove what writers that were killed have left beside a file."""
    for draft in path.absolute().parent.glob(f".{path.name}.*.part"):
        draft.unlink(missing_ok=True)
