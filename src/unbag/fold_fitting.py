"""From the estimator's parameters to the candidates of a fit over folds, and what is fitted where time is short."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from unbag.families import Family, Fitted, Networks
from unbag.families.base import are_few_labels
from unbag.families.choice import (
    AUTO,
    CANDIDATES,
    CLUSTERS,
    EXTRA_TREES,
    KERNEL,
    MATCH,
    TREES,
    architecture,
    in_order,
)
from unbag.families.components import MOST_COLUMNS, is_wide
from unbag.families.cross_fit import Align, CrossFitted, cross_fit
from unbag.families.extra_trees import ExtraTrees
from unbag.families.folds import Fold, make_folds, number_folds, tell_of_each_other
from unbag.families.kernel import KernelLogistic
from unbag.families.trees import has_lightgbm
from unbag.fit_settings import as_int
from unbag.fitting import HOOKS, Prepared, choose_scalings, make_family, most_groups, prepare, read_time_limit
from unbag.objectives.objective import match_proportions
from unbag.out_of_fold import are_too_few
from unbag.training import Objective, Observations, Plateau
from unbag.training.trained import side_by_side

OF_FEW_LABELS: dict[str, type[Family]] = {EXTRA_TREES: ExtraTrees, KERNEL: KernelLogistic}
"""Candidates that have no parameters."""

# Of more groups, networks learn as much without clusters. Where no group tells when to stop, those that begin with
# clusters end with the first look that brings little, and after a few at the latest: then they learn counts by heart.
GROUPS_OF_CLUSTERS, LOOKS_AFTER_CLUSTERS = 100, 5

# Every round of boosting has a tree for each class.
MOST_CLASSES_OF_TREES = 64

# Where groups are few, each is a large part of what can be learned, and fewer of them are spared at a time.
N_FOLDS, N_FOLDS_OF_FEW, FEW_GROUPS = 4, 8, 40

# Where time is limited, all folds are fitted if what is left is enough for so many fits of one network to each: by two
# scalings, and as many by other candidates. Otherwise, one more network is fitted while there is this part of the time
# that the longest one took: some kinds take far less, and one that is cut off early says little of any class.
FITS_OF_A_FOLD, PART_OF_A_FIT = 2, 0.2


@dataclass(frozen=True, eq=False)
class CrossPrepared:
    """Everything that a fit over folds needs, checked."""

    candidates: dict[str, Family]
    X: Tensor
    observations: list[Observations]
    n_folds: int
    seed: int
    choose: bool
    """Whether left-out groups choose when to stop, and among candidates."""
    time_limit: float | None
    in_turn: list[Prepared] = field(default_factory=list)
    """What is fitted where time is limited, one network after the other, to one split of the groups."""
    folds_in_turn: list[Fold] = field(default_factory=list)
    """What each of these leaves out, another fold, where groups are too few to hold out any from all of them."""

    def train(self, align: Align) -> CrossFitted | Fitted:
        """Fit every candidate on all folds but one in turn, or where that would take too long, networks one by one.

        Of these there are as many as there is time for, of different kinds, because these make different errors.
        """
        if not self.in_turn or self.time_limit is None:
            return self._cross_fit(align, self.time_limit)
        left, longest, fits = self.time_limit, 0.0, list[Fitted]()
        while not fits or left > longest * PART_OF_A_FIT:
            begun = time.monotonic()
            one = self.in_turn[len(fits) % len(self.in_turn)]
            if self.folds_in_turn:
                fold = self.folds_in_turn[len(fits) % len(self.folds_in_turn)]
                one = replace(one, used=fold.used, held_out=fold.held_out)
            fits.append(replace(one, seed=self.seed + len(fits), time_limit=left).train())
            taken = time.monotonic() - begun
            left, longest = left - taken, max(longest, taken)
            if len(fits) == 1 and left >= taken * self.n_folds * FITS_OF_A_FOLD:
                return self._cross_fit(align, left)
        trained = side_by_side([one.trained.take([one.best]) for one in fits])
        return Fitted(trained, [one.scalings[one.best] for one in fits], [one.scores[one.best] for one in fits])

    def _cross_fit(self, align: Align, time_limit: float | None) -> CrossFitted:
        return cross_fit(
            self.candidates,
            self.X,
            self.observations,
            align,
            n_folds=self.n_folds,
            seed=self.seed,
            choose=self.choose,
            time_limit=time_limit,
        )


def prepare_folds(
    choices: dict[str, Any], X: Any, observations: Sequence[Observations], seed: int
) -> CrossPrepared | None:
    """Check all that the estimator was told of a fit over folds; None where there is one split of the groups.

    Parameters are those of :func:`unbag.fitting.prepare`.
    """
    if not 0 <= choices["validation_fraction"] < 1:
        given = choices["validation_fraction"]
        raise ValueError(f"validation_fraction must be at least 0 and less than 1, got {given!r}")
    n_folds, model = as_int(choices["n_folds"]), choices["model"]
    automatic = isinstance(model, str) and model == AUTO
    if n_folds == AUTO:
        n_folds = (N_FOLDS_OF_FEW if most_groups(observations) <= FEW_GROUPS else N_FOLDS) if automatic else None
    if n_folds is None:
        if automatic:
            raise ValueError('model="auto" chooses by left-out groups: give n_folds of at least 2, or name a model')
        return None
    if not isinstance(n_folds, int) or n_folds < 2:
        raise ValueError(f"n_folds must be a whole number of at least 2, or None, got {n_folds!r}")
    counting = [one.counting() for one in observations]
    if all(len(one.groups) == 1 for one in counting):
        raise ValueError(
            "a single group cannot be left out to choose by; name a model and give n_folds=None, or collect more groups"
        )
    names = _candidates(X, counting, by_progress=choices["epochs"] == AUTO) if automatic else []
    choose = not automatic or choices["epochs"] != AUTO or choices["patience"] != AUTO or tell_of_each_other(counting)
    if automatic and bool(X.isnan().any()):
        names, choose = [name for name in names if name == TREES], True
        if not names:
            raise ValueError("X holds NaN, which only trees of tables can read; leave out or fill in what is missing")
    elif not choose:
        of_few = ("linear", CLUSTERS) if CLUSTERS in names else ("linear", "mlp", MATCH)  # trees must be stopped
        names = [name for name in names if name in of_few]
    if automatic:
        candidates = {name: _candidate(name, choices, X, counting, can_choose=choose) for name in names}
    else:
        called = model if isinstance(model, str) else getattr(model, "__name__", type(model).__name__)
        candidates = {called: make_family(choices, X, counting, can_choose=choose)}
    prepared = CrossPrepared(candidates, X, counting, n_folds, seed, choose, read_time_limit(choices))
    if prepared.time_limit is None or not automatic or choices["n_folds"] != AUTO or bool(X.isnan().any()):
        return prepared
    return _with_turns(prepared, choices, observations, names)


def _candidate(
    name: str, choices: dict[str, Any], X: Tensor, observations: Sequence[Observations], *, can_choose: bool
) -> Family:
    """Return one of the models that an automatic one chooses from."""
    if made := OF_FEW_LABELS.get(name):
        return made()
    own = {**choices, "model": architecture(name)}
    if name == TREES:  # on the processor; interrupted, they begin anew, which is soon done
        own |= {"checkpoint": None, "device": "cpu", "devices": 1, "nodes": 1, **dict.fromkeys(HOOKS)}
    family = make_family(own, X, observations, _objective(name), can_choose=can_choose)
    return _from_clusters(family, choices, can_choose=can_choose) if name == CLUSTERS else family


def _with_turns(
    prepared: CrossPrepared, choices: dict[str, Any], observations: Sequence[Observations], names: Sequence[str]
) -> CrossPrepared:
    """Check all of a fit by networks of different kinds in turn, with one scaling, to one split of the groups or folds.

    Parameters
    ----------
    prepared
        What is fitted where there is time.
    choices, observations
        Those of :func:`prepare_folds`.
    names
        Of the candidates.
    """
    counting, folds = prepared.observations, list[Fold]()
    can_choose = tell_of_each_other(counting)
    # So few groups spare none for all networks, which then would learn their counts by heart.
    if can_choose and are_too_few(counting):
        folds = make_folds(counting, [number_folds(one, prepared.n_folds, prepared.seed) for one in counting])
    # Of more than a few groups, clusters bring less than the further networks that their time is enough for.
    of_many = can_choose and most_groups(observations) > FEW_GROUPS
    first, *others = in_order([one for one in names if one != CLUSTERS or not of_many])
    turns = [first, *(name for name in (MATCH, "mlp") if name in others and can_choose)]
    scaling = choose_scalings(choices["scaling"], can_choose=False)[0]
    in_turn = []
    for name in turns:
        own = {**choices, "model": architecture(name), "scaling": scaling}
        one = replace(prepare(own, prepared.X, observations, prepared.seed, objective=_objective(name)), short=True)
        if folds:
            one = replace(one, family=_candidate(name, own, prepared.X, counting, can_choose=True))
        elif name == CLUSTERS:
            one = replace(one, family=_from_clusters(one.family, choices, can_choose=can_choose))
        in_turn.append(one)
    return replace(prepared, in_turn=in_turn, folds_in_turn=folds)


def _objective(name: str) -> Objective | None:
    """Return what a candidate minimises in place of what its settings say."""
    return match_proportions if name == MATCH else None


def _candidates(X: Tensor, observations: Sequence[Observations], *, by_progress: bool) -> list[str]:
    """Return the models that an automatic one chooses from; with a number of epochs, all begin at random."""
    counted = all(one.aggregate.outcome == "class_counts" for one in observations)
    if is_wide(X) and X.shape[1] > MOST_COLUMNS:
        return [CANDIDATES[0]]
    grouped = counted and any(one.groups.max_size > 1 for one in observations)
    few = are_few_labels(X, observations)
    fit = {
        TREES: X.ndim == 2 and has_lightgbm() and observations[0].n_classes <= MOST_CLASSES_OF_TREES,
        EXTRA_TREES: few and has_lightgbm(),
        KERNEL: few,
        MATCH: grouped,
        CLUSTERS: by_progress and grouped and not is_wide(X) and most_groups(observations) <= GROUPS_OF_CLUSTERS,
    }
    return [name for name in CANDIDATES if fit.get(name, True)]


def _from_clusters(networks: Family, choices: dict[str, Any], *, can_choose: bool) -> Networks:
    """Let networks begin with clusters, and end with the first look that brings little where groups cannot choose."""
    assert isinstance(networks, Networks)
    networks = replace(networks, guess="counts")
    if can_choose:
        return networks
    settings = replace(networks.settings, epochs=LOOKS_AFTER_CLUSTERS, warm_up=LOOKS_AFTER_CLUSTERS)
    rule = choices["stopping"] or Plateau(1)
    return replace(networks, settings=settings, hooks={**networks.hooks, "stopping": rule})
