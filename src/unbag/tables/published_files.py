"""How the counts of a table were published: by options, or by a small TOML file beside the table.

``wards.csv`` has ``wards.csv.published.toml``, whose ``sha256`` is the digest of the table. A statement is only used
for tables with this digest: a table that was replaced or edited is never read by the statement of another table. Copies
in the same folder, and links to a table with a statement, are read by it.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable
from contextlib import suppress
from math import isfinite
from pathlib import Path
from typing import Any

from unbag._utils.files import draft_file, full_disk_named, read_regular, remove_drafts, sha256, sync, write_atomic
from unbag._utils.problems import TableError, fail, failing
from unbag.noise import KINDS, Gaussian, Noise, read_noise
from unbag.tables.options import Source

KEYS = ("unit", "decimal", "noise", "noise_scale", "rounded_to", "suppressed_below")
"""File options that a statement may contain."""
MIN_SCALE, MAX_SCALE = 1e-6, 1e9
"""Noise of a smaller scale changes no count, and noise of a larger scale leaves no information in any."""
MAX_TOML_BYTES = 2**20
DIGEST, REPLACED = "sha256", "replaced"


def sidecar_path(counts: Path) -> Path:
    """Return the path of the statement that belongs to a table."""
    return counts.with_name(f"{counts.name}.published.toml")


def read_published(counts: Path, named: Path | None = None) -> dict[str, Any]:
    """Return the file options by which a table was published; an empty dict if no statement belongs to it.

    A statement that the caller names applies to any table if it has no digest. Otherwise the statement beside the
    table is used, which must have the digest of the table.
    """
    path = named or sidecar_path(counts)
    if named is None and not path.exists():
        _raise_if_unbound(counts)
        return _find_copied(counts)
    content = _load(path)
    if named is not None and DIGEST not in content:
        return _options(content)
    if counts.is_dir():
        raise fail("the table is a folder, which has no digest; name this file with --published", str(path))
    digest = sha256(counts)
    if (statement := _find_statement(content, digest)) is not None:
        return _options(statement)
    message = f"{counts.name} has changed since this file was written for it"
    advice = "restore the table, or remove this file and describe the table with the options for published counts"
    if DIGEST not in content:
        message = "the digest of the table that this file describes is missing"
        advice = f'if it describes {counts.name} as it is now, add the line {DIGEST} = "{digest}"'
        advice += ", or name the file with --published"
    raise fail(f"{message}; {advice}", str(path))


def publish(counts: Path, write: Callable[[Path], None], options: dict[str, Any], promise: str) -> Path:
    """Write a table by a function and a statement of its file options, and return the path of the statement.

    The table that is in place always has its statement: the new statement, which contains that of the old table, is
    there before the new table is. ``promise`` is a sentence for people who open the statement.
    """
    path = sidecar_path(counts)
    old = _find_statement(_load(path), sha256(counts)) if path.exists() and counts.exists() else None
    for file in (counts, path):
        remove_drafts(file)
    with full_disk_named(counts), draft_file(counts) as table:
        write(table)
        content = f"# How {counts.name} was published; unbag check and fit read this file.\n# {promise}\n"
        content += _format(statement := {DIGEST: sha256(table), **options})
        content += "" if old in (None, statement) else f"\n# The table that it replaced:\n[{REPLACED}]\n{_format(old)}"
        sync(table)
        write_atomic(path, content.encode())
        os.replace(table, counts)
    return path


def _raise_if_unbound(counts: Path) -> None:
    """Refuse a statement that is named like those of version 0.2.0, by which tables of one stem share a file."""
    stem = counts.name.removesuffix(".gz").rpartition(".")[0]
    path = counts.with_name(f"{stem}.published.toml")
    if stem and path.exists():
        line = f'rename it to {sidecar_path(counts).name} and add the line {DIGEST} = "{sha256(counts)}"'
        advice = f"if it describes {counts.name}, {line}, or name it with --published; otherwise move it elsewhere"
        raise fail(f"the file may describe any table whose name begins with {stem}; {advice}", str(path))


def _find_copied(counts: Path) -> dict[str, Any]:
    """Return the file options of a table of the same content, beside the table or beside the file that it links to."""
    folders = {counts.absolute().parent, counts.resolve().parent}
    paths = [path for folder in folders for path in sorted(folder.glob("*.published.toml"))]
    if paths and counts.is_file():
        digest = sha256(counts)
        for path in paths:
            with suppress(TableError, OSError):  # statements of other tables may be damaged
                if (statement := _find_statement(_load(path), digest)) is not None:
                    return _options(statement)
    return {}


def _find_statement(content: dict[str, Any], digest: str) -> dict[str, Any] | None:
    """Return the statement about the table with a digest: that of the file, or the one that it replaced."""
    statements = (content, content.get(REPLACED, {}))
    return next((statement for statement in statements if statement.get(DIGEST) == digest), None)


def _options(statement: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in statement.items() if name in KEYS}


def _format(statement: dict[str, Any]) -> str:
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in statement.items() if name != REPLACED)


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file."""
    try:
        return tomllib.loads(read_regular(path, MAX_TOML_BYTES).decode())
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no file {path}; check the name") from None
    except ValueError as error:
        raise fail(f"the file is not valid TOML: {error}", str(path)) from error


