"""Tables of published counts: the TOML file beside a table that describes it, and the protection of exact counts.

``wards.csv`` has ``wards.csv.published.toml``, whose ``sha256`` is the digest of the table. A statement is only used
for tables with this digest: a table that was replaced or edited is never read by the statement of another table. Copies
in the same folder, and links to a table with a statement, are read by it.
"""

import json
import os
import tomllib
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from unbag._utils.files import draft_file, full_disk_named, read_regular, remove_drafts, sha256, sync, write_atomic
from unbag._utils.problems import Problem, TableError, fail, failing, in_rows, list_some, raise_errors
from unbag.data.columns import Table
from unbag.noise import KINDS, Gaussian, Noise, read_noise
from unbag.tables.cells import NUMBER, read_cells
from unbag.tables.files import check_output, open_table, write_draft
from unbag.tables.options import Protection, Source
from unbag.tables.roles import GROUP, SIZE, find_column

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


def protect_counts(counts: Path, out: Path, how: Protection, *, force: bool = False) -> tuple[int, list[Problem]]:
    """Write a table of exact counts with noise, rounded or suppressed, and beside it what ``fit`` needs to use it.

    ``counts`` has one row per group: its id, and a whole number for each class. Sizes are left out unless they are
    kept. ``force`` replaces a table that was protected before.
    """
    _check_protection(how)
    check_output(out, [counts])
    if out.exists() and not force:
        message = "this file exists already; counts that are published a second time with new noise reveal more than "
        raise fail(f"{message}epsilon allows; if the first table was never published, add --force", str(out))
    with open_table(counts) as file:
        table = file.read(as_text=file.names)
    classes = how.classes or ()
    size = find_column(table.names, SIZE, written=None, file=table.file, option="--classes", taken=classes)
    group = _find_group(table, how.group, [name for name in table.names if name not in (size, *classes)])
    names = classes or tuple(name for name in table.names if name not in (group, size))
    columns, options, promise = _protect(_read_exact(table, names), how)
    others = [name for name in table.names if name not in (group, size, *names)]
    notes = [Problem("note", "this column is left out", table.file, None, name) for name in others]
    kept = {group: table.column(group)}
    if size is not None and how.keep_sizes:
        promise += " Sizes are as they were."
        kept[size] = table.column(size)
    elif size is not None:
        message = "sizes are left out; to write them as they are, add --keep-sizes"
        notes.append(Problem("note", message, table.file, None, size))
    protected = pa.table({**kept, **dict(zip(names, columns, strict=True))})
    path = publish(out, lambda draft: write_draft(draft, [protected], out.suffix), options, promise)
    advice = f"{path.name} describes it to check and fit; copy or move both files together"
    return len(table), [*notes, Problem("note", f"{promise} {advice}", str(out))]


def _check_protection(how: Protection) -> None:
    """Refuse options that contradict each other or are out of range."""
    ways = {"--epsilon": how.epsilon, "--round-to": how.round_to, "--suppress-below": how.suppress_below}
    passed = [name for name, value in ways.items() if value is not None]
    if not passed:
        raise fail(f"choose how to protect the counts, with {', '.join(ways)}")
    for name, value in (*ways.items(), ("--sensitivity", how.sensitivity)):
        if value is not None and not (isfinite(value) and value > 0):
            raise fail(f"{name} must be a positive number, got {value:g}")
    if how.epsilon is not None and len(passed) > 1:
        raise fail(f"--epsilon and {passed[1]} cannot be combined: noise protects by itself; choose one of them")
    if how.epsilon is not None and not how.epsilon * MIN_SCALE <= how.sensitivity <= how.epsilon * MAX_SCALE:
        least, most = how.sensitivity / MAX_SCALE, how.sensitivity / MIN_SCALE
        raise fail(f"--epsilon must be {least:g} to {most:g} with this --sensitivity, got {how.epsilon:g}")


def _find_group(table: Table, written: str | None, free: Sequence[str]) -> str:
    """Return the column of ids: by its name, or the only one of those that are free, or of these without numbers.

    A column of numbers is read as counts unless an option names it, because ids are not protected.
    """
    column = find_column(table.names, GROUP, written=written, file=table.file, option="--group")
    if column is not None:
        return column
    words = [name for name in free if not (read_cells(table.column(name)).kind == NUMBER).any()]
    for only in (free, words):
        if len(only) == 1:
            return only[0]
    message = f"no column can be identified as that of group ids; the columns are {list_some(table.names)}"
    raise fail(f"{message}; name it with --group, or the columns of counts with --classes", table.file)


def _read_exact(table: Table, names: tuple[str, ...]) -> np.ndarray:
    """Return exact counts, (groups, classes), or name the cells that hold none."""
    counts: list[np.ndarray] = []
    problems: list[Problem] = []
    for name in names:
        if name not in table.names:
            raise fail(f"there is no column {name!r}, which --classes names", table.file)
        cells, texts = read_cells(table.column(name)), table.column(name).to_pylist()
        wrong = (cells.kind != NUMBER) | (cells.low < 0) | (cells.low != np.rint(cells.low)) | cells.percent
        messages = [f"exact counts must be whole numbers of 0 or more, got {text!r}" for text in texts]
        problems += in_rows(wrong, messages.__getitem__, table.file, name)
        counts.append(np.where(wrong, 0, cells.low))
    raise_errors(problems)
    return np.stack(counts, 1).astype(np.int64)


def _protect(counts: np.ndarray, how: Protection) -> tuple[list[pa.Array], dict[str, Any], str]:
    """Return protected columns, the options by which ``fit`` reads them, and a sentence on the protection."""
    if how.epsilon is not None:
        values, scale = add_noise(counts, how.epsilon, how.sensitivity)
        person = f"a person who changes counts by {how.sensitivity} in all"
        promise = f"Differential privacy with epsilon {how.epsilon:g}, for {person}."
        return [pa.array(column) for column in values.T], {"noise": f"geometric:{scale!r}"}, promise
    options, values, done = {}, counts, []
    if how.round_to is not None:
        options["rounded_to"] = how.round_to
        values = (counts + how.round_to // 2) // how.round_to * how.round_to
        done.append(f"rounded to {how.round_to}")
    if how.suppress_below is not None:
        done.append(f"written as <{how.suppress_below} where they are below it")
    few = counts < (how.suppress_below or 0)
    texts = np.where(few, f"<{how.suppress_below}", values.astype(str)) if few.any() else values
    promise = f"Counts are {' and '.join(done)}; this does not guarantee privacy."
    return [pa.array(column.tolist()) for column in texts.T], options, promise


def add_noise(counts: np.ndarray, epsilon: float, sensitivity: int) -> tuple[np.ndarray, float]:
    """Add noise of OpenDP to counts, which is drawn again each time, and return its scale."""
    try:
        import opendp.prelude as dp  # noqa: PLC0415 (an extra)
    except ImportError:
        message = "noise with a guarantee of privacy comes from OpenDP, which is not installed"
        raise fail(f'{message}; install it with: pip install "unbag[private]"') from None
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int)
    scale = dp.binary_search_param(
        lambda scale: dp.m.make_laplace(*space, scale=scale), d_in=sensitivity, d_out=float(epsilon), T=float
    )
    noisy = dp.m.make_laplace(*space, scale=scale)(counts.reshape(-1).tolist())
    return np.array(noisy, dtype=np.int64).reshape(counts.shape), float(scale)
