"""From the arguments of ``fit`` to a problem and to what checks receive: rows, sets of observations, classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unbag._utils.checks import check_choice, check_device
from unbag.aggregates.class_shares import ClassShares, read_class_shares
from unbag.aggregates.symmetry import Symmetry, find_symmetry
from unbag.data.bags import join_bags
from unbag.data.frames import fit_frame, read_frame
from unbag.data.labels import Categorical
from unbag.data.row_source import Rows, SparseRows, Table, row_shape, select_rows, transform_rows
from unbag.data.scaling import Scaling, fit_scaling
from unbag.diagnostics import Context
from unbag.diagnostics.shift import describe_features
from unbag.ensemble import Align
from unbag.estimators.class_names import match_classes
from unbag.estimators.inputs import RawObservations, choose_classes, observes_bags, read_rows, read_sets
from unbag.learners import Problem
from unbag.training import Observations
from unbag.training.group_subsets import excerpt

MAX_DEVIATIONS = 8.0
"""Scaled values are clipped to so many standard deviations: a single outlier would dominate linear models."""


@dataclass(frozen=True, eq=False)
class TrainingData:
    """The validated arguments of ``fit``."""

    rows: Rows  # all rows as numbers, unscaled
    raw_sets: list[RawObservations]
    observations: list[Observations]  # the sets that the caller passed, and known class shares as a further set
    classes: np.ndarray
    class_shares: ClassShares | None
    symmetry: Symmetry  # permutations of the classes that leave the observations unchanged
    subjects: Tensor | None

    @classmethod
    def read(  # noqa: PLR0917 (the arguments of fit)
        cls, estimator: Any, X: Any, y: Any, groups: Any, weights: tuple[Any, Any], subjects: Any, seed: int
    ) -> TrainingData:
        """Validate the arguments of ``fit``; sets ``n_features_in_`` and what else describes columns."""
        check_device(estimator.device)
        if groups is None and observes_bags(estimator.aggregate, X, y):
            X, groups = join_bags(X)
        table = read_frame(X)
        rows: Any = read_rows(estimator, X, reset=True) if table is None else table
        arguments: dict[str, Any] = {"sample_weight": weights[0], "group_weights": weights[1]}
        arguments |= {"sampling": estimator.sampling, "classes": estimator.classes}
        raw_sets = read_sets(estimator.aggregate, y, groups, len(rows), **arguments)
        if table is not None:
            rows = fit_frame(estimator, X, table, [s.groups for s in raw_sets])
        classes = choose_classes(estimator.classes, estimator.n_classes, raw_sets, estimator.class_shares)
        observations = [s.observations(classes) for s in raw_sets]
        symmetry = find_symmetry([s.counting() for s in observations])
        shares = None
        if estimator.class_shares is not None:
            shares = read_class_shares(estimator.class_shares, classes)
            most = max(len(s.groups) for s in observations)
            observations.append(shares.as_observations(len(rows), most, seed))
        return cls(rows, raw_sets, observations, classes, shares, symmetry, _read_subjects(subjects, len(rows)))

    @property
    def caller_sets(self) -> list[Observations]:
        """Return the sets that the caller passed, without those of known class shares."""
        return self.observations[: len(self.raw_sets)]

    @property
    def shares_identify_classes(self) -> bool:
        """Return whether known class shares distinguish classes that the observations leave unnamed."""
        return self.class_shares is not None and self.class_shares.identify_classes(self.symmetry, len(self.rows))

    @property
    def align(self) -> Align | None:
        """Return what matches the classes of two models where the observations leave classes unnamed."""
        return None if self.symmetry == "none" else partial(_align_classes, symmetry=self.symmetry)

    def context(self, columns: Sequence[str] | None) -> Context:
        """Return what checks of observations and rows receive."""
        sets, raw, shares = [s.counting() for s in self.caller_sets], self.raw_sets, self.class_shares
        # Rows of groups of weight zero were left out on purpose, and do not count as rows in no group.
        in_groups, counted = (len(torch.cat([s.groups.members for s in c]).unique()) for c in (self.caller_sets, sets))
        return Context(
            sets,
            self.classes.tolist(),
            labels=[s.labels is not None for s in raw],
            sampling=[s.sampling for s in raw],
            class_shares=None if shares is None else shares.shares,
            classes_named=self.symmetry == "none" or self.shares_identify_classes,
            borders_known=shares is not None or any(s.aggregate.has_class_columns for s in raw),
            n_rows=len(self.rows) - (in_groups - counted),
            columns=columns,
            subjects=self.subjects,
        )

    def fit_scaling(self, name: str) -> Scaling:
        """Fit the scaling on the rows that belong to groups."""
        check_choice("scaling", name, ("auto", "none", "standard", "table"))
        if name == "auto":
            name = "standard" if len(row_shape(self.rows)) == 1 else "table"
        members = torch.cat([s.counting().groups.members for s in self.caller_sets]).unique()
        return fit_scaling(select_rows(self.rows, members), name)  # type: ignore[arg-type]  # the name was checked

    def problem(self, scaling: Scaling) -> Problem:
        """Return what learners receive."""
        rows, sets = transform_rows(self.rows, partial(scale, scaling)), [s.for_training() for s in self.observations]
        return Problem.create(rows, sets, Categorical(len(self.classes)), self.subjects, self.symmetry)

    def feature_statistics(self) -> dict[str, list[float]] | None:
        """Return statistics of the columns of a table; None for images."""
        if len(row_shape(self.rows)) != 1:
            return None
        table, sets = excerpt(self.rows, self.caller_sets)
        return describe_features(table.numpy(force=True), [s.groups for s in sets])


def _align_classes(first: Tensor, second: Tensor, symmetry: Symmetry) -> np.ndarray:
    """Return which output of the second model matches each class of the first, from probabilities of the same rows."""
    return match_classes((first.T @ second).numpy(), symmetry)


def scale(scaling: Scaling, rows: Table) -> Table:
    """Scale rows and clip outliers."""
    if isinstance(rows, SparseRows):
        return rows.scale(scaling.shift, scaling.factor, MAX_DEVIATIONS)
    return scaling(rows).float().clamp_(-MAX_DEVIATIONS, MAX_DEVIATIONS)


def _read_subjects(subjects: Any, n_rows: int) -> Tensor | None:
    """Return the number of the subject of each row."""
    if subjects is None:
        return None
    if (values := np.asarray(subjects)).shape != (n_rows,):
        raise ValueError(f"subjects must have one entry per row of X, shape ({n_rows},); got shape {values.shape}")
    return torch.from_numpy(np.unique(values, return_inverse=True)[1])
