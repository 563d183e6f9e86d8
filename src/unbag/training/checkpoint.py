"""Files from which a run is resumed after its process was killed at any moment."""

from __future__ import annotations

import hashlib
import logging
import math
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from unbag._utils.files import LOCK, atomic_file, locked, read_regular, remove_drafts, remove_empty
from unbag.training.messages import pack, unpack

logger = logging.getLogger("unbag")

FORMAT = 5
DIGEST_SIZE = 32
FILE = "checkpoint.safetensors"


class TimeBudgetExceeded(Exception):
    """A run was saved before its end, because its time was up; it is resumed when it is started again."""


@dataclass(eq=False)
class Checkpoint:
    """Where a run is saved, and how often: one file of safetensors, followed by its SHA-256 digest.

    Parameters
    ----------
    folder
        Folder of this run only; it is created if it does not exist.
    every
        Steps between two saves; the end of the run is always saved.
    seconds
        Seconds after which the run is saved even if there were fewer steps.
    until
        Time of ``time.monotonic()`` after which the run is saved and stops with :class:`TimeBudgetExceeded`.
    run_id
        Name of the run that stands for functions and objects that cannot be compared, such as lambdas. Without it, a
        run with such parts is refused.

    Examples
    --------
    >>> import tempfile, torch
    >>> checkpoint = Checkpoint(Path(tempfile.mkdtemp()))
    >>> checkpoint.save({"weight": torch.ones(2), "epoch": 3})
    >>> checkpoint.load()
    {'weight': tensor([1., 1.]), 'epoch': 3}
    """

    folder: Path
    every: int = 500
    seconds: float = math.inf
    until: float | None = None
    run_id: str | None = None
    _steps: int = field(default=0, init=False, repr=False)
    _saved: float = field(default_factory=time.monotonic, init=False, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.every, bool) or not isinstance(self.every, int) or self.every < 1:
            raise ValueError(f"every must be a whole number of steps, at least 1; got {self.every!r}")
        self.folder = Path(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)

    @property
    def file(self) -> Path:
        """The file that holds the run."""
        return self.folder / FILE

    def due(self) -> bool:
        """Count a step, and return whether to save now."""
        self._steps += 1
        late = time.monotonic() - self._saved >= self.seconds
        return self._steps >= self.every or late or self.time_is_up

    @property
    def time_is_up(self) -> bool:
        """Whether the run should stop now."""
        return self.until is not None and time.monotonic() > self.until

    def save(self, state: dict[str, Any]) -> None:
        """Replace the file; if the disk is full or read-only, a warning is logged and the last file stays."""
        self._steps, self._saved = 0, time.monotonic()
        content = pack({"format": FORMAT, "state": state})
        try:
            with atomic_file(self.file) as draft, open(draft, "xb") as file:
                file.write(content)
                file.write(hashlib.sha256(content).digest())
        except OSError as error:
            logger.warning("the run could not be saved in %s: %s; the last checkpoint there stays", self.folder, error)

    def load(self) -> dict[str, Any] | None:
        """Return what was saved, or None if there is no file yet."""
        remove_drafts(self.file)
        if not self.file.exists():
            return None
        try:
            content = read_regular(self.file)
            content, digest = content[:-DIGEST_SIZE], content[-DIGEST_SIZE:]
            if hashlib.sha256(content).digest() != digest:
                raise ValueError("its content does not fit its digest")
            saved = unpack(content)
            version, state = saved["format"], saved["state"]
        except (SafetensorError, AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{self.file} is no checkpoint of this version of unbag, or damaged: {error}; remove it to start anew"
            ) from error
        if version != FORMAT:
            raise ValueError(f"{self.file} was written by another version of unbag; remove it to start anew")
        return state

    def locked(self) -> AbstractContextManager[None]:
        """Keep other processes out of the folder."""
        return locked(self.folder)


def remove_checkpoints(folder: Path) -> None:
    """Remove all checkpoints in a folder and its subfolders, and no other files."""
    folders = [folder, *(path for path in folder.rglob("*") if path.is_dir() and not path.is_symlink())]
    for path in folders:
        remove_drafts(path / FILE)
        for name in (FILE, LOCK):
            (path / name).unlink(missing_ok=True)
    remove_empty(reversed(folders))
