"""The folder of a run: what was asked for, how far it is, and what has been learned."""

from __future__ import annotations

import json
import platform
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from unbag.files import remove_drafts, write_whole
from unbag.tables.plan import Plan
from unbag.tables.problems import fail

FORMAT = 1


@dataclass(frozen=True)
class Run:
    """A folder in which a run is kept.

    Parameters
    ----------
    folder
        Made when the run starts.
    """

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
    def preparation(self) -> Path:
        """How features are made of columns."""
        return self.folder / "preparation.json"

    @property
    def checkpoint(self) -> Path:
        """Where training is saved while it goes on."""
        return self.folder / "checkpoint"

    @property
    def summary(self) -> Path:
        """What the report shows."""
        return self.folder / "summary.json"

    @property
    def report(self) -> Path:
        """The report."""
        return self.folder / "report.html"

    def check_free(self, plan: Plan, *, force: bool) -> bool:
        """Return whether there is an unfinished run of the same plan to go on with; refuse to overwrite any other.

        Parameters
        ----------
        plan
            What is asked for.
        force
            Start anew, whatever the folder holds of earlier runs.
        """
        if self.folder.exists() and not self.folder.is_dir():
            raise FileExistsError(f"{self.folder} is a file; name a folder for the run")
        if not self.folder.exists() or not any(self.folder.iterdir()):
            return False
        if not self.head.exists():
            raise FileExistsError(f"{self.folder} holds other files and no run; name another folder with --out")
        if force:
            return False
        content = self.read()
        if content["status"] == "finished":
            raise FileExistsError(
                f"{self.folder} holds a finished run; name another folder with --out, or replace it with --force"
            )
        if (differ := _differences(content["plan"], json.loads(json.dumps(plan.as_dict())))) is not None:
            raise FileExistsError(
                f"{self.folder} holds an unfinished run with another {differ}; ask for the same to go on with it, name "
                "another folder with --out, or start anew with --force"
            )
        return True

    def start(self, plan: Plan, inputs: dict[str, Any], *, resumed: bool) -> None:
        """Note what is going to be done; what an earlier run has left is removed unless it is gone on with."""
        self.folder.mkdir(parents=True, exist_ok=True)
        remove_drafts(self.head)
        if not resumed:
            self._write("unfinished", plan, inputs)
            for folder in (self.model, self.checkpoint):
                shutil.rmtree(folder, ignore_errors=True)
            for file in (self.preparation, self.summary, self.report):
                file.unlink(missing_ok=True)

    def finish(self, plan: Plan, inputs: dict[str, Any]) -> None:
        """Note that all is done, and remove what was only kept to go on from."""
        self._write("finished", plan, inputs)
        shutil.rmtree(self.checkpoint, ignore_errors=True)

    def read(self) -> dict[str, Any]:
        """Return what the run notes of itself."""
        if not self.head.exists():
            raise FileNotFoundError(
                f"there is no run in {self.folder}: {self.head.name} is missing; make one with unbag fit"
            )
        try:
            content = json.loads(self.head.read_bytes())
            known = content["format"] == FORMAT and content["status"] in ("finished", "unfinished")
        except (ValueError, KeyError, TypeError) as error:
            raise fail(f"the file is cut short or was altered: {error!r}; fit the run again", str(self.head)) from error
        if not known:
            raise fail("the file was written by another version of unbag; fit the run again", str(self.head))
        return dict(content)

    def read_finished(self) -> dict[str, Any]:
        """Return the same of a run that can be used; refuse one that is not finished."""
        content = self.read()
        if content["status"] != "finished":
            raise fail(f"the run in {self.folder} is not finished; go on with it by the same unbag fit that began it")
        return content

    def _write(self, status: str, plan: Plan, inputs: dict[str, Any]) -> None:
        content = {
            "format": FORMAT,
            "status": status,
            "plan": plan.as_dict(),
            "inputs": inputs,
            "versions": {
                "python": platform.python_version(),
                **{name: version(name) for name in ("unbag", "torch", "numpy", "pyarrow")},
            },
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        write_whole(self.head, json.dumps(content, indent=1).encode())


def _differences(old: dict[str, Any], new: dict[str, Any]) -> str | None:
    """Name the first setting in which two plans differ."""
    old, new = ({**plan, **plan["training"]} for plan in (old, new))
    for name in sorted({*old, *new} - {"training"}):
        if old.get(name) != new.get(name):
            what = {"sources": "file of observations"}.get(name, name)
            return f"{what} ({_short(old.get(name))} there, {_short(new.get(name))} now)"
    return None


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) < 60 else f"{text[:57]}..."
