"""The scikit-learn face: one object that learns from groups and predicts single instances."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.metadata_routing import UNUSED
from torch import Tensor

from unbag.checks import check_device
from unbag.class_shares import ClassShares, read_class_shares
from unbag.constant import best_constant
from unbag.diagnosis import diagnose_checked, drop_answered, find_rows_without_group
from unbag.examination import LeftOut, examine
from unbag.families import Fitted, is_network
from unbag.families.cross_fit import CrossFitted
from unbag.findings import Finding
from unbag.fitting import Prepared, choose_for_disk, first_seed, prepare, prepare_folds
from unbag.inputs import RawObservations, choose_classes, read_rows, read_sets
from unbag.naming import match_classes
from unbag.out_of_fold import estimate_accuracy
from unbag.predictor import Predictor
from unbag.row_diagnosis import diagnose_rows
from unbag.sampling import choose_rows, find_unexpected_answers, find_unused_classes, says_random
from unbag.shift import describe_features
from unbag.symmetry import find_symmetry
from unbag.training import Observations
from unbag.training.excerpts import EXCERPT_NUMBERS, excerpt
from unbag.training.row_source import Rows, gather_rows, some_of
from unbag.training.scaling import name_vanishing
from unbag.training.trained import side_by_side


class UnbagWarning(UserWarning):
    """Something that observations cannot tell, see :func:`unbag.diagnose`, or that a model cannot see."""


class DivergenceWarning(UnbagWarning, ConvergenceWarning):  # type: ignore[misc]  # scikit-learn has no types
    """A fitted model that explains groups worse than one which says the same of every row."""


class AggregateClassifier(Predictor):
    """A classifier of single instances that learns from observations of groups.

    Parameters
    ----------
    aggregate
        What is observed of a group: ``"label_proportions"``, ``"pairwise_similarity"``, ``"triplet_comparison"``,
        ``"multiple_instance"``, ``"ordinal_rank"``, ``"ordinal_triplet"``, ``"majority"``, or an
        :class:`unbag.Aggregate`. A list of them learns from several sets at once; see :meth:`fit`.
    model
        ``"auto"`` fits a linear model, a network and, for tables, boosted trees if LightGBM is installed, each with
        every group left out once, and keeps the mixture that explains left-out groups best. By name: ``"linear"``,
        ``"logistic"`` for two classes, ``"mlp"``, ``"lenet"``, ``"densenet"``. Or a torch module, or a function that
        returns one.

        ``"trees"``: boosted trees of LightGBM (``pip install unbag[trees]``), which follow the gradient of the
        likelihood and read NaN as it is. Or any classifier of scikit-learn with ``sample_weight`` in its fit and
        ``predict_proba``, which is fitted by expectation-maximisation, at most 20 times in all and 4 after the best.
        For both an epoch is a round, a tree for each class or a fit; of what is said of training below they look at
        ``epochs``, ``patience``, ``n_restarts``, ``ensemble`` and ``validation_fraction`` alone, and maximise the
        likelihood. They run on the processor, with as many threads as torch has, and have no checkpoints.
    method
        ``"uum"``, the universal unbiased method, or ``"likelihood"``. ``"auto"``: the likelihood where ``epochs`` is
        ``"auto"`` and the loss is the cross entropy, for which the two have the same gradient up to the size of the
        group; the unbiased method otherwise.
    loss
        Of the unbiased risk: a name from :data:`unbag.losses.LOSSES`, or a function.
    epochs
        How often every group is visited, at most. ``"auto"``: steps until left-out groups are explained no better, by
        a moving average of the weights.
    warm_up
        How many epochs the likelihood is trained on first. ``"auto"``: half for pairs, triplets, ordinal comparisons
        and whatever else leaves classes unnamed, none for others.
    weights
        Of the unbiased risk: from the ``"current"`` model or ``"remembered"`` from the last epoch. ``"auto"``:
        remembered, but for bags and for groups of more than 32.
    batch_size, learning_rate, weight_decay
        Groups a step, and the settings of Adam. ``"auto"``: as many groups as have about 1,024 rows, and a rate and a
        decay, apart from the gradient as in AdamW, that suit the model; with a number of epochs, 128, 0.001 and 0.
    scaling
        Of features: ``"standard"``, each column by itself; ``"table"``, one mean and scale for all; ``"none"``.
        ``"auto"`` trains tables with the first two side by side and keeps the one that explains held-out groups better;
        with folds, it is the first.
    n_restarts
        How many replicas of each scaling to train side by side; the best by held-out groups is kept. Where observations
        leave classes unnamed and ``epochs`` is ``"auto"``, every second one begins with clusters of k-means.
    ensemble
        Keep all replicas of the better scaling, and average their probabilities.
    n_folds
        Leave out every group once, in so many folds whose models are averaged, with one temperature that left-out
        groups choose. ``"auto"``: 4 for ``model="auto"``. None, and ``"auto"`` for other models: hold out one part of
        the groups.
    validation_fraction
        The share of groups that is held out to choose epoch, scaling and replica by, of large sets no more than 262,144
        rows or 200 groups, whichever is more. Groups that share rows with
        others are split like any, and their scores are too good for new rows. Of 20 groups or fewer, none is held out:
        the last epoch is kept then, and the replica that explains all groups best.
    patience
        Stop when no replica has become better for so many epochs after the warm-up; None trains to the end. ``"auto"``:
        10 looks at left-out groups, or 30 of a number of epochs.
    time_limit
        Seconds of training, after which the best so far is kept; an epoch that has begun is ended. None: as long as it
        takes.
    optimiser, schedule, stopping, views
        Hooks of training: another optimiser than Adam, a schedule of its learning rate, a rule in place of patience,
        and a function that makes the inputs of a step from rows; see :func:`unbag.training.train`.
    sampling
        Where groups were chosen by their answer, a dict from answer to the rate at which groups with it were kept, such
        as ``{0: 0.1, 1: 1.0}``; rates are relative to each other. Or the share of the answer 1 among random groups. A
        list with one or None for each aggregate. Groups get inverse weights in all means, those of :meth:`score` too.
    class_shares
        Known shares of the classes: a list in their order, or a dict by class; with an error, the standard deviation of
        a share, as ``(shares, error)``. They join the fit as one more set of observations, counts of random groups of
        all rows.
    n_classes, classes
        How many classes there are, where observations do not show it, or their names, in the order of the numbers that
        observations have for them.
    random_state
        A whole number makes the fit the same every time, whatever other fits run in other threads.
    device
        Where to train and predict, for example ``"cuda"``.
    verbose
        1 shows a progress bar in a terminal.
    checkpoint
        A folder. A fit that was interrupted goes on from there if it is called again with the same data, settings,
        model, loss and aggregate. Functions and modules are compared by what they do: code, closures, globals that they
        read, weights; what cannot be compared is refused. Fits that differ may share the folder.

    Attributes
    ----------
    classes_ : ndarray
        Names of the classes, in the order of the columns of probabilities.
    n_features_in_, feature_names_in_
        How many features there are, and their names if all are strings.
    input_shape_ : tuple
        Shape of one row.
    models_ : list
        What predicts: one model, or several whose probabilities are averaged by ``model_weights_``; a network is a
        module that holds its scaling, trees have a ``booster`` of LightGBM, others a ``classifier`` of scikit-learn.
        ``model_names_`` says what each is, and ``model_folds_`` which fold it has left out.
    temperature_ : float
        By which logits are divided; 1 without folds.
    estimated_accuracy_ : Estimate or None
        How often predictions for new rows should be right, with an interval over groups, from left-out groups; None
        where none was left out.
    candidates_ : list of dict
        With folds, for each model: ``model``, ``score``, its log-likelihood per left-out group, and ``weight``.
    folds_ : list
        With folds, for each set of observations by which fold each group was left out; otherwise None.
    scaling_ : str
        The scaling that was chosen.
    history_ : list of dict
        For each epoch: ``loss`` and ``score`` (log-likelihood of held-out groups) of each replica, and more.
    replicas_ : list of dict
        For each replica: ``scaling``, ``best_epoch`` and ``score``.
    best_epoch_, n_iter_ : int
        The epoch, from 0, whose weights were kept, and how many there were.
    held_out_ : list
        For each set of observations the numbers of the groups that were held out, from 0; None where none was.
    diagnosis_ : list of Finding
        What the observations cannot tell, what is suspicious about rows, and what left-out groups tell against the
        model or against what was observed of them.
    feature_statistics_ : dict or None
        Of each column of a table the number of values, their mean and variance, and the design effect of the groups;
        see :meth:`check_shift`.
    symmetry_ : str
        Which renamings of the classes fit as well: ``"none"``, ``"reversal"`` or ``"any"``; see :meth:`name_classes`.

    Examples
    --------
    >>> import unbag
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(0, 2, 120)
    >>> X = rng.normal(size=(120, 3)) + 3 * labels[:, None]
    >>> ids = np.arange(120) // 4
    >>> counts = [np.bincount(labels[ids == group], minlength=2) for group in range(30)]
    >>> clf = AggregateClassifier(model="mlp", epochs=50, random_state=0).fit(X, unbag.target(ids, counts))
    >>> bool((clf.predict(X) == labels).mean() > 0.95)
    True
    """

    # In a search or a pipeline, groups= is meant for the splitter; those of fit come inside a target.
    __metadata_request__fit = {"groups": UNUSED}  # noqa: RUF012 (scikit-learn's own way to say so)

    def __init__(
        self,
        aggregate: Any = "label_proportions",
        model: Any = "auto",
        *,
        method: str = "auto",
        loss: Any = "cross_entropy",
        epochs: int | str = "auto",
        warm_up: int | str = "auto",
        weights: str = "auto",
        batch_size: int | str = "auto",
        learning_rate: float | str = "auto",
        weight_decay: float | str = "auto",
        scaling: str = "auto",
        n_restarts: int = 1,
        ensemble: bool = False,
        n_folds: int | str | None = "auto",
        validation_fraction: float = 0.1,
        patience: int | str | None = "auto",
        time_limit: float | None = None,
        optimiser: Any = None,
        schedule: Any = None,
        stopping: Any = None,
        views: Any = None,
        sampling: Any = None,
        class_shares: Any = None,
        n_classes: int | None = None,
        classes: Any = None,
        random_state: Any = None,
        device: str = "cpu",
        verbose: int = 0,
        checkpoint: str | Path | None = None,
    ) -> None:
        self.aggregate = aggregate
        self.model = model
        self.method = method
        self.loss = loss
        self.epochs = epochs
        self.warm_up = warm_up
        self.weights = weights
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.scaling = scaling
        self.n_restarts = n_restarts
        self.ensemble = ensemble
        self.n_folds = n_folds
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.time_limit = time_limit
        self.optimiser = optimiser
        self.schedule = schedule
        self.stopping = stopping
        self.views = views
        self.sampling = sampling
        self.class_shares = class_shares
        self.n_classes = n_classes
        self.classes = classes
        self.random_state = random_state
        self.device = device
        self.verbose = verbose
        self.checkpoint = checkpoint

    def fit(
        self, X: Any, y: Any, groups: Any = None, sample_weight: Any = None, group_weights: Any = None
    ) -> AggregateClassifier:
        """Learn from observations of groups, or from plain labels.

        Parameters
        ----------
        X
            A table, ``(n, features)``, of numpy, pandas, polars or torch; or images. Or
            :class:`unbag.training.MappedRows`, which stay on disk, or another :class:`unbag.training.RowSource`: then
            ``"auto"`` is ``"mlp"``, one split of the groups chooses, and what is said of rows is said of
            some of them, which hold ten million numbers, in groups chosen at random.
        y
            What :func:`unbag.target` returns, one entry per row; or one observation per group, together with groups:
            a dict from id, or a table or column of pandas with the ids as its index, in any order, or else in the
            order of the groups; or plain labels, one per row, of any type, which are groups of one. With a list of
            aggregates, a list with one such y for each; all sets count the same.
        groups
            :class:`unbag.Groups`, or a list with one or None for each aggregate. For label proportions of groups of
            one, y may be labels: so a few labelled rows can stand beside other observations. Rows in no group are not
            learned from; a warning says how many there are.
        sample_weight
            One weight per row, not negative; of plain labels, how much each counts. A group is one observation: its
            rows must have equal weights, which are the weight of the group.
        group_weights
            One weight per group, not negative, matched by id as y is; a list with one or None for each aggregate. A
            group of weight 2 is as good as two that are alike, one of weight 0 is left out. They multiply those of
            ``sample_weight``.
        """
        return self._prepare_fit(X, y, groups, sample_weight=sample_weight, group_weights=group_weights)()

    def _prepare_fit(
        self,
        X: Any,
        y: Any,
        groups: Any = None,
        *,
        sample_weight: Any = None,
        group_weights: Any = None,
        findings: Sequence[Finding] | None = None,
    ) -> Callable[[], AggregateClassifier]:
        """Refuse all that fit refuses, and return a function that does the rest.

        Where :func:`unbag.diagnose` was asked already, ``findings`` is what it said of all sets.
        """
        device = check_device(self.device)
        rows = read_rows(self, X, reset=True)
        names = getattr(self, "feature_names_in_", None)
        if isinstance(rows, Tensor) and is_network(self.model) and (vanishing := name_vanishing(rows, names)):
            message = f"X varies too little for float32 in {vanishing}, and is taken for constant there"
            warnings.warn(f"{message}; measure in a smaller unit", UnbagWarning, stacklevel=3)
        given = {"sample_weight": sample_weight, "group_weights": group_weights, "sampling": self.sampling}
        sets = read_sets(self.aggregate, y, groups, len(rows), **given)
        classes = choose_classes(self.classes, self.n_classes, sets, self.class_shares)
        observations = [one.observations(classes) for one in sets]
        choices, seed = self.get_params(deep=False), first_seed(self.random_state)
        if not isinstance(rows, Tensor):
            choices = choose_for_disk(choices)
        self.symmetry_ = find_symmetry([one.counting() for one in observations])
        shares = None if self.class_shares is None else read_class_shares(self.class_shares, classes)
        if shares is not None:
            most = max(len(one.groups) for one in observations)
            observations.append(shares.as_observations(len(rows), most, seed))
        named = self.symmetry_ == "none" or (shares is not None and shares.tell(self.symmetry_, len(rows)))
        self.diagnosis_ = self._diagnose(sets, observations, rows, findings, named=named)
        rows, observations = _put_on(rows, device), [one.to(device) for one in observations]
        over_folds = prepare_folds(choices, rows, observations, seed)
        prepared = prepare(choices, rows, observations, seed) if over_folds is None else None

        def train() -> AggregateClassifier:
            if over_folds is not None:
                self._keep_folds(over_folds.train(self._align), observations)
            elif prepared is not None:
                self._keep(prepared.train(), rows, observations, choices["model"])
                self._keep_split(prepared, rows)
            self.classes_ = classes
            if shares is not None and named:
                self._name_by(shares.shares, rows)
            # Known shares are no set of the caller's.
            self.held_out_ = self.held_out_[: len(sets)]
            self.folds_ = None if self.folds_ is None else self.folds_[: len(sets)]
            self.feature_statistics_ = None
            if len(self.input_shape_) == 1:
                table, own = excerpt(rows, observations[: len(sets)])
                of_sets = [one.groups.to("cpu") for one in own]
                self.feature_statistics_ = describe_features(table.numpy(force=True), of_sets)
            self._examine(rows, observations)
            self._diagnose_fit(rows, observations[: len(sets)], shares)
            return self

        return train

    def _diagnose(
        self,
        sets: Sequence[RawObservations],
        observations: Sequence[Observations],
        rows: Rows,
        findings: Sequence[Finding] | None,
        *,
        named: bool,
    ) -> list[Finding]:
        """Look for what the observations cannot tell, and what is suspicious about the rows.

        A set that tells nothing may still stand beside others.
        """
        if findings is None:
            own = [one.counting() for one in observations[: len(sets)]]
            findings = [
                found
                for given, one, sampling in zip(sets, own, self._sampling(len(sets)), strict=True)
                if given.labels is None
                for found in diagnose_checked(one, sampling)
            ]
            if any(one.labels is None for one in sets):
                findings += diagnose_rows(*excerpt(rows, own), getattr(self, "feature_names_in_", None))
        counted = any(one.labels is not None or one.aggregate.outcome.endswith("_counts") for one in sets)
        borders = counted or self.class_shares is not None
        findings = drop_answered(findings, names=named, borders=borders)
        # What one set leaves out another may hold.
        findings = [found for found in findings if found.kind != "rows_without_group"]
        findings += find_rows_without_group([one.groups for one in observations], len(rows))
        if len(sets) == 1 and (fatal := [found.message for found in findings if found.fatal]):
            raise ValueError(f"there is nothing to learn from these observations: {'; '.join(fatal)}")
        for found in findings:
            if found.kind != "unnamed_classes":
                warnings.warn(found.message, UnbagWarning, stacklevel=4)
        return findings

    def _name_by(self, shares: Tensor, rows: Rows) -> None:
        """Name classes that the groups leave unnamed by their shares, which training may have left at other classes."""
        expected = self._mixed_log_probs(rows).exp().mean(0)
        order = match_classes(-(shares[:, None] - expected).square().numpy(), self.symmetry_)
        self.orders_ = [own[order] for own in self.orders_]
        self.symmetry_ = "none"

    def _sampling(self, n_sets: int) -> list[Any]:
        return [None] * n_sets if self.sampling is None else self.sampling if self._has_sets() else [self.sampling]

    def _diagnose_fit(self, rows: Rows, observations: Sequence[Observations], shares: ClassShares | None) -> None:
        """Look for signs in the model that groups were chosen by their answer, or that classes were not found."""
        observations = [one.counting() for one in observations]
        if (some := choose_rows(observations)) is None:
            return
        log_probs = self._mixed_log_probs(rows, some)
        findings = [*find_unused_classes(log_probs, self.classes_, None if shares is None else shares.shares)]
        for one, sampling in zip(observations, self._sampling(len(observations)), strict=True):
            if not says_random(sampling):
                findings += find_unexpected_answers(one.to("cpu"), log_probs)
        self.diagnosis_ += findings
        for found in findings:
            warnings.warn(found.message, UnbagWarning, stacklevel=4)

    def _keep(self, fitted: Fitted, rows: Rows, observations: Sequence[Observations], model: Any) -> None:
        trained = fitted.trained
        self.models_ = [trained.models[r] for r in (fitted.same_scaling_as_best if self.ensemble else [fitted.best])]
        self.orders_ = [np.arange(observations[0].n_classes)] * len(self.models_)
        if len(self.models_) > 1:
            members = torch.cat([one.groups.members for one in observations]).unique()
            members = (
                members
                if isinstance(rows, Tensor)
                else some_of(members, EXCERPT_NUMBERS // math.prod(self.input_shape_))
            )
            first, *others = (one.exp() for one in self._log_probs_of_models(gather_rows(rows, members)))
            self.orders_[1:] = [self._align(first, other) for other in others]
        self.model_names_ = [model if isinstance(model, str) else None] * len(self.models_)
        self.model_weights_ = [1 / len(self.models_)] * len(self.models_)
        self.temperature_ = 1.0
        self.candidates_: list[dict[str, Any]] = []
        self.folds_, self.model_folds_ = None, None
        self.scaling_ = fitted.scalings[fitted.best]
        self.history_ = trained.history
        self.best_epoch_ = trained.best_epoch[fitted.best]
        self.n_iter_ = len(trained.history)
        self.replicas_ = [
            {"scaling": scaling, "best_epoch": epoch, "score": score}
            for scaling, epoch, score in zip(fitted.scalings, trained.best_epoch, fitted.scores, strict=True)
        ]

    def _keep_split(self, prepared: Prepared, rows: Rows) -> None:
        """Keep which groups were held out, and how good the model is by them."""
        self.held_out_ = prepared.held_out_groups
        self.estimated_accuracy_ = None
        if prepared.held_out:
            held_out = [one.to("cpu") for one in prepared.held_out]
            log_probs = [self._mixed_log_probs(rows, one.groups.members) for one in held_out]
            self.estimated_accuracy_ = estimate_accuracy(held_out, log_probs)

    def _keep_folds(self, found: CrossFitted, observations: Sequence[Observations]) -> None:
        self.models_, self.orders_ = found.models, found.orders
        self.model_names_ = [name if isinstance(self.model, str) else None for name in found.names]
        self.model_weights_, self.model_folds_ = found.weights, found.folds
        self.temperature_ = found.temperature
        self.estimated_accuracy_ = found.accuracy
        self.candidates_ = found.candidates
        self.folds_ = []
        for one, numbers in zip(observations, found.numbers, strict=True):
            of_all = torch.full((len(one.groups),), -1)  # a group of weight zero is in no fold
            of_all[one.weights.cpu() > 0] = numbers
            self.folds_.append(of_all.tolist())
        self.held_out_ = [[place for place, fold in enumerate(own) if fold >= 0] or None for own in self.folds_]
        chosen = max(found.candidates, key=lambda one: one["weight"])["model"]
        fits = found.fitted[chosen]
        trained = side_by_side([one.trained.take([one.best]) for one in fits])
        best = int(np.nanargmax([max(one.scores) for one in fits]))
        self.scaling_ = fits[best].scalings[fits[best].best]
        self.history_ = trained.history
        self.best_epoch_ = trained.best_epoch[best]
        self.n_iter_ = len(trained.history)
        self.replicas_ = [
            {"scaling": one.scalings[one.best], "best_epoch": epoch, "score": one.scores[one.best]}
            for one, epoch in zip(fits, trained.best_epoch, strict=True)
        ]

    def _align(self, first: Tensor, other: Tensor) -> np.ndarray:
        """Return which outputs of another model mean the classes of the first, from probabilities of the same rows."""
        return match_classes((first.T @ other).numpy(), self.symmetry_)

    def _examine(self, rows: Rows, observations: Sequence[Observations]) -> None:
        """Warn where a constant prediction is better; with folds, of what else left-out groups tell, and keep it."""
        observations = [one.to("cpu") for one in observations]
        _, by_constant = best_constant(observations)
        diverged = self._warn_of_divergence(observations, by_constant)
        left_out = []
        # A single split leaves out too few groups, by one model whose own uncertainty nothing tells.
        for one, constant, folds in zip(observations, by_constant, self.folds_ or [], strict=False):
            numbers = torch.tensor(folds)
            if bool((chosen := numbers >= 0).any()):
                left_out.append(self._left_out(rows, one.take(chosen), constant[chosen], numbers[chosen]))
        findings = examine(left_out)
        self.diagnosis_ += findings
        for found in findings:
            if not (diverged and found.kind == "worse_than_constant"):
                warnings.warn(found.message, UnbagWarning, stacklevel=4)

    def _left_out(self, rows: Rows, one: Observations, constant: Tensor, folds: Tensor) -> LeftOut:
        by_fold = self._log_probs_by_fold(gather_rows(rows, one.groups.members))
        own = one.groups.segments.expand(folds)
        log_probs = torch.stack([by_fold[fold] for fold in sorted(by_fold)])[own, torch.arange(len(own))]
        return LeftOut(one, log_probs, list(by_fold.values()), constant)

    def _warn_of_divergence(self, observations: Sequence[Observations], by_constant: Sequence[Tensor]) -> bool:
        """Warn where a constant prediction, the shares of the classes, explains groups better than the model."""
        means = [one.mean(found).item() for one, found in zip(observations, by_constant, strict=True)]
        constant = float(np.average(means, weights=[one.weight for one in observations]))
        score = float(np.nanmax([one["score"] for one in self.candidates_ or self.replicas_]))
        if score < constant:
            warnings.warn(
                f"the model explains groups worse than a constant prediction: log-likelihood {score:,.4g} per group "
                f"against {constant:,.4g}; do not rely on it: train for longer or with a lower learning_rate, and look "
                "at the scale of the features",
                DivergenceWarning,
                stacklevel=5,
            )
        return score < constant


def _put_on(rows: Rows, device: torch.device) -> Rows:
    if not isinstance(rows, Tensor) and not hasattr(rows, "to"):
        if rows.device != device:
            raise ValueError(f"X puts its rows on {rows.device}, but device={str(device)!r}; let both be the same")
        return rows
    return rows.to(device)
