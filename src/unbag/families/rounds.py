"""Models that are fitted round by round: when to stop, which round is best, and which of several starts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from unbag.diagnostics.constant import constant_probs
from unbag.families.base import Fitted, Model
from unbag.families.starts import is_unnamed
from unbag.training import LogProgress, Observations, Plateau, ProgressBar, Trained, held_out_likelihood
from unbag.training.best import OutOfReach
from unbag.training.trained import side_by_side

# So many rounds tell which of several starts is best; they must be more than those that learn a first guess.
TRIAL = 30

Start = Callable[[float], "Learner"]
"""From the time at which to be ready, as :func:`time.monotonic` has it, to a model in the making."""


class Learner(Protocol):
    """A model in the making."""

    @property
    def starting(self) -> bool:
        """Whether it still learns a first guess."""

    def learn(self) -> float | None:
        """Do a round, and return the loss before it; None where nothing more can be learned."""

    def held_out_logits(self) -> Tensor | None:
        """Return the logits of the held-out rows, ``(rows, classes)``; None where there are none."""

    def model(self, n_rounds: int) -> Model:
        """Return the model after so many rounds."""


@dataclass(eq=False)
class Run:
    """The rounds of one learner."""

    learner: Learner
    score: Callable[[Tensor], float]
    """From logits of held-out rows to their score."""
    history: list[dict[str, Any]] = field(default_factory=list)
    best_round: int = 0
    best_score: float = -float("inf")
    first: int = 0
    """The first round after those that learn a first guess."""
    finished: bool = False
    goal: float | None = None
    """What ends it once it is out of reach."""

    def go_on(self, until: int, patience: int | None, deadline: float, progress: LogProgress, most: int) -> Run:
        """Do rounds until there are so many, nothing improves any more, or time is up; one at least."""
        while not self.finished and len(self.history) < until:
            if self.history and time.monotonic() > deadline:
                break
            begun, starting, place = time.perf_counter(), self.learner.starting, len(self.history)
            loss = self.learner.learn()
            if loss is None:
                self.finished = True
                break
            self.first = place + 1 if starting else self.first
            logits = self.learner.held_out_logits()
            score = None if logits is None else self.score(logits)
            if score is None or score > self.best_score:
                self.best_round, self.best_score = place, -loss if score is None else score
            entry = {
                "epoch": place,
                "phase": "first guess" if starting else "likelihood",
                "loss": [loss],
                "score": None if score is None else [score],
                "seconds": time.perf_counter() - begun,
            }
            self.history.append(entry)
            progress.epoch(self.history, most)
            if patience is not None:
                rule: Any = Plateau(patience, self.first)
                if self.goal is not None:  # near a constant, groups tell little, and progress may begin slowly
                    rule = OutOfReach(self.goal, most, most // 2, rule)
                self.finished = bool(torch.as_tensor(rule(None, self.history)))
        return self

    @property
    def trained(self) -> Trained:
        """The model of the best round."""
        scored = bool(self.history) and self.history[0]["score"] is not None
        model = self.learner.model(self.best_round + 1)
        return Trained([model], self.history, [self.best_round], [self.best_score] if scored else None)


def fit_rounds(
    starts: Callable[[int], Sequence[Start]],
    X: Tensor,
    used: Sequence[Observations],
    held_out: Sequence[Observations],
    seeds: Sequence[int],
    *,
    most: int,
    patience: int | None,
    time_limit: float | None,
    goal: float | None,
    verbose: bool,
) -> Fitted:
    """Fit one model for each seed, from the best of its starts.

    Parameters
    ----------
    starts
        From a seed to what makes learners that begin differently.
    X, used, held_out, goal
        As in :meth:`unbag.families.Family.fit`.
    seeds
        One for each replica.
    most
        Rounds at most.
    patience
        Stop after so many rounds without progress; None never does.
    time_limit
        Seconds for all; each replica gets a round at least.
    verbose
        Show a progress bar in a terminal.
    """
    begun, limit = time.monotonic(), float("inf") if time_limit is None else time_limit
    likelihood = held_out_likelihood(X, held_out) if held_out else None

    def score(logits: Tensor) -> float:
        assert likelihood is not None
        return likelihood(lambda _: logits[None]).item()

    runs = []
    for place, seed in enumerate(seeds):
        deadline = begun + limit * (place + 1) / len(seeds)
        makers, tried = starts(seed), list[Run]()
        with ProgressBar() if verbose else LogProgress() as progress:
            for number, make in enumerate(makers):
                now = time.monotonic()
                if tried and now > deadline:
                    break
                ready = now + (deadline - now) / (len(makers) - number + 1)
                tried.append(Run(make(ready), score, goal=goal))
                if len(makers) > 1:
                    tried[-1].go_on(min(TRIAL, most), None, ready, progress, most)
            best = max(tried, key=lambda one: one.best_score)
            runs.append(best.go_on(most, patience, deadline, progress, most).trained)
    trained = side_by_side(runs)
    scores = trained.best_score
    if scores is None:
        scores = held_out_likelihood(X, used)(
            lambda rows: torch.stack([model.log_probs(rows) for model in trained.models])
        ).tolist()
    return Fitted(trained, ["none"] * len(runs), scores)


def constant_logits(used: Sequence[Observations]) -> Tensor:
    """Return the logits of the shares of the classes, ``(classes,)``, none of them ruled out; all alike if unnamed."""
    k = used[0].n_classes
    if is_unnamed(used):
        return torch.zeros(k, dtype=torch.float64)
    n = sum(len(one.groups.members) for one in used)
    shares = constant_probs(used).double()
    return ((shares * n + 0.5) / (n + 0.5 * k)).log()
