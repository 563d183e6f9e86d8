"""The scikit-learn estimator: its inputs become a problem, its parameters a config, its result is a mixture."""

from __future__ import annotations

import time
import warnings
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.utils.metadata_routing import UNUSED
from torch import Tensor

from unbag._utils.findings import NO_ESTIMATE, Finding, UnbagWarning
from unbag._utils.random_state import first_seed
from unbag.aggregates.noisy import fits_rate
from unbag.data.row_source import select_rows
from unbag.diagnostics import Context, diagnose_rows, raise_if_fatal, run_checks
from unbag.diagnostics.fitted import DivergenceWarning
from unbag.diagnostics.sampling import choose_rows
from unbag.ensemble import HeldOut, Mixture, Schedule, estimate_accuracy, estimate_performance, fit_ensemble
from unbag.estimators.bags import fit_bag_model
from unbag.estimators.class_names import match_classes
from unbag.estimators.config import resolve
from unbag.estimators.error_rates import fit_error_rates, fitted_rate
from unbag.estimators.predictor import Predictor
from unbag.estimators.training_data import TrainingData
from unbag.learners import Problem

MAX_ROWS_TO_CALIBRATE = 10_000
SILENT = ("unnamed_classes", "constant_columns", "never_predicted")
"""Kinds of findings that are recorded without a warning."""


