"""One row of a table of results."""

from __future__ import annotations

from typing import Any

Result = dict[str, Any]


def faster(ours: float, reference: float, name: str, target: float) -> Result:
    """Judge milliseconds by how many times faster than the reference they are.

    Examples
    --------
    >>> faster(1.0, 12.0, "enumeration", target=10.0)["met"]
    True
    """
    ratio = reference / ours
    return row(ours, reference, name, ratio, target=f">= {target:g}x faster", met=ratio >= target)


def no_slower(ours: float, reference: float, name: str, target: float) -> Result:
    """Judge milliseconds by how many times the reference they take.

    Examples
    --------
    >>> no_slower(3.0, 1.0, "cross entropy", target=6.0)["ratio"]
    3.0
    """
    ratio = ours / reference
    return row(ours, reference, name, ratio, target=f"<= {target:g}x its time", met=ratio <= target)


def row(
    ours: float,
    reference: float,
    name: str,
    ratio: float,
    *,
    target: str | None = None,
    met: bool | None = None,
    note: str = "",
) -> Result:
    """Put a result together."""
    return {
        "unbag_ms": ours,
        "reference": name,
        "reference_ms": reference,
        "ratio": ratio,
        "target": target,
        "met": met,
        "note": note,
    }
