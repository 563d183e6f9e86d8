"""The scikit-learn face: one object that learns from groups and predicts single instances."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.metadata_routing import UNUSED
from torch import Tensor

from unbag._utils.checks import check_device
from unbag._utils.findings import NO_ESTIMATE, Finding, UnbagWarning
from unbag.aggregates.class_shares import ClassShares, read_class_shares
from unbag.aggregates.noisy import fits_rate
from unbag.aggregates.symmetry import find_symmetry
from unbag.bag_model import fit_bags, takes_pooled
from unbag.data.frames import fit_frame, read_frame
from unbag.data.row_source import Rows, put_on
from unbag.data.scaling import name_vanishing
from unbag.diagnostics.constant import best_constant
from unbag.diagnostics.fit_diagnosis import (
    DivergenceWarning,
    combine_findings,
    describe_divergence,
    describe_short_time,
    diagnose_model,
    diagnose_sets,
    examine_left_out,
    judge_estimate,
)
from unbag.diagnostics.sampling import choose_rows
from unbag.diagnostics.shift import describe_features
from unbag.error_rates import fit_error_rates, with_rates
from unbag.estimators.class_matching import match_classes
from unbag.estimators.inputs import RawObservations, choose_classes, read_rows, read_sets
from unbag.families import is_network
from unbag.families.components import describe_width
from unbag.families.cross_fit import CrossFitted, OutOfFold
from unbag.fitted_attributes import keep_folds, keep_split
from unbag.fitting import Prepared, choose_for_disk, first_seed, prepare, read_launcher
from unbag.fold_fitting import CrossPrepared, prepare_folds
from unbag.predictor import Predictor
from unbag.training import Observations
from unbag.training.excerpts import excerpt


class AggregateClassifier(Predictor):
    """A classifier of single instances that learns from observations of groups.

    Parameters
    ----------
    aggregate
        What is observed of a group: ``"label_proportions"``, ``"pairwise_similarity"``, ``"triplet_comparison"``,
        ``"multiple_instance"``, ``"ordinal_rank"``, ``"ordinal_triplet"``, ``"majority"``, or an
        :class:`unbag.Aggregate`. A list of them learns from several sets at once; see :meth:`fit`.
    model
        ``"auto"`` fits a linear model, a network, for tables boosted trees if LightGBM is installed, and for counts of
        at most 100 groups, where ``epochs`` is ``"auto"``, a network that begins with clusters of rows, each with every
        group left out once, and keeps the mixture that explains left-out groups best. By name: ``"linear"``,
        ``"logistic"`` for two classes, ``"mlp"``, ``"rbf"``. Or a torch module, or a function that
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
        leave classes unnamed and ``epochs`` is ``"auto"``, the first, the third and so on begin with clusters of rows
        that were fitted to the groups.
    ensemble
        Keep all replicas of the better scaling, and average their probabilities.
    n_folds
        Leave out every group once, in so many folds whose models are averaged, with temperatures that left-out groups
        choose. ``"auto"``: for ``model="auto"`` 4, or 8 where there are at most 40 groups. None, and ``"auto"`` for
        other models: hold out one part of the groups.
    validation_fraction
        The share of groups that is held out to choose epoch, scaling and replica by, of large sets no more than 262,144
        rows or 200 groups, whichever is more. Groups that share rows with
        others are split like any, and their scores are too good for new rows. Of 20 groups or fewer, none is held out:
        the last epoch is kept then, and the replica that explains all groups best.
    patience
        Stop when no replica has become better for so many epochs after the warm-up; None trains to the end. ``"auto"``:
        10 looks at left-out groups, or 30 of a number of epochs.
    time_limit
        Seconds of training and of what follows it, after which the best so far is kept; an epoch that has begun is
        ended. ``model="auto"`` begins with one network and one split of the groups. Where not all folds can be fitted
        in what is left, the result is the mean of as many such networks as can, of different kinds in turn, which with
        at most 10 groups leave out one fold each; a warning says so. None: as long as it takes.
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
    devices, nodes
        How many processes on each machine train a network together, and on how many machines
        (``pip install unbag[distributed]``). ``"auto"``: as many as torchrun has started, or one. Weights are those of
        one process up to rounding; see :func:`unbag.training.train`. Started from a script, its work must stand under
        ``if __name__ == "__main__":``. The trees of ``model="auto"`` are fitted in one process.
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
    preparation_ : Preparation or None
        How the columns of a table of pandas, polars or Arrow become numbers; see :meth:`get_feature_names_out`.
    input_shape_ : tuple
        Shape of one row, in numbers.
    models_ : list
        What predicts: one model, or several whose probabilities are averaged by ``model_weights_``; a network is a
        module that holds its scaling, trees have a ``booster`` of LightGBM, others a ``classifier`` of scikit-learn.
        ``model_names_`` says what each is, and ``model_folds_`` which fold it has left out; the number of folds where
        it learned from all groups.
    model_temperatures_, temperature_
        By which the logits of each model are divided, and those of their mean; 1 without folds.
    bag_model_, bag_weights_
        Of bags, with ``model="auto"``: a classifier of mean, least and largest value of each column in a bag, which
        tells labels of bags beside what their members do; and the weights of the probability that members tell and of
        the other in their mean, :meth:`predict_groups`, chosen by left-out bags. None for all else. Rows are predicted
        without it.
    estimated_accuracy_ : Estimate or None
        How often predictions for new rows should be right, with an interval over groups, from left-out groups, under
        the best names where classes are unnamed. None where at most 10 groups were left out, where borders between
        classes are unknown, where classes go unused, and where answers are not those of groups drawn at random.
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
    aggregate_, error_rates_
        What ``aggregate`` says, with the rates of wrong answers that were fitted; and these, for each set of
        observations, None where there was none to fit. See :class:`unbag.Noisy`.
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
        devices: int | str = "auto",
        nodes: int = 1,
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
        self.devices = devices
        self.nodes = nodes
        self.verbose = verbose
        self.checkpoint = checkpoint

    def fit(
        self, X: Any, y: Any, groups: Any = None, sample_weight: Any = None, group_weights: Any = None
    ) -> AggregateClassifier:
        """Learn from observations of groups, or from plain labels.

        Parameters
        ----------
        X
            A table of pandas, polars or Arrow: numbers, booleans and dates, in days since 1970, become a column each,
            text and categories one of 0 and 1 for each value. Missing numbers become the median of rows in groups, and
            a further column marks them (trees read them as they are); missing text is a category. Errors count rows
            from 1. Or numbers, ``(n, features)``, of numpy or torch; or images. Or
            :class:`unbag.training.MappedRows`, which stay on disk, or another :class:`unbag.training.RowSource`: then
            ``"auto"`` is ``"mlp"``, one split of the groups chooses, and what is said of rows is said of
            some of them, which hold ten million numbers, in groups chosen at random.
        y
            What :func:`unbag.target` returns, one entry per row; or one observation per group, together with groups:
            a dict from id, or a table or column of pandas with the ids as its index, in any order, or else in the
            order of the groups; or an :class:`unbag.training.Observations`, which holds its groups and was checked; or
            plain labels, one per row, of any type, which are groups of one. With a list of aggregates, a list with one
            such y for each; all sets count the same.
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
        frame = read_frame(X)
        rows: Any = read_rows(self, X, reset=True) if frame is None else frame  # until the sets say which rows count
        given = {"sample_weight": sample_weight, "group_weights": group_weights, "sampling": self.sampling}
        sets = read_sets(self.aggregate, y, groups, len(rows), **given)
        if frame is not None:
            rows = fit_frame(self, X, frame, [one.groups for one in sets], checked=findings is not None)
        names = self._column_names()
        if isinstance(rows, Tensor) and is_network(self.model) and (vanishing := name_vanishing(rows, names)):
            message = f"X varies too little for float32 in {vanishing}, and is taken for constant there"
            warnings.warn(f"{message}; measure in a smaller unit", UnbagWarning, stacklevel=3)
        if warning := describe_width(rows, self.model):
            warnings.warn(warning, UnbagWarning, stacklevel=3)
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
        if findings is None:
            findings = diagnose_sets(sets, observations, rows, names)
        self.diagnosis_: list[Finding] = []
        answered = {"names": named, "borders": shares is not None}
        self._report(combine_findings(findings, sets, observations, len(rows), **answered))
        if not read_launcher(choices).several:  # each of several processes has a device of its own
            rows, observations = put_on(rows, device), [one.to(device) for one in observations]
        if takes_pooled(self, rows, observations) and self.time_limit is not None:
            choices["time_limit"] = self.time_limit / 2
        prepared = _prepare(choices, rows, observations, seed)
        return partial(self._train, prepared, observations, sets, classes, shares, choices=choices, named=named)

    def _train(
        self,
        prepared: Prepared | CrossPrepared,
        observations: Sequence[Observations],
        sets: Sequence[RawObservations],
        classes: np.ndarray,
        shares: ClassShares | None,
        *,
        choices: dict[str, Any],
        named: bool,
    ) -> AggregateClassifier:
        """Train what is prepared, keep it, and look at it; known shares are the last set, and none of the caller's."""
        rows = prepared.X
        self.error_rates_ = [None] * len(sets)
        if any(fits_rate(one.aggregate) for one in observations):
            rates = fit_error_rates(choices, rows, observations, prepared.seed, self._align)
            self.error_rates_, observations = rates[: len(sets)], with_rates(observations, rates)
            if self.time_limit is not None:
                choices = {**choices, "time_limit": choices["time_limit"] / 2}
            prepared = _prepare(choices, rows, observations, prepared.seed)
        out_of_fold = self._keep(prepared, observations)
        if isinstance(prepared, CrossPrepared) and self.folds_ is None:
            assert self.time_limit is not None
            self._report([describe_short_time(self.time_limit, len(self.models_))])
        self.classes_ = classes
        if shares is not None and named:
            order = self._name_by(shares.shares, rows)
            out_of_fold = {n: OutOfFold(*(own[..., order] for own in one)) for n, one in out_of_fold.items()}
        self.held_out_ = self.held_out_[: len(sets)]
        self.folds_ = None if self.folds_ is None else self.folds_[: len(sets)]
        self.feature_statistics_ = None
        if len(self.input_shape_) == 1:
            table, seen = excerpt(rows, observations[: len(sets)])
            groups = [one.groups.to("cpu") for one in seen]
            self.feature_statistics_ = describe_features(table.numpy(force=True), groups)
        observations = [one.to("cpu") for one in observations]
        own = observations[: len(sets)]
        self.bag_model_, self.bag_weights_ = None, None
        if out_of_fold and takes_pooled(self, rows, observations):
            fit_bags(self, prepared, own[0].counting(), out_of_fold[0])
        _, by_constant = best_constant(observations)
        score = float(np.nanmax([one["score"] for one in self.candidates_ or self.replicas_]))
        if diverged := describe_divergence(score, observations, by_constant):
            warnings.warn(diverged, DivergenceWarning, stacklevel=3)
        silent = "worse_than_constant" if diverged else ""
        self._report(examine_left_out(own, by_constant, out_of_fold), silent=silent)
        own = [one.counting() for one in own]
        if (some := choose_rows(own)) is not None:
            self._report(diagnose_model(self._mixed_log_probs(rows, some), classes, shares, sets, own))
        if any(one.kind in NO_ESTIMATE for one in self.diagnosis_):  # whether these classes are those meant is unknown
            self.estimated_accuracy_ = None
        else:
            self._report(judge_estimate(own, out_of_fold, self.estimated_accuracy_))
        return self

    def _keep(self, prepared: Prepared | CrossPrepared, observations: Sequence[Observations]) -> dict[int, OutOfFold]:
        """Train what is prepared and keep the models; return what is predicted of left-out groups, if all were."""
        if isinstance(prepared, Prepared):
            keep_split(self, prepared.train(), prepared, observations, self._align, ensemble=self.ensemble)
            return {}
        fitted = prepared.train(self._align)
        if isinstance(fitted, CrossFitted):
            keep_folds(self, fitted, observations)
            return fitted.out_of_fold
        keep_split(self, fitted, prepared.in_turn[0], observations, self._align, ensemble=True)
        return {}

    def _report(self, findings: Sequence[Finding], *, silent: str = "unnamed_classes") -> None:
        """Keep findings, and warn of all but one kind; called by what fit calls."""
        self.diagnosis_ += findings
        for one in findings:
            if one.kind != silent:
                warnings.warn(one.message, UnbagWarning, stacklevel=4)

    def _name_by(self, shares: Tensor, rows: Rows) -> np.ndarray:
        """Name classes that the groups leave unnamed by their shares, which training may have left at other classes.

        Returns which class has become each.
        """
        expected = self._mixed_log_probs(rows).exp().mean(0)
        order = match_classes(-(shares[:, None] - expected).square().numpy(), self.symmetry_)
        self.orders_ = [own[order] for own in self.orders_]
        self.symmetry_ = "none"
        return order

    def _align(self, first: Tensor, other: Tensor) -> np.ndarray:
        """Return which outputs of another model mean the classes of the first, from probabilities of the same rows."""
        return match_classes((first.T @ other).numpy(), self.symmetry_)


def _prepare(
    choices: dict[str, Any], rows: Rows, observations: Sequence[Observations], seed: int
) -> Prepared | CrossPrepared:
    return prepare_folds(choices, rows, observations, seed) or prepare(choices, rows, observations, seed)
