"""Networks: torch modules that the training loop fits, replicas side by side."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from unbag._utils.parts import join
from unbag._utils.random_state import RandomState
from unbag.data.row_source import Rows, TakenRows, put_on
from unbag.data.scaling import Scaling, ScalingName, fit_scaling
from unbag.families.base import Fitted
from unbag.families.count_clusters import CountClusters
from unbag.families.folds import Fold
from unbag.families.starts import guess_classes
from unbag.training import (
    Checkpoint,
    LogProgress,
    Objective,
    Observations,
    Patience,
    ProgressBar,
    Settings,
    TimeLimit,
    held_out_likelihood,
    train,
)
from unbag.training.best import OutOfReach
from unbag.training.excerpts import excerpt
from unbag.training.identity import digest
from unbag.training.launching import Launcher
from unbag.training.processes import Processes
from unbag.training.replicas import named_tensors, unstack
from unbag.training.selection import out_of_fold_likelihood, take_rows
from unbag.training.threads import threads_for_step
from unbag.training.trained import Trained

ROWS_AT_ONCE = 8192

# Of learning a guess: enough to tell clusters apart, and few enough to be soon done.
GUESS_STEPS, GUESS_ROWS, GUESS_RATE = 200, 512, 5e-3


class Network(nn.Sequential):
    """A scaling, and a module from scaled rows to logits."""

    def __init__(self, scaling: Scaling, net: nn.Module) -> None:
        super().__init__(scaling, net)

    @property
    def n_parameters(self) -> int:
        """How many weights there are."""
        return sum(weight.numel() for weight in self.parameters())

    def log_probs(self, X: Tensor) -> Tensor:
        """Return the log-probability of each class for each row, ``(n, classes)``, in float64 on the CPU."""
        device = next(self.buffers()).device
        with torch.no_grad():
            logits = (self(part.to(device)) for part in X.split(ROWS_AT_ONCE))
            return join((part.cpu().double().log_softmax(-1) for part in logits), len(X))


@dataclass(frozen=True, eq=False)
class Networks:
    """Networks of one architecture, with different scalings and first weights."""

    make_net: Callable[[], nn.Module]
    """Returns a new model of scaled rows."""
    settings: Settings
    scalings: list[ScalingName]
    """Of each replica."""
    ensemble: bool = False
    verbose: bool = False
    checkpoint: str | Path | None = None
    objective: Objective | None = None
    """What is minimised in place of what the settings say; see :func:`unbag.training.train`."""
    early_stopping: bool = True
    """Whether left-out groups choose when to stop, and the best state of each replica; otherwise the last is kept."""
    guess: Literal["comparisons", "counts"] | None = None
    """By which kind of observations every second restart, from the first on, begins with a guess of the classes, rather
    than at random."""
    hooks: dict[str, Any] = field(default_factory=dict)
    """What the loop takes in place of its defaults: optimiser, schedule, stopping, views; see there."""
    launcher: Launcher = field(default_factory=Launcher)
    """Of the processes that train them."""

    def fit(
        self,
        X: Rows,
        used: Sequence[Observations],
        held_out: Sequence[Observations],
        seed: int,
        time_limit: float | None = None,
        *,
        goal: float | None = None,
    ) -> Fitted:
        """Train one replica for each scaling."""
        return self.fit_folds(X, [Fold(list(used), list(held_out))], seed, time_limit, goal=goal)[0]

    def fit_folds(
        self,
        X: Rows,
        folds: Sequence[Fold],
        seed: int,
        time_limit: float | None = None,
        *,
        goal: float | None = None,
    ) -> list[Fitted]:
        """Train one replica for each fold and scaling, all side by side."""
        if not self.launcher.several:
            return self._fit_folds(X, folds, seed, time_limit, Processes(), goal=goal)
        described = self.launcher.run(partial(self._fit_in_process, goal=goal), X, folds, seed, time_limit)
        return [self._from_plain(one) for one in described]

    def _fit_in_process(
        self,
        X: Rows,
        folds: Sequence[Fold],
        seed: int,
        time_limit: float | None,
        processes: Processes,
        *,
        goal: float | None,
    ) -> list[dict[str, Any]]:
        """Train together with other processes, and return weights and numbers rather than models."""
        if str(X.device) != processes.device:
            X, folds = put_on(X, processes.device), [fold.to(processes.device) for fold in folds]
        return [_as_plain(one) for one in self._fit_folds(X, folds, seed, time_limit, processes, goal=goal)]

    def _from_plain(self, described: dict[str, Any]) -> Fitted:
        """Return what :func:`_as_plain` has described, with models made here."""
        models: list[nn.Module] = []
        for weights in described.pop("weights"):
            scaling = Scaling(weights["0.shift"], weights["0.factor"])
            with RandomState(0).in_place():  # the first weights are overwritten
                model = self._make_model(scaling)
            models += unstack([model], {name: tensor[None] for name, tensor in weights.items()})
        models = [model.to(self.launcher.device) for model in models]
        scalings, scores = described.pop("scalings"), described.pop("scores")
        return Fitted(Trained(models, **described), scalings, scores)

    def _fit_folds(
        self,
        X: Rows,
        folds: Sequence[Fold],
        seed: int,
        time_limit: float | None,
        processes: Processes,
        *,
        goal: float | None,
    ) -> list[Fitted]:
        replicas = [(fold, scaling) for fold in folds for scaling in self.scalings]
        seeds, n = [seed + replica for replica in range(len(replicas))], len(self.scalings)
        used: list[Observations | Sequence[Observations]]
        if len(folds) == 1:
            used, held_out = [*folds[0].used], folds[0].held_out
            score = held_out_likelihood(X, held_out) if held_out else None
        else:
            used = [[fold.used[place] for fold, _ in replicas] for place in range(len(folds[0].used))]
            score = out_of_fold_likelihood(X, [fold.held_out or fold.used for fold, _ in replicas])
        begun, makers = time.monotonic(), []
        deadline = float("inf") if time_limit is None else begun + time_limit / 2
        guesses = _Guesses(X, seed, deadline, of_counts=self.guess == "counts")
        for place, fold in enumerate(folds):
            makers += self._makers(X, fold, seeds[place * n :][:n], guesses)
        if time_limit is not None:
            time_limit = max(time_limit - (time.monotonic() - begun), 0.0)
        trained = train(
            makers,
            X,
            used,
            self.settings,
            seeds=seeds,
            score=score if self.early_stopping else None,
            checkpoint=self._checkpoint(X, folds, seeds),
            progress=ProgressBar() if self.verbose and processes.first else LogProgress(),
            processes=processes,
            objective=self.objective,
            **self._hooks(time_limit, goal, scored=self.early_stopping and score is not None),
        )
        scores = trained.best_score
        if scores is None:
            score = score or held_out_likelihood(X, folds[0].used)
            scores = score(partial(_logits, trained.models)).tolist()
        return [
            Fitted(trained.take(range(first, first + n)), self.scalings, scores[first : first + n])
            for first in range(0, len(replicas), n)
        ]

    def _hooks(self, time_limit: float | None, goal: float | None, *, scored: bool) -> dict[str, Any]:
        rule = self.hooks.get("stopping")
        if rule is None and scored and self.settings.patience is not None:
            rule = Patience(self.settings.patience, self.settings.patient_from)
        # What the caller wants to be trained to its end, is, and so is what nothing judges meanwhile.
        if goal is not None and rule is not None and scored and self.settings.steps is not None:
            n = self.settings.epochs
            rule = OutOfReach(goal, n, n // 10, rule, len(self.scalings))
        if time_limit is not None:
            rule = TimeLimit(time_limit) if rule is None else TimeLimit(time_limit, rule)
        return {**self.hooks, "stopping": rule}

    def _makers(self, X: Rows, fold: Fold, seeds: Sequence[int], guesses: _Guesses) -> list[Callable[[], nn.Module]]:
        trained_on = _rows_in(X, fold.used)
        fitted = {scaling: fit_scaling(trained_on, scaling) for scaling in self.scalings}
        makers: list[Callable[[], nn.Module]] = []
        for place, scaling in enumerate(self.scalings):
            make, restart = partial(self._make_model, fitted[scaling]), place // len(fitted)
            if self.guess is not None and restart % 2 == 0:
                if place % len(fitted) == 0:  # one for all scalings
                    learned, guess = guesses.of(fold, seeds[place])
                make = partial(_learn_guess, make, learned, guess, seeds[place], guesses.deadline)
            makers.append(make)
        return makers

    def _make_model(self, scaling: Scaling) -> nn.Module:
        return Network(copy.deepcopy(scaling), self.make_net())

    def _checkpoint(self, X: Rows, folds: Sequence[Fold], seeds: list[int]) -> Checkpoint | None:
        """Return a place for this run alone: a fold must not go on where another was."""
        if self.checkpoint is None:
            return None
        run = {
            "settings": self.settings,
            "scaling": self.scalings,
            "seeds": seeds,
            "rows": X,
            "observations": [[fold.used, fold.held_out] for fold in folds],
            "model": self.make_net,
            "objective": self.objective,
            "hooks": self.hooks,
            "early_stopping": self.early_stopping,
            "guess": self.guess,
            "ensemble": self.ensemble,  # such fits are alike, but a search may run them side by side
        }
        parts = {name: digest(value, f"the {name}") for name, value in run.items()}
        return Checkpoint(Path(self.checkpoint) / digest(parts)[:16], seconds=5.0)


def _as_plain(fitted: Fitted) -> dict[str, Any]:
    """Return scores, history and the weights of each model, without code."""
    trained = fitted.trained
    return {
        "weights": [named_tensors(model) for model in trained.models],
        "history": trained.history,
        "best_epoch": trained.best_epoch,
        "best_score": trained.best_score,
        "scalings": fitted.scalings,
        "scores": fitted.scores,
    }


def _rows_in(X: Rows, sets: Sequence[Observations]) -> Tensor | TakenRows:
    rows = _members(sets)
    return take_rows(X, rows) if isinstance(X, Tensor) else TakenRows(X, rows)


@dataclass(eq=False)
class _Guesses:
    """Guesses of the classes of rows by the groups that folds learn from."""

    X: Rows
    seed: int
    deadline: float
    of_counts: bool
    _clusters: CountClusters | None = None  # of the rows of all groups, whichever are learned from
    _last: tuple[Fold, tuple[Tensor, Tensor]] | None = None

    def of(self, fold: Fold, seed: int) -> tuple[Tensor, Tensor]:
        """Return rows in groups that are learned from, all or, of rows on disk, some, and a guess of their classes."""
        if not self.of_counts:
            return self._by_comparisons(fold, seed)
        if self._last is None or self._last[0] is not fold:
            self._last = fold, self._by_counts(fold)
        return self._last[1]

    def _by_comparisons(self, fold: Fold, seed: int) -> tuple[Tensor, Tensor]:
        table, sets = excerpt(self.X, [*fold.used, *fold.held_out])
        used, held_out = sets[: len(fold.used)], sets[len(fold.used) :]
        (guess,) = guess_classes(table.numpy(force=True), used, held_out, seed, n_random=0, deadline=self.deadline)
        return take_rows(table, _members(used)), guess

    def _by_counts(self, fold: Fold) -> tuple[Tensor, Tensor]:
        assert isinstance(self.X, Tensor)  # of rows on disk, nothing is chosen among
        if self._clusters is None:
            self._clusters = CountClusters.of(self.X, [*fold.used, *fold.held_out], self.seed, self.deadline)
        rows = _members(fold.used)
        guess = self._clusters.guess(fold.used, self.deadline)[torch.searchsorted(self._clusters.rows, rows.cpu())]
        return take_rows(self.X, rows), guess


def _members(sets: Sequence[Observations]) -> Tensor:
    """Return the rows that are in any group, each once."""
    return torch.cat([one.groups.members for one in sets]).unique()


def _learn_guess(
    make: Callable[[], nn.Module], rows: Tensor, guess: Tensor, seed: int, deadline: float = float("inf")
) -> nn.Module:
    """Return a model that has learned a guess of the classes of rows, for observations to make better."""
    model, random = make(), torch.Generator().manual_seed(seed)
    model.to(rows.device)
    guess = guess.to(rows.device, torch.float32)
    optimiser = torch.optim.Adam(model.parameters(), lr=GUESS_RATE)
    n_parameters = sum(weight.numel() for weight in model.parameters())
    with torch.enable_grad(), threads_for_step(rows, GUESS_ROWS, n_parameters):
        for _ in range(GUESS_STEPS):
            if time.monotonic() > deadline:
                break
            some = torch.randint(len(rows), (GUESS_ROWS,), generator=random).to(rows.device)
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(rows[some]), guess[some]).backward()
            optimiser.step()
    model.zero_grad(set_to_none=True)
    return model.cpu()


def _logits(models: Sequence[nn.Module], rows: Tensor, *, own: bool = False) -> Tensor:
    """Return the logits of all models for the same rows, or with ``own``, of each for its own ones."""
    with torch.no_grad():
        inputs = rows if own else [rows] * len(models)
        parts = [
            join((model(part) for part in of_model.split(ROWS_AT_ONCE)), len(of_model))
            for model, of_model in zip(models, inputs, strict=True)
        ]
        return torch.stack(parts)