def _load(path: Path) -> dict[str, Any]:
    content = read_toml(path)
    if not isinstance(content.get(REPLACED, {}), dict):
        raise fail(f"{REPLACED} must be a table of settings", str(path))
    if unknown := [name for name in content if name not in (*KEYS, DIGEST, REPLACED)]:
        raise fail(f"there is no setting {unknown[0]!r} of published counts; choose from {', '.join(KEYS)}", str(path))
    return content


def check_published(source: Source) -> None:
    """Refuse options on published counts that contradict each other or are out of range."""
    file = str(source.file)
    for name in ("epsilon", "sensitivity", "rounded_to", "suppressed_below"):
        value = getattr(source, name)
        if value is not None and not (isfinite(value) and value > 0):
            raise fail(f"--{name.replace('_', '-')} must be a positive number, got {value:g}", file)
    options = {"--epsilon": source.epsilon, "--sensitivity": source.sensitivity, "--noise-scale": source.noise_scale}
    if source.noise is None:
        if passed := [name for name, value in options.items() if value]:
            raise fail(f"{passed[0]} applies to noise; name its kind with --noise {' or '.join(KINDS)}", file)
        return
    if source.rounded_to is not None or source.suppressed_below is not None:
        message = "--noise cannot be combined with --rounded-to or --suppressed-below"
        advice = "if the noise is much larger than the rounding, omit --rounded-to"
        raise fail(f"{message}; {advice}, and leave suppressed cells blank, which is unknown", file)
    name, _, scale = source.noise.partition(":")
    ways = [bool(scale), bool(source.noise_scale), source.epsilon is not None]
    if sum(ways) != 1 or name not in KINDS or (source.epsilon is None) != (source.sensitivity is None):
        with failing(file):
            read_noise(source.noise if scale else f"{name}:1")  # refuses an unknown name
        message = f"the scale of {name} noise must be given in one way: --noise {name}:2.5, --noise-scale COLUMN, or "
        advice = "--epsilon together with --sensitivity, by how much one person changes the counts"
        raise fail(f"{message}{advice} (1 where a person is counted in one cell alone)", file)
    if source.epsilon is not None and issubclass(KINDS[name], Gaussian):
        message = f"epsilon alone does not determine the scale of {name} noise"
        raise fail(f"{message}; give its standard deviation, as in --noise {name}:17", file)
    if not source.noise_scale:
        make_noise(source)


def make_noise(source: Source, scales: Any = None) -> Noise:
    """Return the noise that the options of a file describe; ``scales`` are those that its columns contain."""
    assert source.noise is not None
    if scales is not None:
        return KINDS[source.noise](scales)
    options = f"--noise {source.noise}"
    with failing(str(source.file)):
        if source.epsilon is None or source.sensitivity is None:
            scale = float(read_noise(source.noise).scale)
        else:
            options = f"--epsilon {source.epsilon:g} with --sensitivity {source.sensitivity:g}"
            scale = source.sensitivity / source.epsilon
    if not MIN_SCALE <= scale <= MAX_SCALE:
        why = (
            "changes no count: omit the options on noise" if scale < MIN_SCALE else "leaves no information in any count"
        )
        message = f"{options} is noise of scale {scale:g}, which {why}"
        raise fail(f"{message}; expected {MIN_SCALE:g} to {MAX_SCALE:g}", str(source.file))
    return KINDS[source.noise.partition(":")[0]](scale)
