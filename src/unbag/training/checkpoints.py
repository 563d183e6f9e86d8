"""Saving a run so that it can go on after the process was killed at any moment."""

from __future__ import annotations

import hashlib
import json
import math
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from unbag._utils.files import LOCK, atomic_file, locked, read_regular, remove_drafts, remove_empty
from unbag.training.progress import logger

FORMAT = 4
DIGEST_SIZE = 32
FILE = "checkpoint.safetensors"


class TimeBudgetExceeded(Exception):
    """The time of a run was up before its end; it was saved, and goes on if it is started again."""


@dataclass(eq=False)
class Checkpoint:
    """Where a run is saved, and how often: one file of tensors with everything else as JSON in its head.

    The file is one of safetensors, followed by the SHA-256 digest of all that.

    Parameters
    ----------
    folder
        Made if it does not exist. Keep one folder for each run.
    every
        Steps from one save to the next; the end of the run is always saved.
    seconds
        Save also after so many, where steps are slow or few.
    until
        A moment of ``time.monotonic()``. The first step after it is saved, and the run stops with
        :class:`TimeBudgetExceeded`.

    Examples
    --------
    >>> import tempfile, torch
    >>> checkpoint = Checkpoint(Path(tempfile.mkdtemp()))
    >>> checkpoint.save({"weight": torch.ones(2)}, {"epoch": 3})
    >>> checkpoint.load()
    ({'weight': tensor([1., 1.])}, {'epoch': 3})
    """

    folder: Path
    every: int = 500
    seconds: float = math.inf
    until: float | None = None
    _since: int = field(default=0, init=False, repr=False)
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

    def part(self, name: str) -> Checkpoint:
        """Return a place of its own for a part of the run."""
        return Checkpoint(self.folder / name, self.every, self.seconds, self.until)

    def due(self) -> bool:
        """Count a step, and say whether it is time to save."""
        self._since += 1
        late = time.monotonic() - self._saved >= self.seconds
        return self._since >= self.every or late or self.time_is_up

    @property
    def time_is_up(self) -> bool:
        """Whether the run should stop now."""
        return self.until is not None and time.monotonic() > self.until

    def save(self, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None:
        """Replace what was saved before; a disk that is full or read-only leaves that as it was, and is logged."""
        self._since, self._saved = 0, time.monotonic()
        head = json.dumps({"format": FORMAT, **numbers})
        content = save({name: tensor.contiguous() for name, tensor in tensors.items()}, {"unbag": head})
        try:
            with atomic_file(self.file) as draft, open(draft, "xb") as file:
                file.write(content)
                file.write(hashlib.sha256(content).digest())
        except OSError as error:
            logger.warning("the run could not be saved in %s: %s; the last checkpoint there stays", self.folder, error)

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Return what was saved, or None if there is nothing yet."""
        remove_drafts(self.file)
        if not self.file.exists():
            return None
        try:
            content = read_regular(self.file)
            content, noted = content[:-DIGEST_SIZE], content[-DIGEST_SIZE:]
            if hashlib.sha256(content).digest() != noted:
                raise ValueError("its content does not fit its digest")
            length = int.from_bytes(content[:8], "little")
            numbers = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["unbag"])
            tensors = load(content)
            version = numbers.pop("format", None)
        except (SafetensorError, AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{self.file} is no checkpoint of this version of unbag, or damaged: {error}; remove it to start anew"
            ) from error
        if version != FORMAT:
            raise ValueError(f"{self.file} was written by another version of unbag; remove it to start anew")
        return tensors, numbers

    def locked(self) -> AbstractContextManager[None]:
        """Keep other processes out of the folder while a run goes on."""
        return locked(self.folder)


def remove_checkpoints(folder: Path) -> None:
    """Remove all checkpoints in a folder and in those inside it; whatever else is there stays."""
    folders = [folder, *(path for path in folder.rglob("*") if path.is_dir() and not path.is_symlink())]
    for one in folders:
        remove_drafts(one / FILE)
        for name in (FILE, LOCK):
            (one / name).unlink(missing_ok=True)
    remove_empty(reversed(folders))
