"""The folder of a run: its files and their names, the manifest with their digests, the lock."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unbag._utils.environment import date, versions
from unbag._utils.files import (
    LOCK,
    MAX_JSON_BYTES,
    WEIGHTS,
    drafts,
    locked,
    read_regular,
    remove_drafts,
    remove_empty,
    sha256,
    write_atomic,
)

FORMAT = 4

SUMMARY, REPORT = "summary.json", "report.html"
FILES = (SUMMARY, "model/model.json", REPORT)
"""What a run writes beside its head, the weights of the model, and checkpoints while it goes on."""


class RunError(ValueError):
    """A run that cannot be used: not finished, damaged or altered."""


@dataclass(frozen=True)
class Run:
    """A folder in which a run is kept."""

    folder: Path

    @property
    def head(self) -> Path:
        """What was asked for and how far it is, as JSON."""
        return self.folder / "run.json"

    @property
    def model(self) -> Path:
        """Where the classifier is saved."""
        return self.folder / "model"

    @property
    def checkpoint(self) -> Path:
        """Where training is saved while it goes on."""
        return self.folder / "checkpoint"

    @property
    def rows(self) -> Path:
        """Where rows that stay on disk are kept, unless a folder is named: beside the run, for others to reuse."""
        return self.folder.with_name(f"{self.folder.name}-rows")

    @property
    def summary(self) -> Path:
        """What the report shows."""
        return self.folder / SUMMARY

    @property
    def report(self) -> Path:
        """Where the page is written, unless another place is named."""
        return self.folder / REPORT

    @property
    def inputs(self) -> list[Path]:
        """What is read of a run, and must not be written over; of a demonstration, its summary alone."""
        if not self.head.exists():
            return [self.summary]
        return [self.head, self.folder / LOCK, *(self.folder / name for name in self.read()["files"] if name != REPORT)]

    @contextmanager
    def opened(self, plan: dict[str, Any], *, force: bool) -> Iterator[bool]:
        """Have the folder to oneself to run a plan; tell whether there is an unfinished run of it to go on with.

        Where the run is not even started, the folder is left as it was. With ``force``, start anew, whatever the folder
        holds of earlier runs.
        """
        lock = self.folder / LOCK
        self._read_earlier()  # a folder of other files is refused before anything is made in it
        new = not lock.exists()
        made = [one for one in (self.folder, *self.folder.parents) if not one.exists()]
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            with locked(self.folder):
                try:
                    yield self._check_free(plan, force=force)
                finally:
                    if new and not self.head.exists():
                        with suppress(OSError):  # where an open file cannot be removed, it does no harm
                            lock.unlink()
        finally:
            remove_empty(made)

    def _read_earlier(self) -> dict[str, Any] | None:
        """Return what an earlier run in the folder notes of itself, None where there was none; refuse other files."""
        if self.folder.exists() and not self.folder.is_dir():
            raise FileExistsError(f"{self.folder} is a file; name a folder for the run")
        ignored = {self.folder / LOCK, *(self.folder / one.name for one in drafts(self.head))}
        if not self.folder.exists() or not {*self.folder.iterdir()} - ignored:
            return None
        if not self.head.exists():
            raise FileExistsError(f"{self.folder} holds other files and no run; name another folder with --out")
        return self.read()

    def _check_free(self, plan: dict[str, Any], *, force: bool) -> bool:
        """Return whether there is an unfinished run of the same plan to go on with; refuse to overwrite any other."""
        content = self._read_earlier()
        if content is None:
            return False
        if force:
            if altered := [name for name in self._altered(content) if (self.folder / name).exists()]:
                raise FileExistsError(
                    f"{self.folder / altered[0]} is not what the run there has written; move it elsewhere, or name "
                    "another folder with --out"
                )
            return False
        if content["status"] == "finished":
            raise FileExistsError(
                f"{self.folder} holds a finished run; name another folder with --out, or replace it with --force"
            )
        if (differ := _differences(content["plan"], json.loads(json.dumps(plan)))) is not None:
            raise FileExistsError(
                f"{self.folder} holds an unfinished run with another {differ}; ask for the same to go on with it, name "
                "another folder with --out, or start anew with --force"
            )
        return True

    @contextmanager
    def training(self, plan: dict[str, Any], inputs: dict[str, Any], *, resumed: bool) -> Iterator[None]:
        """Mark the run as unfinished while it is trained.

        If training fails before it has saved a checkpoint, the folder is left as it was.
        """
        remove_drafts(self.head)
        before = self.head.read_bytes() if self.head.exists() else None
        if not resumed:
            earlier = {} if before is None else self.read()["files"]
            self._remove_checkpoint()
            self._write("unfinished", plan, inputs, dict.fromkeys([*FILES, *earlier]))
        try:
            yield
        except BaseException:
            if not any(self.checkpoint.rglob("*.safetensors")):
                self._remove_checkpoint()
                if before is None:
                    self.head.unlink()
                else:
                    write_atomic(self.head, before)
            raise
        self._remove([name for name in self.read()["files"]])

    def finish(self, plan: dict[str, Any], inputs: dict[str, Any]) -> None:
        """Note that all is done, with a digest of each file, and remove what was only kept to go on from."""
        arrays = json.loads(read_regular(self.model / "model.json", MAX_JSON_BYTES))["content"]["arrays"]["file"]
        written = [*FILES, f"{self.model.name}/{arrays}"]
        written.remove(REPORT)
        files = {name: sha256(self.folder / name) for name in written}
        self._write("finished", plan, inputs, {**files, REPORT: None})
        self._remove_checkpoint()

    def read(self) -> dict[str, Any]:
        """Return what the run notes of itself; refuse what no run has written."""
        if not self.head.exists():
            raise FileNotFoundError(
                f"there is no run in {self.folder}: {self.head.name} is missing; make one with unbag fit"
            )
        try:
            content = dict(json.loads(read_regular(self.head, MAX_JSON_BYTES)))
            written, noted = content["format"], content.pop("sha256", None)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise self._refusal(f"the file is cut short or was altered, or is no run of unbag: {error!r}") from error
        if written != FORMAT:
            raise self._refusal("the file was written by another version of unbag")
        if noted != _digest(content) or not all(self._may_write(name) for name in content["files"]):
            raise self._refusal("the file was altered after unbag wrote it, or is no run of unbag")
        return content

    def read_finished(self) -> dict[str, Any]:
        """Return the same of a run that can be used; refuse one that is not finished."""
        content = self.read()
        if content["status"] != "finished":
            raise RunError(
                f"the run in {self.folder} is not finished; go on with it by the same unbag fit that began it"
            )
        return content

    def read_summary(self) -> dict[str, Any]:
        """Return the summary of a finished run, or of a demonstration, which leaves no more than that."""
        if not self.folder.exists():
            raise FileNotFoundError(
                f"{self.folder} does not exist; give the folder of a run, as unbag fit --out has written it"
            )
        if not self.folder.is_dir():
            raise NotADirectoryError(
                f"{self.folder} is a file; give the folder of a run, as unbag fit --out has written it"
            )
        content = self.read_finished() if self.head.exists() else None
        if not self.summary.exists():
            raise FileNotFoundError(
                f"{self.folder} is no run of unbag: {SUMMARY} is missing; give a folder as unbag fit --out has written "
                "it"
            )
        try:
            summary = json.loads(read_regular(self.summary, MAX_JSON_BYTES))
        except (ValueError, RecursionError) as error:
            raise RunError(f"{self.summary} is damaged: {error}; make it again with unbag fit --force") from error
        if not isinstance(summary, dict):
            raise RunError(f"{self.summary} is not as unbag writes it; make it again with unbag fit --force")
        if content is not None:
            self.check_files(content)
        return summary

    def check_files(self, content: dict[str, Any]) -> None:
        """Refuse files that are not those of the run; call this once they are read, in case one was replaced."""
        if altered := self._altered(content):
            raise RunError(
                f"{self.folder / altered[0]}: the file is not the one that the run has written: it was altered, "
                "replaced or removed; fit the run again"
            )

    def _altered(self, content: dict[str, Any]) -> list[str]:
        files = {name: noted for name, noted in content["files"].items() if noted is not None}
        return [
            name
            for name, noted in files.items()
            if not (self.folder / name).is_file() or sha256(self.folder / name) != noted
        ]

    def _may_write(self, name: str) -> bool:
        folder, _, file = name.rpartition("/")
        return name in FILES or (folder == self.model.name and WEIGHTS.fullmatch(file) is not None)

    def _remove(self, names: Iterable[str]) -> None:
        for name in names:
            path = self.folder / name
            remove_drafts(path)
            path.unlink(missing_ok=True)
        remove_empty([self.model])

    def _remove_checkpoint(self) -> None:
        from unbag.training.checkpoints import remove_checkpoints  # noqa: PLC0415 (torch is slow to import)

        remove_checkpoints(self.checkpoint)

    def _refusal(self, why: str) -> Exception:
        return RunError(f"{self.head}: {why}; fit the run again, into another folder")

    def _write(self, status: str, plan: dict[str, Any], inputs: dict[str, Any], files: dict[str, str | None]) -> None:
        content = {
            "format": FORMAT,
            "status": status,
            "plan": plan,
            "inputs": inputs,
            "files": files,
            "versions": versions("pyarrow"),
            "date": date(),
        }
        content = json.loads(json.dumps(content))  # as it will be read
        write_atomic(self.head, json.dumps({**content, "sha256": _digest(content)}, indent=1).encode())


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _differences(old: dict[str, Any], new: dict[str, Any]) -> str | None:
    """Name the first setting in which two plans differ."""
    old, new = ({**plan, **plan["training"]} for plan in (old, new))
    for name in sorted({*old, *new} - {"training", "devices", "nodes"}):  # any number of processes goes on
        if old.get(name) != new.get(name):
            what = {"sources": "file of observations"}.get(name, name)
            return f"{what} ({_short(old.get(name))} there, {_short(new.get(name))} now)"
    return None


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) < 60 else f"{text[:57]}..."
