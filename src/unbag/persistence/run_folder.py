"""The folder of a run of ``unbag fit``: its files, a record of them with their digests, and a lock."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

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
from unbag.persistence.strict_json import compute_digest, parse_object

FORMAT = 4
SUMMARY, REPORT = "summary.json", "report.html"
FILES = (SUMMARY, "model/model.json", REPORT)
"""Files of a run besides its record, the arrays of the model, and checkpoints while it is not finished."""
FileName = Annotated[
    str, Field(pattern=r"^(summary\.json|report\.html|model/(model\.json|weights-[0-9a-f]{16}\.safetensors))$")
]


class Record(BaseModel):
    """The schema of the record of a run: its plan, its inputs, its state, and the digests of its files."""

    model_config = ConfigDict(strict=True, extra="forbid")

    format: Literal[4]
    status: Literal["finished", "unfinished"]
    versions: dict[str, str]
    date: str
    plan: dict[str, Any]
    inputs: dict[str, Any]
    files: dict[FileName, str | None]


class RunError(ValueError):
    """A run that cannot be used: not finished, damaged, altered, or of another version."""


class Run:
    """A folder in which a run is kept.

    ``head`` is the record of the run: its plan, its inputs and its state. ``model`` is the folder of the saved
    classifier, ``checkpoint`` that of a run that is not finished, ``summary`` the content of the report, ``report`` its
    default file, and ``rows`` the default folder of rows that stay on disk, beside the run so that others can use it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.head, self.model, self.checkpoint = folder / "run.json", folder / "model", folder / "checkpoint"
        self.summary, self.report = folder / SUMMARY, folder / REPORT
        self.rows = folder.with_name(f"{folder.name}-rows")

    @property
    def inputs(self) -> list[Path]:
        """The files that commands read, which must not be overwritten; of a demonstration, its summary alone."""
        if not self.head.exists():
            return [self.summary]
        return [self.head, self.folder / LOCK, *(self.folder / name for name in self.read()["files"] if name != REPORT)]

    @contextmanager
    def opened(self, plan: dict[str, Any], *, force: bool) -> Iterator[bool]:
        """Lock the folder to run a plan, and tell whether it holds an unfinished run of the same plan.

        If nothing is started, the folder is left as it was. ``force`` starts a new run, replacing earlier files.
        """
        lock = self.folder / LOCK
        self._read_earlier()  # a folder of other files is refused before anything is made in it
        new = not lock.exists()
        made = [path for path in (self.folder, *self.folder.parents) if not path.exists()]
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            with locked(self.folder):
                try:
                    yield self._can_resume(plan, force=force)
                finally:
                    if new and not self.head.exists():
                        with suppress(OSError):  # some systems cannot remove an open file; it does no harm
                            lock.unlink()
        finally:
            remove_empty(made)

    @contextmanager
    def training(self, plan: dict[str, Any], inputs: dict[str, Any], *, resumed: bool) -> Iterator[None]:
        """Mark the run as unfinished during training, and then remove the files of an earlier one.

        If training fails before a checkpoint was saved, the folder is left as it was.
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
        for name in self.read()["files"]:
            remove_drafts(self.folder / name)
            (self.folder / name).unlink(missing_ok=True)
        remove_empty([self.model])

    def finish(self, plan: dict[str, Any], inputs: dict[str, Any]) -> None:
        """Record that the run is finished, with the digest of each file, and remove its checkpoint."""
        arrays = [path for path in self.model.iterdir() if WEIGHTS.fullmatch(path.name)]
        written = [self.summary, self.model / "model.json", *arrays]
        digests = {path.relative_to(self.folder).as_posix(): sha256(path) for path in written}
        self._write("finished", plan, inputs, {**digests, REPORT: None})
        self._remove_checkpoint()

    def read(self) -> dict[str, Any]:
        """Return the record of the run, or raise an error for one that no run of this version has written."""
        if not self.head.exists():
            raise FileNotFoundError(f"{self.folder} has no run, because {self.head.name} is missing; run unbag fit")
        reason = "the file was altered after it was written, is damaged, or is no run of unbag"
        try:
            content = parse_object(read_regular(self.head, MAX_JSON_BYTES))
            if content["format"] != FORMAT:
                reason = "the run was saved by another version of unbag, such as 0.2.0"
            elif content.pop("sha256") == compute_digest(content):
                Record.model_validate(content)
                return content
        except (KeyError, ValueError) as error:
            reason += f" ({str(error).splitlines()[0]})"
        raise RunError(f"{self.head}: {reason}; repeat the run with unbag fit in another folder")

    def read_finished(self) -> dict[str, Any]:
        """Return the record of a finished run."""
        content = self.read()
        if content["status"] != "finished":
            raise RunError(f"the run in {self.folder} is not finished; resume it by the unbag fit that started it")
        return content

    def read_summary(self) -> dict[str, Any]:
        """Return the summary of a finished run, or of a demonstration, which has no record."""
        if not self.folder.is_dir():
            is_file = self.folder.exists()
            state, kind = ("is a file", NotADirectoryError) if is_file else ("does not exist", FileNotFoundError)
            raise kind(f"{self.folder} {state}; name the folder of a run, the --out of unbag fit")
        content = self.read_finished() if self.head.exists() else None
        if not self.summary.exists():
            raise FileNotFoundError(
                f"{self.folder} has no run, because {SUMMARY} is missing; name the --out of unbag fit"
            )
        try:
            summary = parse_object(read_regular(self.summary, MAX_JSON_BYTES))
        except ValueError as error:
            raise RunError(f"{self.summary} is damaged: {error}; repeat the run with unbag fit --force") from error
        if content is not None:
            self.check_files(content)
        return summary

    def check_files(self, content: dict[str, Any]) -> None:
        """Raise an error if files of the run were replaced; to be called after they were read."""
        if altered := self._find_altered(content):
            raise RunError(
                f"{self.folder / altered[0]} is not the file that the run has written: it was altered, replaced or "
                "removed; repeat the run"
            )

    def _read_earlier(self) -> dict[str, Any] | None:
        """Return the record of an earlier run in the folder, or None; refuse a folder with other files."""
        if self.folder.exists() and not self.folder.is_dir():
            raise FileExistsError(f"{self.folder} is a file; name a folder for the run")
        if self.head.exists():
            return self.read()
        ignored = {LOCK, *(path.name for path in drafts(self.head))}
        if self.folder.exists() and {path.name for path in self.folder.iterdir()} - ignored:
            raise FileExistsError(f"{self.folder} has other files and no run; name another folder with --out")
        return None

    def _can_resume(self, plan: dict[str, Any], *, force: bool) -> bool:
        """Return whether the folder has an unfinished run of the same plan; refuse to overwrite any other."""
        content, error = self._read_earlier(), None
        if content is None:
            return False
        if force:
            if altered := [name for name in self._find_altered(content) if (self.folder / name).exists()]:
                error = f"{self.folder / altered[0]} was altered since the run wrote it; move it elsewhere, or name"
                error += " another folder with --out"
        elif content["status"] == "finished":
            error = f"{self.folder} has a finished run; name another folder with --out, or replace the run with --force"
        elif (difference := find_difference(content["plan"], json.loads(json.dumps(plan)))) is not None:
            error = f"{self.folder} has an unfinished run with another {difference}; use the same to resume it, name "
            error += "another folder with --out, or start again with --force"
        if error is not None:
            raise FileExistsError(error)
        return not force

    def _find_altered(self, content: dict[str, Any]) -> list[str]:
        paths = {name: self.folder / name for name, digest in content["files"].items() if digest is not None}
        return [n for n, path in paths.items() if not path.is_file() or sha256(path) != content["files"][n]]

    def _remove_checkpoint(self) -> None:
        from unbag.training.checkpoint import remove_checkpoints  # noqa: PLC0415 (torch is slow to import)

        remove_checkpoints(self.checkpoint)

    def _write(self, status: str, plan: dict[str, Any], inputs: dict[str, Any], files: dict[str, str | None]) -> None:
        content = {"format": FORMAT, "status": status, "plan": plan, "inputs": inputs, "files": files}
        content = json.loads(json.dumps({**content, "versions": versions("pyarrow"), "date": date()}))
        write_atomic(self.head, json.dumps({**content, "sha256": compute_digest(content)}, indent=1).encode())


def find_difference(old: dict[str, Any], new: dict[str, Any]) -> str | None:
    """Describe the first setting in which two plans differ."""
    old, new = ({**plan, **plan["training"], **(plan["training"]["network"] or {})} for plan in (old, new))
    ignored = {"training", "network", "devices", "nodes", "jobs"}  # any number of processes can resume
    for name in sorted({*old, *new} - ignored):
        if old.get(name) != new.get(name):
            texts = [json.dumps(plan.get(name)) for plan in (old, new)]
            before, now = (text if len(text) < 60 else f"{text[:57]}..." for text in texts)
            return f"{'file of observations' if name == 'sources' else name} ({before} there, {now} now)"
    return None
