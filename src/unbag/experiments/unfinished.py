"""Work under way in a folder of results: claims, so that two runs do not do the same, and checkpoints."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from unbag.experiments.plan import Work
from unbag.files import write_whole


@contextmanager
def claim(results: Path, work: Work) -> Iterator[bool]:
    """Claim a piece of work; false where another run has it. The claim of a process ends with it, however it ends.

    Examples
    --------
    >>> import tempfile
    >>> from unbag.experiments.plan import Cell
    >>> folder, work = Path(tempfile.mkdtemp()), Work(Cell("mil", "multiple_instance", "fox", "uum"), (0,))
    >>> with claim(folder, work) as first, claim(folder, work) as second:
    ...     first, second
    (True, False)
    """
    file = os.open(_folder(results) / f"{work.key}.lock", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(file)


def checkpoint_folder(results: Path, work: Work) -> Path:
    """Return where a piece of work is saved until it is done; other settings or trials have another place."""
    what = repr((work.cell, work.cell.settings, work.cell.choices, work.seeds))
    return _folder(results) / work.key / hashlib.sha256(what.encode()).hexdigest()[:12]


def clear(results: Path, work: Work) -> None:
    """Remove what was saved of work that is done."""
    shutil.rmtree(_folder(results) / work.key, ignore_errors=True)


def _folder(results: Path) -> Path:
    folder = results / ".unfinished"
    folder.mkdir(parents=True, exist_ok=True)
    if not (note := folder / ".gitignore").exists():
        write_whole(note, b"*\n")  # none of this is a result
    return folder
