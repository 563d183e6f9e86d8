"""How the counts of a file were published, kept in a small TOML file beside it."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from unbag.files import write_atomic
from unbag.problems import fail

KEYS = ("unit", "decimal", "noise", "noise_scale", "rounded_to", "suppressed_below")
"""Options of a file of observations that can stand there."""


def beside(counts: Path) -> Path:
    """Return where it says how a file of counts was published.

    Examples
    --------
    >>> beside(Path("wards.csv")).name
    'wards.published.toml'
    """
    return counts.with_name(f"{counts.name.removesuffix('.gz').rpartition('.')[0] or counts.name}.published.toml")


def read_published(counts: Path, named: Path | None = None) -> dict[str, Any]:
    """Return the options that a file says of the counts in another; none where it is not named and not there."""
    path = named or beside(counts)
    if named is None and not path.exists():
        return {}
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no file {path}; check the name") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise fail(f"this is no TOML that can be read: {error}", str(path)) from error
    if strange := [name for name in content if name not in KEYS]:
        raise fail(f"there is no setting {strange[0]!r} of published counts; choose from {', '.join(KEYS)}", str(path))
    return content


def write_published(counts: Path, options: dict[str, Any], promise: str) -> Path:
    """Write how a file of counts was published, and what that promises, and return where."""
    path = beside(counts)
    lines = [f"# How {counts.name} was published; unbag check and fit read this file.", f"# {promise}"]
    lines += [f"{name} = {json.dumps(value)}" for name, value in options.items()]
    write_atomic(path, "\n".join([*lines, ""]).encode())
    return path
