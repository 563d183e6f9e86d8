"""Predictions of a fitted classifier: for new rows, for rows in observed groups, and for groups."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial, reduce
from operator import add
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted
from torch import Tensor, nn

from unbag._utils.findings import Finding
from unbag._utils.parts import join
from unbag.aggregates import Aggregate
from unbag.aggregates.base import check_rows
from unbag.aggregates.noisy import fits_rate
from unbag.aggregates.symmetry import Symmetry
from unbag.data.bags import is_list_of_bags, join_bags
from unbag.data.features import Preparation
from unbag.data.groups import Groups
from unbag.data.row_source import Rows, SparseRows, gather_rows, select_rows, transform_rows
from unbag.data.scaling import Scaling
from unbag.data.targets import is_target
from unbag.diagnostics.shift import Moments, find_shift
from unbag.ensemble import Estimate, Mixture, Performance
from unbag.estimators.bags import BagModel
from unbag.estimators.class_names import choose_names, match_classes, number_labels, read_labels
from unbag.estimators.inputs import read_groups, read_rows, read_sets
from unbag.estimators.module import ClassifierModule
from unbag.estimators.settings import refuse_parameters
from unbag.estimators.training_data import scale
from unbag.learners.base import split_rows
from unbag.training import Observations

MAX_ROWS = MAX_MEMBERSHIPS = 65_536
"""Rows, and memberships, that are predicted at a time."""


class Predictor(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """The part of :class:`unbag.AggregateClassifier` that needs only what ``fit`` has stored."""

    __metadata_request__score = {"groups": UNUSED}  # noqa: RUF012 (the convention of scikit-learn)

    aggregate: Any
    model: Any
    sampling: Any
    classes: Any
    classes_: np.ndarray
    mixture_: Mixture
    class_order_: np.ndarray  # for each class, the output of the mixture that it is read from
    scaling_: Scaling
    preparation_: Preparation | None
    input_shape_: tuple[int, ...]
    estimated_accuracy_: Estimate | None
    estimated_performance_: Performance | None
    feature_statistics_: dict[str, list[float]] | None
    symmetry_: Symmetry
    folds_: list[list[int]]
    member_folds_: list[Tensor]  # of each set, the fold whose models did not learn from each membership; -1 without one
    fitted_aggregates_: list[Aggregate]  # the kind of each set of observations, with the error rates that were fitted
    bag_model_: BagModel | None

    def __new__(cls, *arguments: Any, **parameters: Any) -> Self:
        """Refuse parameters that do not exist; not in ``__init__``, whose signature scikit-learn reads."""
        refuse_parameters(parameters.keys() - cls._get_param_names())
        return super().__new__(cls)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.sparse = True
        return tags

    def predict_proba(self, X: Any) -> Any:
        """Return the probability of each class for each row, shape ``(rows, classes)``; of bags, a list of arrays."""
        return self._per_bag(self._log_probs(X).exp().numpy(), X)

    def predict_log_proba(self, X: Any) -> Any:
        """Return the log-probability of each class for each row; see :meth:`predict_proba`."""
        return self._per_bag(self._log_probs(X).numpy(), X)

    def predict(self, X: Any) -> Any:
        """Return the most likely class of each row; of a list of bags, a list of arrays."""
        log_probs = self._log_probs(X)
        return self._per_bag(self.classes_[log_probs.argmax(1).numpy()], X)

    def disaggregate(self, X: Any, z: Any, groups: Any = None) -> Any:
        """Return class probabilities of rows in observed groups, given the observations.

        With label proportions, the probabilities of a group add up to its counts. The result has one line per row for a
        target and for ids, and one line per membership, in the order of ``groups.members``, for :class:`unbag.Groups`;
        for a list of bags or of aggregates, it is a list of arrays.

        Parameters
        ----------
        X
            Rows, of the training data or new ones, or a list with an array for each bag.
        z, groups
            Observations and groups, as in ``fit``.
        """
        rows, groups = self._split_bags(X, groups)
        log_probs = self._log_probs(rows)
        sets = self._read_observations(z, groups, len(log_probs))
        groups_of_sets = groups if self._has_several_sets and groups is not None else [groups] * len(sets)
        posteriors = []
        for s, passed in zip(sets, groups_of_sets, strict=True):
            posterior = compute_posterior(s, log_probs)
            if not isinstance(passed, Groups):  # every row is in one group
                posterior = torch.empty_like(posterior).index_copy_(0, s.groups.members, posterior)
            posteriors.append(posterior.numpy())
        return posteriors if self._has_several_sets else self._per_bag(posteriors[0], X)

    def predict_groups(self, X: Any, groups: Any = None, z: Any = None) -> Any:
        """Return the probability of each group's observation in z, shape ``(groups,)``, or the expected observations.

        Without z, these are the probability of a positive observation, or expected counts, ``(groups, classes)``. For a
        list of aggregates, the result is a list of arrays.

        Parameters
        ----------
        X
            Rows, or a list with an array for each bag.
        groups
            :class:`unbag.Groups`, or an id for each row; a list for a list of aggregates.
        z
            One observation per group.
        """
        X, groups = self._split_bags(X, groups)
        log_probs = self._log_probs(X)
        groups = read_groups(groups, len(log_probs), several=self._has_several_sets)
        if groups is None:
            raise TypeError("groups is missing: pass unbag.Groups or an id for each row, or X as a list of arrays")
        if self.bag_model_ is not None:
            bags = self._read_observations([1] * len(groups) if z is None else z, groups, len(log_probs))[0]
            rows = gather_rows(self._read_rows(X), torch.arange(len(log_probs)))
            return self.bag_model_.predict(scale(self.scaling_, rows), log_probs, bags)
        if z is None:
            groups_of_sets = groups if self._has_several_sets else [groups]
            kinds = zip(self.fitted_aggregates_, groups_of_sets, strict=True)
            expected = [_expected_observations(kind, log_probs, g.to("cpu")) for kind, g in kinds]
        else:
            sets = self._read_observations(z, groups, len(log_probs))
            expected = [s.evidence(log_probs).log_likelihood.exp().numpy() for s in sets]
        return expected if self._has_several_sets else expected[0]

    def score(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None, group_weights: Any = None) -> float:
        """Return the accuracy on labels of rows, or the mean log-likelihood per group on observations.

        Parameters
        ----------
        X
            Rows, or a list with an array for each bag.
        y, groups
            As in ``fit``. With several sets, the mean of their log-likelihoods.
        sample_weight, group_weights
            As in ``fit``.
        """
        X, groups = self._split_bags(X, groups)
        several = self._has_several_sets and isinstance(y, list | tuple) and any(map(is_target, y))
        if groups is None and group_weights is None and not is_target(y) and not several:
            return float(super().score(X, read_labels(y), sample_weight))
        log_probs = self._log_probs(X)
        sets = self._read_observations(
            y, groups, len(log_probs), sample_weight=sample_weight, group_weights=group_weights, sampling=self.sampling
        )
        return float(np.mean([s.mean(s.evidence(log_probs).log_likelihood).item() for s in sets]))

    def name_classes(self, X: Any, y: Any) -> Self:
        """Assign names to classes that the observations leave unnamed, by a few labelled rows.

        Parameters
        ----------
        X, y
            Rows and their labels, with at least one row of each class.
        """
        probs = self._log_probs(X).exp()
        if self.symmetry_ == "none":
            raise ValueError(
                "the observations identify the classes, which cannot be interchanged; to rename them, pass classes= in "
                "the order of their numbers in the observations"
            )
        labels = read_labels(y)
        if len(labels) != len(probs):
            raise ValueError(f"y has {len(labels)} labels for {len(probs)} rows of X")
        names = choose_names(labels, self.classes_, self.symmetry_, fixed=self.classes is not None)
        joint = torch.zeros(len(names), len(names), dtype=torch.float64)
        joint.index_add_(0, number_labels(labels, names), probs)
        order = match_classes(joint.numpy(), self.symmetry_)
        self.class_order_ = self.class_order_[order]
        if self.estimated_performance_ is not None:
            self.estimated_performance_ = self.estimated_performance_.reorder(order.tolist())
        self.classes_ = names
        return self

    def check_shift(self, X: Any) -> list[Finding]:
        """Find columns whose mean differs from that of the training rows.

        The result is a finding of kind ``"shift"`` that names the columns with the largest differences, or an empty
        list. Differences count beyond what groups vary by and beyond a small effect; false alarms occur in at most 1 %
        of tables.
        """
        check_is_fitted(self, "mixture_")
        rows = self._read_rows(X)
        if self.feature_statistics_ is None:
            raise ValueError("check_shift compares the columns of tables; this classifier was fitted to images")
        moments = reduce(add, map(Moments.of, [rows] if isinstance(rows, SparseRows) else split_rows(rows, MAX_ROWS)))
        return [*find_shift(self.feature_statistics_, moments, self._column_names())]

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names of the numeric columns that models receive; ``input_features`` names those of an array."""
        check_is_fitted(self, "mixture_")
        names = _check_feature_names_in(self, input_features)
        return names if self.preparation_ is None else np.array(self.preparation_.encoded_names, dtype=object)

    def to_torch(self) -> nn.Module:
        """Return one module of torch from rows to the log-probabilities of the classes, shape ``(rows, classes)``.

        It contains scaling, missing values, all models, their weights and temperatures, can be moved to a GPU, and is
        accepted by ``torch.export.export`` and ``torch.onnx.export``, with ``dynamic_shapes`` for any number of rows.
        Rows are numbers or images; of a table of pandas, polars or Arrow, the columns of :meth:`get_feature_names_out`.
        Trees and classifiers of scikit-learn have no form as a module and raise an error.

        Examples
        --------
        >>> import unbag
        >>> X, groups = np.arange(8.0).reshape(8, 1), unbag.Groups.from_sizes([2] * 4)
        >>> clf = unbag.AggregateClassifier(model="linear", validation=unbag.CrossFitting(None), random_state=0)
        >>> module = clf.fit(X, [[2, 0], [1, 1], [1, 1], [0, 2]], groups=groups).to_torch()
        >>> bool(np.allclose(module(torch.tensor(X)).exp(), clf.predict_proba(X), atol=1e-6))
        True
        """
        check_is_fitted(self, "mixture_")
        return ClassifierModule(self.scaling_, self.mixture_, self.class_order_).eval().requires_grad_(False)

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Save to a folder as JSON and safetensors, which :func:`unbag.load` reads.

        A model that is there is only replaced with ``overwrite``.
        """
        from unbag.persistence.saved_models import save  # noqa: PLC0415 (imports this module)

        check_is_fitted(self, "mixture_")
        save(self, folder, overwrite=overwrite)

    @property
    def aggregate_(self) -> Any:
        """Return the kind of the observations with fitted error rates; a list for a list of aggregates."""
        return self.fitted_aggregates_ if self._has_several_sets else self.fitted_aggregates_[0]

    def _column_names(self) -> Sequence[Any] | None:
        """Return the names of the numeric columns, or None."""
        named = getattr(self, "feature_names_in_", None)
        return named if self.preparation_ is None else self.preparation_.encoded_names

    def _read_rows(self, X: Any) -> Rows:
        return read_rows(self, self._split_bags(X, None)[0], reset=False)

    def _split_bags(self, X: Any, groups: Any) -> tuple[Any, Any]:
        """Return the rows of a list of bags, and the bags as groups; other rows and groups as they are."""
        return join_bags(X) if groups is None and self._has_bags(X) else (X, groups)

    def _has_bags(self, X: Any) -> bool:
        """Return whether X is a list of bags; if rows are images, it is a list of rows."""
        check_is_fitted(self, "mixture_")
        return len(self.input_shape_) == 1 and is_list_of_bags(X)

    def _per_bag(self, values: np.ndarray, X: Any) -> Any:
        """Split values of rows into those of each bag, if X is a list of bags."""
        return np.split(values, np.cumsum([len(bag) for bag in X])[:-1]) if self._has_bags(X) else values

    def _log_probs(self, X: Any) -> Tensor:
        """Return the log-probability of each class for each row, float64."""
        check_is_fitted(self, "mixture_")
        return self._predict_rows(self._read_rows(X))

    def _predict_rows(self, rows: Rows, which: Tensor | None = None, fold: int | None = None) -> Tensor:
        """Return the log-probabilities of chosen rows, by the models of one fold or of all."""
        predict = self.mixture_.log_probs if fold is None else partial(self.mixture_.fold_log_probs, fold=fold)
        rows = rows if which is None else select_rows(rows, which)
        parts = rows.split(MAX_ROWS) if isinstance(rows, SparseRows) else split_rows(rows, MAX_ROWS)
        log_probs = (predict(transform_rows(part, partial(scale, self.scaling_))) for part in parts)
        return join((part.double().log_softmax(1) for part in log_probs), len(rows))[:, self.class_order_]

    @property
    def _has_several_sets(self) -> bool:
        return isinstance(self.aggregate, list | tuple)

    def _read_observations(self, z: Any, groups: Any, n_rows: int, **weights: Any) -> list[Observations]:
        raw_sets = read_sets(self.aggregate, z, groups, n_rows, classes=self.classes_, **weights)
        sets = [s.observations(self.classes_) for s in raw_sets]
        if len(self.fitted_aggregates_) != len(sets):
            return sets
        fitted = zip(sets, self.fitted_aggregates_, strict=True)
        return [replace(s, aggregate=a) if fits_rate(s.aggregate) else s for s, a in fitted]


def compute_posterior(observations: Observations, log_probs: Tensor) -> Tensor:
    """Compute the posterior of each membership, some groups at a time."""
    runs = observations.groups.segments.runs(MAX_MEMBERSHIPS)
    parts = (
        observations.take(torch.arange(which.start, which.stop)).evidence(log_probs).posterior for which, _, _ in runs
    )
    return join(parts, len(observations.groups.members))


def _expected_observations(aggregate: Aggregate, log_probs: Tensor, groups: Groups) -> np.ndarray:
    aggregate.check_sizes(groups)
    check_rows(log_probs, groups, "X")
    return aggregate.expect(groups.gather(log_probs), groups).numpy()
