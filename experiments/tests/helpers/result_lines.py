"""Lines of results as the runner writes them, for the tests that read them."""

from __future__ import annotations

from unbag_experiments import golden
from unbag_experiments.plan import Cell


def trial(cell: Cell, seed: int = 1000, accuracy: float = 0.8, **changes: object) -> dict[str, object]:
    """Return a finished trial of a cell under the present plan; ``groups`` is the accuracy by that selection."""
    by_groups = changes.pop("groups", accuracy)
    line = {name: getattr(cell, name) for name in ("table", "problem", "dataset", "method", "protocol")}
    line |= {
        "n_groups": cell.n_groups or 552,
        "seed": seed,
        "by": {"labels": {"accuracy": accuracy}, "groups": {"accuracy": by_groups}},
        "rows": {"train": 300, "validation": 100, "test": 100},
        "plan": cell.digest,
        "golden": golden.digest(cell),
        "seconds": 7200.0,
        "hardware": "NVIDIA H200",
        "versions": {"torch": "2.11.0", "python": "3.12.1"},
        "commit": "0123abc",
        "date": "2026-01-31T12:00:00+00:00",
    }
    return line | changes
