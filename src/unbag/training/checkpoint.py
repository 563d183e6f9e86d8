"""Files from which a run is resumed after its process was killed at any moment.

A file holds the state of a run and what identifies the run; reading it cannot run code.
"""

import hashlib
import io
import json
import logging
import math
import pickle
import time
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import FunctionType
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from unbag._utils.files import LOCK, atomic_file, read_regular, remove_drafts, remove_empty

logger = logging.getLogger("unbag")

FORMAT, FILE, DIGEST_SIZE = 6, "checkpoint.safetensors", 32
_KEY, _TENSOR = "unbag", "unbag:tensor"  # of the JSON in the header of a file, and of the name of a tensor in it


class TimeBudgetExceeded(Exception):
    """A run was saved before its end, because its time was up; it is resumed when it is started again."""


@dataclass(eq=False)
class Checkpoint:
    """Where a run is saved, and how often: one file of safetensors, followed by its SHA-256 digest.

    Parameters
    ----------
    folder
        Folder of this run only; it is created if it does not exist.
    every, seconds
        Steps, or seconds if these are over first, between two saves; the end of the run is always saved.
    until
        Time of ``time.monotonic()`` after which the run is saved and stops with :class:`TimeBudgetExceeded`.
    run_id
        Name of the run for functions that cannot be compared, such as lambdas, which are an error without it.
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

    @property
    def time_is_up(self) -> bool:
        """Whether the run should stop now."""
        return self.until is not None and time.monotonic() > self.until

    def due(self) -> bool:
        """Count a step, and return whether to save now."""
        self._steps += 1
        late = time.monotonic() - self._saved >= self.seconds
        return self._steps >= self.every or late or self.time_is_up

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
            if saved["format"] != FORMAT:
                raise ValueError(f"its format is {saved['format']} and not {FORMAT}")
            return saved["state"]
        except (SafetensorError, AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{self.file} is no checkpoint of this version of unbag, or damaged: {error}; remove it to start again"
            ) from error


def remove_checkpoints(folder: Path) -> None:
    """Remove all checkpoints in a folder and its subfolders, and no other files."""
    folders = [folder, *(path for path in folder.rglob("*") if path.is_dir() and not path.is_symlink())]
    for path in folders:
        remove_drafts(path / FILE)
        (path / FILE).unlink(missing_ok=True)
        (path / LOCK).unlink(missing_ok=True)
    remove_empty(reversed(folders))


def pack(value: Any) -> bytes:
    """Encode plain values, tensors, lists and dicts; tuples come back as lists, and keys as strings.

    Tensors become a file of safetensors, everything else JSON in its header.
    """
    tensors: dict[str, Tensor] = {}

    def name_tensor(value: Any) -> dict[str, str]:
        if not isinstance(value, Tensor):
            raise TypeError(
                f"only plain values and tensors can be written, got an object of type {type(value).__name__}"
            )
        tensors[name := str(len(tensors))] = value.detach().cpu().contiguous().clone()  # they may not share memory
        return {_TENSOR: name}

    return safetensors.torch.save(tensors, {_KEY: json.dumps(value, default=name_tensor)})


def unpack(content: bytes) -> Any:
    """Decode what :func:`pack` has encoded; nothing in ``content`` is executed."""
    length = int.from_bytes(content[:8], "little")
    text = json.loads(content[8 : 8 + length])["__metadata__"][_KEY]
    tensors = safetensors.torch.load(content)
    return json.loads(text, object_hook=lambda entry: tensors[entry[_TENSOR]] if _TENSOR in entry else entry)


def identify(value: Any, name: str, *, skip_unknown: bool = False) -> str:
    """Return a short text that is the same in every process for equal values.

    Values are compared as pickle writes them: objects by their attributes except the ``_derived_attributes`` of their
    class, arrays by their content, functions and classes by module and name. Nothing is ever unpickled. Lambdas and
    functions inside others have no name: they are an error, or are skipped on request.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    try:
        content = _Pickler.write(value, skip_unknown)
    except (pickle.PicklingError, AttributeError, TypeError, ValueError, RuntimeError) as error:
        raise TypeError(
            f"the {name} cannot be recognised when the run is resumed from its checkpoint: {error}; define functions "
            "and classes at the top of a module, give Checkpoint a run_id that changes whenever they do, or leave "
            "checkpoint= out"
        ) from error
    return hashlib.sha256(content).hexdigest()[:16]


class _Pickler(pickle.Pickler):
    """Write arrays as hashes, sets in order, and objects without what follows from their other attributes."""

    skip_unknown: bool

    @classmethod
    def write(cls, value: Any, skip_unknown: bool) -> bytes:
        file = io.BytesIO()
        pickler = cls(file, protocol=4)
        pickler.skip_unknown = skip_unknown
        pickler.fast = True  # which objects are the same, and not only equal, differs between processes
        pickler.dump(value)
        return file.getvalue()

    def persistent_id(self, obj: Any) -> Any:
        """Return what is written in place of tensors, sets, and functions that may be left out."""
        if isinstance(obj, Tensor):
            content = obj.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
            return str(obj.dtype), tuple(obj.shape), hashlib.sha256(content.data).digest()
        if isinstance(obj, set | frozenset):
            return sorted(self.write(entry, self.skip_unknown) for entry in obj)
        is_unknown = isinstance(obj, FunctionType) and "<" in obj.__qualname__  # <lambda>, <locals>
        return "unknown" if is_unknown and self.skip_unknown else None

    def reducer_override(self, obj: Any) -> Any:
        """Return how objects with derived attributes are written."""
        attributes = [vars(base) for base in type(obj).__mro__[:-1]]
        derived = {name for each in attributes for name in each.get("_derived_attributes", ())}
        derived |= {n for each in attributes for n, value in each.items() if isinstance(value, cached_property)}
        if not derived or any({"__reduce__", "__reduce_ex__"} & each.keys() for each in attributes):
            return NotImplemented
        return type, (type(obj),), {name: part for name, part in vars(obj).items() if name not in derived}
