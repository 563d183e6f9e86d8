"""Claims on work and its checkpoints in a folder of results, so that two runs do not do the same."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from unbag._utils.files import write_atomic

if TYPE_CHECKING:
    from unbag_experiments.plan import Work


@contextmanager
def claim(results: Path, key: str) -> Iterator[bool]:
    """Claim a piece of work by its key; false where another run has it.

    The claim of a process ends with it, however it ends.
    """
    lock = FileLock(unfinished_folder(results) / f"{key}.lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def checkpoint_folder(results: Path, work: Work) -> Path:
    """Return where a piece of work is saved until it is done; other settings or trials have another place."""
    what = repr((work.cell, work.cell.settings, work.cell.choices, work.seeds))
    return unfinished_folder(results) / work.key / hashlib.sha256(what.encode()).hexdigest()[:12]


def clear(results: Path, work: Work) -> None:
    """Remove what was saved of work that is done."""
    shutil.rmtree(unfinished_folder(results) / work.key, ignore_errors=True)


def unfinished_folder(results: Path) -> Path:
    """Return the folder of what is no result, made where it is not there."""
    folder = results / ".unfinished"
    folder.mkdir(parents=True, exist_ok=True)
    if not (note := folder / ".gitignore").exists():
        write_atomic(note, b"*\n")  # none of this is a result
    return folder
