"""A model of what a pass over a table costs, fitted to measurements of the scale benchmark by least squares.

The seconds of a task are a sum of terms, each a number that follows from the table and the processes, times a
coefficient that is fitted, none below zero, so that relative errors are small. Bytes of files, and messages between
processes, are no such terms: they take what the machine was measured to need for them.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import log2
from typing import Any

import numpy as np
from scipy.optimize import nnls

from unbag.training.architectures import MLP
from unbag_experiments.benchmarks.scale import MESSAGE
from unbag_experiments.benchmarks.scale_files import Shape

FITTED = ("read", "train from disk", "predict", "disaggregate")


@dataclass(frozen=True)
class Machine:
    """What a machine does at most."""

    bandwidth: float
    """Bytes of files a second, for all processes together."""
    latency: float = 0.0
    """Seconds of a short message of two processes."""
    network: float = float("inf")
    """Bytes of long messages a second."""

    @classmethod
    def measured(cls, results: Sequence[dict[str, Any]], *, cold: bool = False) -> Machine:
        """Return that of some results; cold: with files that are not in the memory of the system."""
        read = [one for one in results if (one["task"], one["processes"]) == ("read", 1)]
        most = max(read, key=lambda one: int(one["rows"]))
        bandwidth = 1e3 * most["bytes"] / most["cold_ms" if cold else "reference_ms"]
        if not (sent := [one for one in results if one["task"] == "send"]):
            return cls(bandwidth)
        latency = statistics.median(one["reference_ms"] for one in sent) / 1e3
        return cls(bandwidth, latency, 4e3 * MESSAGE / statistics.median(one["unbag_ms"] for one in sent))


@dataclass(frozen=True)
class Cost:
    """What a task costs: a coefficient for each term."""

    task: str
    coefficients: dict[str, float]

    @classmethod
    def fit(cls, task: str, results: Sequence[dict[str, Any]], machine: Machine) -> Cost:
        """Fit the coefficients to what was measured of a task."""
        own = [one for one in results if one["task"] == task]
        names = list(_terms(task, Shape(1), 1))
        seconds = np.array([one["unbag_ms"] / 1e3 for one in own])
        rows = [(shape_of(one), one["processes"]) for one in own]
        left = seconds - [_known(task, shape, n, machine) for shape, n in rows]
        terms = np.array([list(_terms(task, shape, n).values()) for shape, n in rows])
        coefficients, _ = nnls(terms / seconds[:, None], left / seconds)
        return cls(task, dict(zip(names, coefficients.tolist(), strict=True)))

    def seconds(self, shape: Shape, processes: int, machine: Machine) -> float:
        """Return how long the task takes on a table, with so many processes."""
        terms = _terms(self.task, shape, processes)
        known = _known(self.task, shape, processes, machine)
        return known + sum(self.coefficients[name] * value for name, value in terms.items())


def shape_of(result: dict[str, Any]) -> Shape:
    """Return the table of a result, with as many rows as were measured."""
    return Shape(**{one.name: result[one.name] for one in fields(Shape)} | {"rows": result["measured_rows"]})


def _terms(task: str, shape: Shape, processes: int) -> dict[str, float]:
    rows, each, several = shape.rows, shape.rows / processes, float(processes > 1)
    if task == "read":
        return {"once": 1.0, "once, if several": several, "row": each, "number": each * shape.columns}
    if task == "predict":
        shared = {"row": each, "number": each * shape.columns, "row and class": each * shape.classes}
        return {"once": 1.0, "once, if several": several, **shared}
    if task == "disaggregate":  # its last part is done by one process
        last: dict[str, float] = {"row, in one process": rows, "row and class, in one process": rows * shape.classes}
        last["row and doubling of its group, in one process"] = rows * log2(shape.group_size)
        return {"once": 1.0, "once, if several": several, "number": each * shape.columns, **last}
    of_groups = {"row and class": each * shape.classes, "row and doubling of its group": each * log2(shape.group_size)}
    return {"step": rows / shape.rows_of_step, "row": each, "number": each * shape.columns, **of_groups}


def _known(task: str, shape: Shape, processes: int, machine: Machine) -> float:
    of_files = 8 * shape.columns * shape.rows / machine.bandwidth
    if task != "train from disk":
        return of_files
    parameters = sum(one.numel() for one in MLP(shape.columns, shape.classes).parameters())
    message = log2(processes) * machine.latency + 8 * parameters * (1 - 1 / processes) / machine.network
    return of_files + shape.rows / shape.rows_of_step * message