@dataclass(eq=False, repr=False)
class AggregateClassifier(Predictor):
    """Classify individual rows, learning from observations of groups.

    Parameters
    ----------
    aggregate
        Kind of the observations: ``"label_proportions"``, ``"pairwise_similarity"``, ``"triplet_comparison"``,
        ``"multiple_instance"``, ``"ordinal_rank"``, ``"ordinal_triplet"``, ``"majority"``, or an
        :class:`unbag.Aggregate`. A list learns from several sets of observations at once.
    model
        ``"auto"`` fits several kinds of models, with each group held out once, and averages those that best predict
        held-out groups; of more than 10,000 columns, only linear ones. By name: ``"linear"``, ``"mlp"``, ``"rbf"``,
        ``"lenet"``, or ``"trees"`` (``pip install unbag[trees]``). Or a torch module, a function that returns one, or a
        classifier of scikit-learn whose ``fit`` accepts ``sample_weight``.
    method
        Objective of ``training``: ``"uum"``, the universal unbiased method, or ``"likelihood"``.
    n_classes, classes
        Number of classes, where the observations do not show it, or their names, in the order of their numbers in the
        observations.
    class_shares
        Known shares of the classes: a list in their order or a dict by class; ``(shares, error)`` adds the standard
        deviation of a share.
    sampling
        Where groups were selected by their observation, a dict from observation to the rate at which such groups were
        kept, or the share of positive observations among random groups. A list with one entry per aggregate.
    scaling
        Scaling of features: ``"standard"`` for each column, ``"table"`` for one mean and scale, or ``"none"``.
        ``"auto"`` is ``"standard"`` for tables and ``"table"`` for images.
    training
        :class:`unbag.NetworkTraining` to train a network by Algorithm 1 of the paper, with its settings.
    validation
        :class:`unbag.CrossFitting`, how groups are held out.
    time_limit
        Seconds after which the fit stops and returns the best result so far.
    n_jobs
        Number of models that are fitted at a time; None uses all cores. The result does not depend on it.
    device
        Device on which networks are trained, for example ``"cuda"``.
    random_state
        Seed; a whole number makes the fit reproducible.
    verbose
        1 shows a progress bar in a terminal.

    Attributes
    ----------
    classes_ : ndarray
        Class names, in the order of the columns of probabilities.
    n_features_in_, feature_names_in_, preparation_, scaling_
        Number of features, their names if all are strings, the encoding of a table of pandas, polars or Arrow as
        numbers, and the scaling of the rows that models receive.
    mixture_ : Mixture
        The fitted candidates, their weights and temperatures.
    candidates_ : list of dict
        For each candidate ``model``, ``score`` (log-likelihood per held-out group), ``weight``, ``steps`` and
        ``seconds``.
    folds_ : list
        For each set of observations, the fold that held out each group, or -1.
    history_ : list of dict
        Held-out score of each step of the candidate with the largest weight.
    estimated_accuracy_ : Estimate or None
        Estimated accuracy on new rows like those of the groups: ``value``, and a 95 % interval, ``low`` to ``high``.
        ``new_groups`` is the same on rows of new groups, where it differs. None where it is not identifiable.
    estimated_performance_ : Performance or None
        Estimated ``log_loss`` and, for each of ``classes``, ``sensitivity``, ``precision`` and ``auc``, with intervals.
        They say more than accuracy where one class has 90 % of the rows or more.
    diagnosis_ : list of Finding
        What the observations do not identify, and what is suspicious about rows, groups or the model.
    symmetry_ : str or tuple
        Permutations of the classes that leave the observations unchanged: ``"none"``, ``"reversal"`` or ``"any"``, or
        sets of interchangeable classes by their numbers, such as ``((0, 1), (2, 3))``; see :meth:`name_classes`.
    bag_model_ : BagModel or None
        For bags with ``model="auto"``, the model of bag labels that :meth:`predict_groups` uses.
    error_rates_ : list
        For each set of observations, the fitted rate of wrong observations, or None.
    feature_statistics_ : dict or None
        Statistics of the columns of a table, for :meth:`check_shift`.

    Examples
    --------
    >>> import unbag
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(0, 2, 120)
    >>> X = rng.normal(size=(120, 3)) + 3 * labels[:, None]
    >>> ids = np.arange(120) // 4
    >>> counts = [np.bincount(labels[ids == group], minlength=2) for group in range(30)]
    >>> clf = AggregateClassifier(model="linear", random_state=0).fit(X, unbag.target(ids, counts))
    >>> bool((clf.predict(X) == labels).mean() > 0.95)
    True
    """

    # In a search or a pipeline, groups= is meant for the splitter; those of fit come inside a target.
    __metadata_request__fit = {"groups": UNUSED}  # noqa: RUF012 (the convention of scikit-learn)

    aggregate: Any = "label_proportions"
    model: Any = "auto"
    _: KW_ONLY
    method: str = "auto"
    n_classes: int | None = None
    classes: Any = None
    class_shares: Any = None
    sampling: Any = None
    scaling: str = "auto"
    training: Any = None
    validation: Any = None
    time_limit: float | None = None
    n_jobs: int | None = None
    device: str = "cpu"
    random_state: Any = None
    verbose: int = 0

    def fit(  # noqa: PLR0917 (scikit-learn passes them by position, too)
        self,
        X: Any,
        y: Any,
        groups: Any = None,
        sample_weight: Any = None,
        group_weights: Any = None,
        subjects: Any = None,
    ) -> AggregateClassifier:
        """Learn from observations of groups, or from labels of rows.

        Parameters
        ----------
        X
            A table of pandas, polars or Arrow, an array of numbers, images, or an :class:`unbag.training.RowSource` of
            rows on disk; or a list with an array for each bag.
        y
            The result of :func:`unbag.target`, with one entry per row; or one observation per group, together with
            ``groups`` or a list of bags; or one label per row. With a list of aggregates, a list with one y for each.
        groups
            :class:`unbag.Groups`, or an id for each row, whose observations follow ``sorted(set(ids))``. With a list of
            aggregates, a list with an entry or None for each.
        sample_weight
            One weight per row, equal in all rows of a group.
        group_weights
            One weight per group, matched by id as y is. A group of weight 2 counts as two, one of weight 0 is ignored.
        subjects
            Identifies the person or object that each row belongs to. Rows of a subject are held out together.
        """
        seed, begun = first_seed(self.random_state), time.monotonic()
        plan = partial(resolve, parameters=self.get_params(deep=False), seed=seed, begun=begun)
        data = TrainingData.read(self, X, y, groups, (sample_weight, group_weights), subjects, seed)
        context = self._diagnose_data(data)
        self.scaling_ = data.fit_scaling(self.scaling)
        problem = fit_error_rates(data.problem(self.scaling_), plan, data.align)
        schedule = plan(problem)
        self._set_result(data, problem, fit_ensemble(problem, schedule, data.align))
        by_fold = self._set_estimates(data, problem, schedule)
        self.bag_model_ = fit_bag_model(problem, self.mixture_, plan) if self.model == "auto" else None
        self._diagnose_fit(context, data, problem, by_fold, time.monotonic() - begun)
        return self

    def _diagnose_data(self, data: TrainingData) -> Context:
        """Check observations and rows, and return what checks of the fit receive as well."""
        context = data.context(self._column_names())
        findings = run_checks("observations", context) + diagnose_rows(context, data.rows)
        raise_if_fatal(findings, len(data.raw_sets))
        self.diagnosis_ = self._report(findings)
        return context

    def _set_result(self, data: TrainingData, problem: Problem, mixture: Mixture) -> None:
        """Store what prediction needs, and what describes the fit."""
        self.mixture_, self.classes_, self.symmetry_ = mixture, data.classes, data.symmetry
        self.class_order_ = np.arange(len(data.classes))
        if data.class_shares is not None and data.shares_identify_classes:
            expected = mixture.log_probs(problem.X).exp().mean(0).double()
            distance = (data.class_shares.shares[:, None] - expected).square()
            self.class_order_, self.symmetry_ = match_classes(-distance.numpy(), data.symmetry), "none"
        kinds: list[Any] = [s.aggregate for s in data.caller_sets]
        rates = [fitted_rate(s.aggregate) if fits_rate(k) else None for k, s in zip(kinds, problem.sets, strict=False)]
        self.fitted_aggregates_ = [k if r is None else k.with_rate(r) for k, r in zip(kinds, rates, strict=True)]
        self.error_rates_ = rates
        self.candidates_ = [
            {"model": c.name, "score": c.score, "weight": w, "steps": c.step + 1, "seconds": c.seconds}
            for c, w in zip(mixture.candidates, mixture.weights.tolist(), strict=True)
        ]
        self.history_ = mixture.candidates[int(mixture.weights.argmax())].history
        self.feature_statistics_ = data.feature_statistics()

    def _set_estimates(self, data: TrainingData, problem: Problem, schedule: Schedule) -> list[Tensor]:
        """Estimate how good predictions are, and calibrate them; return the predictions of each fold."""
        mixture, folds = self.mixture_, schedule.assign_folds(problem, self.mixture_.n_folds)
        self._set_folds(data, problem, folds)
        by_fold = [mixture.fold_log_probs(problem.X, fold) for fold in range(mixture.n_folds)]
        held_out = HeldOut.gather(problem, mixture.out_of_fold, by_fold, folds, schedule.is_over)
        self.estimated_accuracy_, performance = estimate_accuracy(held_out), estimate_performance(held_out)
        self.estimated_performance_ = performance and performance.reorder(self.class_order_.tolist())
        if self.estimated_accuracy_ is not None:
            rows = torch.linspace(0, len(problem.X) - 1, min(len(problem.X), MAX_ROWS_TO_CALIBRATE)).long()
            self.mixture_ = mixture.calibrate(select_rows(problem.X, rows), self.estimated_accuracy_.value)
        return by_fold

    def _set_folds(self, data: TrainingData, problem: Problem, folds: Tensor) -> None:
        """Store the fold that predicts each membership, and the fold that held out each group; -1 without such a fold.

        Several folds may hold out a group, each of which predicts some of its members.
        """
        self.member_folds_, self.folds_ = [], []
        for raw, counted in zip(data.caller_sets, problem.per_set(folds), strict=False):  # also of known class shares
            groups = raw.groups
            of_members = torch.full((len(groups.members),), -1)
            of_members[groups.segments.expand(raw.weights > 0)] = counted
            first = of_members[groups.offsets[:-1]]
            n_others = groups.segments.sum((of_members != groups.segments.expand(first)).long())
            self.member_folds_.append(of_members)
            self.folds_.append(first.masked_fill(n_others > 0, -1).tolist())

    def _diagnose_fit(
        self, context: Context, data: TrainingData, problem: Problem, by_fold: list[Tensor], seconds: float
    ) -> None:
        """Check the fit, and withdraw estimates that findings make meaningless."""
        estimate, order, sets = self.estimated_accuracy_, self.class_order_, data.caller_sets
        by_fold = [log_probs[:, order] for log_probs in by_fold] if len(by_fold) > 1 else []
        weighted = [s.groups.segments.expand(s.weights > 0) for s in sets]  # (memberships,) of each set
        context = replace(
            context,
            log_probs=problem.per_set(self.mixture_.out_of_fold[:, order])[: len(sets)],
            fold_log_probs=[[log_probs[s.groups.members] for log_probs in by_fold] for s in problem.sets[: len(sets)]],
            folds=[of_members[counted] for of_members, counted in zip(self.member_folds_, weighted, strict=True)],
            sample_log_probs=self._predict_rows(data.rows, choose_rows(context.sets)),
            interval=None if estimate is None else (estimate.low, estimate.high),
            seconds=seconds,
            time_limit=self.time_limit,
        )
        self.diagnosis_ += self._report(run_checks("fit", context))
        if any(finding.kind in NO_ESTIMATE for finding in self.diagnosis_):
            self.estimated_accuracy_ = self.estimated_performance_ = None

    def _report(self, findings: list[Finding]) -> list[Finding]:
        """Warn of findings and return them; those of which other warnings are raised are left out."""
        for finding in findings:
            if finding.kind not in SILENT:
                category = DivergenceWarning if finding.kind == "worse_than_constant" else UnbagWarning
                warnings.warn(finding.message, category, stacklevel=4)
        return findings
