"""Networks: torch modules that the training loop fits, replicas side by side."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from unbag.families.base import Fitted
from unbag.families.folds import Fold
from unbag.families.starts import guess_classes
from unbag.parts import join
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
from unbag.training.identity import digest
from unbag.training.row_source import Rows, TakenRows, gather_rows, some_of
from unbag.training.scaling import Scaling, ScalingName, fit_scaling
from unbag.training.selection import out_of_fold_likelihood, take_rows

ROWS_AT_ONCE = 8192

# Of learning a guess: enough to tell clusters apart, and few enough to be soon done.
GUESS_STEPS, GUESS_ROWS, GUESS_RATE = 200, 512, 5e-3
# Of rows on disk, so many are clustered.
ROWS_OF_GUESS = 100_000


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
    guess: bool = False
    """Whether every second restart begins with a guess of the classes by k-means, rather than at random."""
    hooks: dict[str, Any] = field(default_factory=dict)
    """What the loop takes in place of its defaults: optimiser, schedule, stopping, views; see there."""

    def fit(
        self,
        X: Rows,
        used: Sequence[Observations],
        held_out: Sequence[Observations],
        seed: int,
        time_limit: float | None = None,
    ) -> Fitted:
        """Train one replica for each scaling."""
        return self.fit_folds(X, [Fold(list(used), list(held_out))], seed, time_limit)[0]

    def fit_folds(self, X: Rows, folds: Sequence[Fold], seed: int, time_limit: float | None = None) -> list[Fitted]:
        """Train one replica for each fold and scaling, all side by side."""
        replicas = [(fold, scaling) for fold in folds for scaling in self.scalings]
        seeds, n = [seed + replica for replica in range(len(replicas))], len(self.scalings)
        used: list[Observations | Sequence[Observations]]
        if len(folds) == 1:
            used, held_out = [*folds[0].used], folds[0].held_out
            score = held_out_likelihood(X, held_out) if held_out else None
        else:
            used = [[fold.used[place] for fold, _ in replicas] for place in range(len(folds[0].used))]
            score = out_of_fold_likelihood(X, [fold.held_out for fold, _ in replicas])
        trained = train(
            [make for place, fold in enumerate(folds) for make in self._makers(X, fold, seeds[place * n :][:n])],
            X,
            used,
            self.settings,
            seeds=seeds,
            score=score,
            checkpoint=self._checkpoint(X, folds, seeds),
            progress=ProgressBar() if self.verbose else LogProgress(),
            objective=self.objective,
            **self._hooks(time_limit, scored=score is not None),
        )
        scores = trained.best_score
        if scores is None:
            scores = held_out_likelihood(X, folds[0].used)(partial(_logits, trained.models)).tolist()
        return [
            Fitted(trained.take(range(first, first + n)), self.scalings, scores[first : first + n])
            for first in range(0, len(replicas), n)
        ]

    def _hooks(self, time_limit: float | None, *, scored: bool) -> dict[str, Any]:
        if time_limit is None:
            return self.hooks
        rule = self.hooks.get("stopping")
        if rule is None and scored and self.settings.patience is not None:
            rule = Patience(self.settings.patience, self.settings.patient_from)
        return {**self.hooks, "stopping": TimeLimit(time_limit) if rule is None else TimeLimit(time_limit, rule)}

    def _makers(self, X: Rows, fold: Fold, seeds: Sequence[int]) -> list[Callable[[], nn.Module]]:
        rows = torch.cat([one.groups.members for one in fold.used]).unique()
        trained_on = take_rows(X, rows) if isinstance(X, Tensor) else TakenRows(X, rows)
        fitted = {scaling: fit_scaling(trained_on, scaling) for scaling in self.scalings}
        makers: list[Callable[[], nn.Module]] = [
            partial(self._make_model, fitted[scaling]) for scaling in self.scalings
        ]
        if not self.guess:
            return makers
        if isinstance(trained_on, TakenRows):
            trained_on = gather_rows(X, some_of(rows, ROWS_OF_GUESS))
        restarts = [place // len(fitted) for place in range(len(makers))]
        return [
            partial(_learn_guess, make, trained_on, fold.used[0].n_classes, seed) if restart % 2 else make
            for make, restart, seed in zip(makers, restarts, seeds, strict=True)
        ]

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
            "guess": self.guess,
            "ensemble": self.ensemble,  # such fits are alike, but a search may run them side by side
        }
        parts = {name: digest(value, f"the {name}") for name, value in run.items()}
        return Checkpoint(Path(self.checkpoint) / digest(parts)[:16], seconds=5.0)


def _learn_guess(make: Callable[[], nn.Module], rows: Tensor, n_classes: int, seed: int) -> nn.Module:
    """Return a model that has learned the clusters of k-means as its classes, for observations to make better."""
    (guess,) = guess_classes(rows.numpy(force=True), n_classes, seed, n_random=0)
    model, random = make(), torch.Generator().manual_seed(seed)
    model.to(rows.device)
    guess = guess.to(rows.device, torch.float32)
    optimiser = torch.optim.Adam(model.parameters(), lr=GUESS_RATE)
    with torch.enable_grad():
        for _ in range(GUESS_STEPS):
            some = torch.randint(len(rows), (GUESS_ROWS,), generator=random).to(rows.device)
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(rows[some]), guess[some]).backward()
            optimiser.step()
    model.zero_grad(set_to_none=True)
    return model.cpu()


def _logits(models: Sequence[nn.Module], rows: Tensor) -> Tensor:
    with torch.no_grad():
        parts = [join((model(part) for part in rows.split(ROWS_AT_ONCE)), len(rows)) for model in models]
        return torch.stack(parts)
