"""What a fitted classifier says: of new rows, of rows in observed groups, and of groups."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted
from torch import Tensor

from unbag._utils.findings import Finding
from unbag._utils.parts import join
from unbag.aggregates import Aggregate
from unbag.aggregates.registry import find_aggregate
from unbag.aggregates.symmetry import Symmetry
from unbag.data.features import Preparation
from unbag.data.groups import Groups
from unbag.data.pooling import pool
from unbag.data.row_source import Rows, TakenRows, gather_rows
from unbag.data.targets import is_target
from unbag.diagnostics.shift import Moments, find_shift
from unbag.error_rates import with_rate, with_rates
from unbag.estimators.class_matching import choose_names, match_classes
from unbag.estimators.inputs import check_groups_fit, number_labels, read_labels, read_rows, read_sets
from unbag.families import Model, takes_missing
from unbag.out_of_fold import Estimate, mix, temper
from unbag.training import Observations

ROWS_AT_ONCE = MEMBERS_AT_ONCE = 65_536


class Predictor(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """The part of :class:`unbag.AggregateClassifier` that needs what fit has left: models, and names of classes."""

    __metadata_request__score = {"groups": UNUSED}  # noqa: RUF012 (scikit-learn's own way to say so)

    aggregate: Any
    model: Any
    sampling: Any
    classes_: np.ndarray
    models_: list[Model]
    orders_: list[np.ndarray]
    """For each model, which of its outputs each class is read from."""
    model_names_: list[str | None]
    """Of each model; None where it was made by the caller's own code."""
    model_weights_: list[float]
    """Of each model in the mean of their probabilities."""
    model_folds_: list[int] | None
    """Which fold of the groups each model has left out."""
    folds_: list[list[int]] | None
    held_out_: list[list[int] | None]
    model_temperatures_: list[float]
    """By which the logits of each model are divided."""
    temperature_: float
    """By which those of their mean are."""
    preparation_: Preparation | None
    estimated_accuracy_: Estimate | None
    feature_statistics_: dict[str, list[float]] | None
    symmetry_: Symmetry
    error_rates_: list[float | None]
    """Of each set, how often answers are wrong, where that was fitted."""
    bag_model_: Predictor | None
    """What tells the labels of bags from their pooled columns."""
    bag_weights_: list[float] | None
    """Log-odds of a bag: a constant, and the weights of what its members tell, and of what that model does."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = takes_missing(self.model)
        return tags

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each class for each row, ``(n, classes)``."""
        return self._log_probs(X).exp().numpy()

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Return the logarithms of the same, also of those too small to tell from zero."""
        return self._log_probs(X).numpy()

    def predict(self, X: Any) -> np.ndarray:
        """Return the most likely class of each row."""
        best = self._log_probs(X).argmax(1).numpy()
        return self.classes_[best]

    def disaggregate(self, X: Any, z: Any, groups: Any = None) -> Any:
        """Return the probability of each class for rows in observed groups, given what was observed of them.

        For label proportions, the probabilities of a group add up to its counts.

        Parameters
        ----------
        X
            Rows; those of fit, or others.
        z, groups
            As y and groups of fit; lists for a list of aggregates, each set by itself.

        Returns
        -------
        ndarray
            For a target, one line per row of X; with groups, one per membership, in the order of ``groups.members``.
            A list of them for a list of aggregates.
        """
        log_probs = self._log_probs(X)
        seen = self._observations(z, groups, len(log_probs))
        given = groups if isinstance(groups, list | tuple) else [groups] * len(seen)
        posteriors = []
        for one, own_groups in zip(seen, given, strict=True):
            posterior = posterior_of(one, log_probs)
            if own_groups is None:  # every row is in one group
                posterior = torch.empty_like(posterior).index_copy_(0, one.groups.members, posterior)
            posteriors.append(posterior.numpy())
        return posteriors if self._has_sets() else posteriors[0]

    def predict_groups(self, X: Any, groups: Any, z: Any = None) -> Any:
        """Return what would be observed of groups.

        Parameters
        ----------
        X
            Rows.
        groups
            :class:`unbag.Groups`; a list for a list of aggregates.
        z
            Observations to ask for, one per group; a list of them for a list of aggregates.

        Returns
        -------
        ndarray
            With z, the probability of each of these observations, ``(groups,)``. Without, what is to be expected: the
            probability of 1 where observations are 0 or 1, ``(groups,)``; of counts the expected ones, of each class
            for label proportions, ``(groups, classes)``. A list of them for a list of aggregates. Of bags, by what
            their members tell and what ``bag_model_`` does.
        """
        log_probs = self._log_probs(X)
        if self.bag_model_ is not None:
            rows = read_rows(self, X, reset=False)
            in_memory = gather_rows(rows, torch.arange(len(rows), device=rows.device))
            return self._predict_bags(in_memory, log_probs, groups, z)
        if z is not None:
            seen = self._observations(z, groups, len(log_probs))
            probabilities = [one.evidence(log_probs).log_likelihood.exp().numpy() for one in seen]
            return probabilities if self._has_sets() else probabilities[0]
        if not self._has_sets():
            return _expect(self.aggregate_, log_probs, groups)
        return [_expect(one, log_probs, own) for one, own in zip(self.aggregate_, groups, strict=True)]

    def _predict_bags(self, rows: Tensor, log_probs: Tensor, groups: Groups, z: Any) -> np.ndarray:
        """Return the probability of bags being positive, or of what is asked for, by members and pooled columns."""
        assert self.bag_model_ is not None
        assert self.bag_weights_ is not None
        seen = self._observations([1] * len(groups) if z is None else z, groups, len(rows))[0]
        by_members = bag_log_probs(seen, seen.groups.gather(log_probs))
        by_columns = self.bag_model_._mixed_log_probs(pool(rows, seen.groups))
        joined = mix([by_members, by_columns], self.bag_weights_)
        return joined.gather(1, seen.checked.long()[:, None])[:, 0].exp().numpy()

    def score(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None, group_weights: Any = None) -> float:
        """Return the accuracy on plain labels, or the log-likelihood per group on observations of groups.

        Parameters
        ----------
        X
            Rows.
        y, groups
            As in fit. The log-likelihood of several sets is the mean of theirs.
        sample_weight, group_weights
            As in fit: the mean is that of weighted rows, or of weighted groups; by ``sampling`` too, if it was given.
        """
        several = self._has_sets() and isinstance(y, list | tuple) and any(map(is_target, y))
        if groups is None and group_weights is None and not is_target(y) and not several:
            return float(super().score(X, read_labels(y), sample_weight))
        log_probs = self._log_probs(X)
        seen = self._observations(
            y, groups, len(log_probs), sample_weight=sample_weight, group_weights=group_weights, sampling=self.sampling
        )
        return float(np.mean([one.mean(one.evidence(log_probs).log_likelihood).item() for one in seen]))

    def name_classes(self, X: Any, y: Any) -> Self:
        """Name the classes that observations leave unnamed, by a few rows with labels, at least one of each class.

        Classes get the names under which the predictions for these rows fit best; ``classes_`` and the order of all
        probabilities follow. The names are those of ``classes=``, or else those that occur in y, sorted.

        Parameters
        ----------
        X
            A few rows.
        y
            Their labels, of any type.
        """
        probs = self._log_probs(X).exp()
        if self.symmetry_ == "none":
            raise ValueError(
                "the observations name the classes, so that these cannot be interchanged; to call them something else, "
                "give classes= in the order of the numbers that observations have for them"
            )
        labels = read_labels(y)
        if len(labels) != len(probs):
            raise ValueError(f"y has {len(labels)} labels for {len(probs)} rows of X")
        names = choose_names(labels, self.classes_, self.symmetry_, fixed=self.classes is not None)
        together = torch.zeros(len(names), len(names), dtype=torch.float64)
        order = match_classes(together.index_add_(0, number_labels(labels, names), probs).numpy(), self.symmetry_)
        self.orders_ = [own[order] for own in self.orders_]
        self.classes_ = names
        return self

    def check_shift(self, X: Any) -> list[Finding]:
        """Say which columns of new rows have another mean than those of fit, by more than chance and a small effect.

        Means may be off by as much as those of groups are in the rows of fit, for whose number of columns the chance of
        a false alarm is at most 1 %.

        Parameters
        ----------
        X
            New rows of a table.

        Returns
        -------
        list of Finding
            One of kind ``"shift"``, which names the columns that differ most, or none.
        """
        check_is_fitted(self, "models_")
        rows = read_rows(self, X, reset=False)
        if self.feature_statistics_ is None:
            raise ValueError("check_shift compares the columns of tables; this classifier was fitted to images")
        parts = [rows] if isinstance(rows, Tensor) else TakenRows(rows).split(ROWS_AT_ONCE)
        seen = reduce(add, (Moments.of(part.numpy(force=True)) for part in parts))
        return [*find_shift(self.feature_statistics_, seen, self._column_names())]

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names of the columns of numbers that models see.

        Those of a table of pandas, polars or Arrow are made of its columns, as in ``"town = Ulm"`` and ``"age is
        missing"``; those of an array are ``x0``, ``x1`` and so on.

        Parameters
        ----------
        input_features
            Names of the columns of X; for arrays they are taken, and others must be those of fit.
        """
        check_is_fitted(self, "models_")
        given = _check_feature_names_in(self, input_features)
        return given if self.preparation_ is None else np.array(self.preparation_.encoded_names, dtype=object)

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Save to a folder, as JSON and safetensors, or LightGBM's text for trees, which :func:`unbag.load` reads.

        A classifier of scikit-learn is refused: it could not be saved without pickle.
        """
        from unbag.saving import save  # noqa: PLC0415 (that module needs this one)

        check_is_fitted(self, "models_")
        save(self, folder, overwrite=overwrite)

    def _column_names(self) -> Sequence[Any] | None:
        """Return the names of the columns of numbers, for messages; None where there are none."""
        return (
            getattr(self, "feature_names_in_", None) if self.preparation_ is None else self.preparation_.encoded_names
        )

    def _named_models(self) -> list[Any]:
        """Return for each fitted model its name, or what the caller gave for it."""
        return [self.model if name is None else name for name in self.model_names_]

    def _log_probs(self, X: Any) -> Tensor:
        """Return the log-probability of each class for each row, in float64 on the CPU."""
        check_is_fitted(self, "models_")
        rows = read_rows(self, X, reset=False)
        return self._mixed_log_probs(rows)

    def _mixed_log_probs(self, rows: Rows, which: Tensor | None = None, *, fold: int | None = None) -> Tensor:
        """Return the tempered mean of the probabilities of models, of all rows or of those of some numbers.

        Of all models, or of those that have left out a fold.
        """
        if isinstance(rows, Tensor):
            return self._mix(self._log_probs_of_models(rows if which is None else rows[which], fold), fold)
        taken = TakenRows(rows, which)
        parts = (self._mixed_log_probs(part, fold=fold) for part in taken.split(ROWS_AT_ONCE))
        return join(parts, len(taken.rows))

    def _mix(self, of_models: list[Tensor], fold: int | None = None) -> Tensor:
        """Return the tempered mean of what models say, of all, or of those that have left out a fold."""
        weights = np.array(self.model_weights_)[self._places(fold)]
        mixed = of_models[0] if len(of_models) == 1 else mix(of_models, (weights / sum(weights)).tolist())
        return temper(mixed, self.temperature_)

    def _places(self, fold: int | None) -> list[int]:
        """Return the numbers of the models that have left out a fold; None is for all models."""
        return [place for place in range(len(self.models_)) if fold is None or (self.model_folds_ or [])[place] == fold]

    def _out_of_fold_log_probs(self, of_models: list[Tensor], observations: Sequence[Observations]) -> list[Tensor]:
        """Return for each set the log-probabilities of members, by models that have not seen their groups, if any.

        Of all rows, ``of_models`` is what :meth:`_log_probs_of_models` returns.
        """
        by_all = self._mix(of_models)
        by_fold = {
            fold: self._mix([of_models[place] for place in self._places(fold)], fold)
            for fold in sorted({*(self.model_folds_ or [])})
        }
        out_of_fold = []
        for place, one in enumerate(observations):
            of_members = by_all[one.groups.members]
            if self.folds_ is not None:
                own = one.groups.segments.expand(torch.tensor(self.folds_[place]))
                for fold, log_probs in by_fold.items():
                    of_members[own == fold] = log_probs[one.groups.members[own == fold]]
            out_of_fold.append(of_members)
        return out_of_fold

    def _log_probs_of_models(self, rows: Tensor, fold: int | None = None) -> list[Tensor]:
        models = list(zip(self.models_, self.orders_, self.model_temperatures_, strict=True))
        return [
            temper(model.log_probs(rows)[:, order], temperature)
            for model, order, temperature in (models[place] for place in self._places(fold))
        ]

    @property
    def aggregate_(self) -> Any:
        """What is observed, with the rates of wrong answers that were fitted; a list for a list of aggregates."""
        given = self.aggregate if self._has_sets() else [self.aggregate]
        aggregates = [
            with_rate(find_aggregate(one), rate) for one, rate in zip(given, self._rates(len(given)), strict=True)
        ]
        return aggregates if self._has_sets() else aggregates[0]

    def _rates(self, n_sets: int) -> list[float | None]:
        """Return the rates that were fitted; none of them where the aggregates were exchanged since."""
        return self.error_rates_ if len(self.error_rates_) == n_sets else [None] * n_sets

    def _has_sets(self) -> bool:
        return isinstance(self.aggregate, list | tuple)

    def _observations(self, z: Any, groups: Any, n_rows: int, **weights: Any) -> list[Observations]:
        sets = read_sets(self.aggregate, z, groups, n_rows, **weights)
        return with_rates([one.observations(self.classes_) for one in sets], self._rates(len(sets)))


def bag_log_probs(one: Observations, log_probs: Tensor) -> Tensor:
    """Return the log-probability of 0 and of 1 for each bag, ``(groups, 2)``, from those of its members' classes."""
    answers = (torch.full_like(one.checked, answer) for answer in (0, 1))
    return torch.stack(
        [one.aggregate.checked_evidence(log_probs, one.groups.segments, z).log_likelihood for z in answers], 1
    )


def posterior_of(one: Observations, log_probs: Tensor) -> Tensor:
    """Return the posterior of each membership, some groups at a time, from the log-probabilities of all rows."""
    runs = one.groups.segments.runs(MEMBERS_AT_ONCE)
    parts = (one.take(torch.arange(which.start, which.stop)).evidence(log_probs).posterior for which, _, _ in runs)
    return join(parts, len(one.groups.members))


def _expect(aggregate: Aggregate, log_probs: Tensor, groups: Groups) -> np.ndarray:
    aggregate.check_sizes(groups)
    check_groups_fit(groups, len(log_probs))
    groups = groups.to("cpu")
    return aggregate.expect(groups.gather(log_probs), groups).numpy()
