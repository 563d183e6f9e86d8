"""Boosted trees: LightGBM with the gradient of the likelihood of groups."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unbag.families.base import Fitted
from unbag.families.rounds import Start, constant_logits, fit_rounds
from unbag.families.row_evidence import RowEvidence
from unbag.families.starts import guess_classes, is_unnamed, needs_guess
from unbag.training import Observations

# Rounds that learn a first guess, where observations tell nothing without one, and how often it is then made better by
# expectation-maximisation: trees that are learned anew follow the posterior further than trees that are added.
GUESS_ROUNDS, GUESSES = 20, 8

# A weight by which can be divided.
SMALLEST = torch.finfo(torch.float64).tiny

PARAMETERS = {
    "objective": "custom",
    "learning_rate": 0.2,
    "num_leaves": 15,
    "lambda_l2": 1.0,
    "feature_fraction": 0.8,
    "feature_pre_filter": False,
    "min_data_in_bin": 1,
    "deterministic": True,
    "force_col_wise": True,
    "verbosity": -1,
}


class Trees:
    """A fitted ensemble of trees.

    Parameters
    ----------
    booster
        Of LightGBM: one tree a round for two classes, the log-odds of class 1; otherwise one for each class.
    n_classes
        How many classes there are.
    """

    def __init__(self, booster: Any, n_classes: int) -> None:
        self.booster, self.n_classes = booster, n_classes

    @property
    def n_parameters(self) -> int:
        """How many leaves there are."""
        return sum(leaves_of(self.booster.model_to_string()))

    def log_probs(self, X: Tensor) -> Tensor:
        """Return the log-probability of each class for each row, ``(n, classes)``, in float64 on the CPU."""
        raw = self.booster.predict(as_table(X), raw_score=True, num_threads=torch.get_num_threads())
        return as_logits(raw, self.n_classes).log_softmax(-1)


@dataclass(frozen=True)
class BoostedTrees:
    """Boosted trees of one setting, from different seeds.

    Parameters
    ----------
    rounds
        How many at most; a round sees every group once.
    patience
        Stop after so many rounds without progress on held-out groups; None never does.
    n_restarts
        How many replicas, with different random numbers.
    verbose
        Show a progress bar in a terminal.
    """

    rounds: int = 200
    patience: int | None = 30
    n_restarts: int = 1
    verbose: bool = False

    def fit(
        self,
        X: Tensor,
        used: Sequence[Observations],
        held_out: Sequence[Observations],
        seed: int,
        time_limit: float | None = None,
        *,
        goal: float | None = None,
    ) -> Fitted:
        """Add trees round by round, along the gradient of the log-likelihood of the groups."""
        begun = time.monotonic()
        problem = _Problem(X, used, held_out)
        deadline = float("inf") if time_limit is None else begun + time_limit / 2

        def starts(seed: int) -> list[Start]:
            constant: list[Start] = [] if is_unnamed(used) else [lambda _: _Boosting(problem, None, seed)]
            guesses = guess_classes(as_table(X), used, held_out, seed, deadline=deadline) if needs_guess(used) else []
            return [*constant, *(partial(_guessed, problem, guess, seed) for guess in guesses)]

        seeds = [seed + replica for replica in range(self.n_restarts)]
        return fit_rounds(
            starts,
            X,
            used,
            held_out,
            seeds,
            most=self.rounds,
            patience=self.patience,
            time_limit=None if time_limit is None else max(time_limit - (time.monotonic() - begun), 0.0),
            goal=goal,
            verbose=self.verbose,
        )


class _Problem:
    """Rows as LightGBM reads them, and what was observed of their groups."""

    def __init__(self, X: Tensor, used: Sequence[Observations], held_out: Sequence[Observations]) -> None:
        self.evidence, self.k = RowEvidence(used), used[0].n_classes
        start = constant_logits(used).numpy()
        self.start = start[1:] - start[0] if self.k == 2 else start  # (1,) or (k,)
        self.table = as_table(X[self.evidence.rows])
        if not bool(((self.table != self.table[0]) & ~(np.isnan(self.table) & np.isnan(self.table[0]))).any()):
            raise ValueError(
                f"X is the same in all {len(self.table):,} rows of groups: trees have nothing to tell rows apart by; "
                "give columns that vary"
            )
        self.parameters = {
            **PARAMETERS,
            "num_class": len(self.start),
            "min_data_in_leaf": max(1, min(20, len(self.table) // 20)),
            "num_threads": torch.get_num_threads(),
        }
        self.data = self._as_data(self.table)
        self.held_out = self._as_data(as_table(X[RowEvidence(held_out).rows])) if held_out else None

    def _as_data(self, table: np.ndarray) -> Any:
        start = np.tile(self.start, (len(table), 1))
        return import_lightgbm().Dataset(
            table,
            reference=getattr(self, "data", None),
            init_score=start[:, 0] if self.k == 2 else start,
            params=self.parameters,
        )


class _Boosting:
    """Trees in the making: from the shares of the classes on, or from a first guess."""

    def __init__(self, problem: _Problem, guess: Tensor | None, seed: int) -> None:
        self.problem, self.guess, self.n_rounds = problem, guess, 0
        self.booster = import_lightgbm().Booster({**problem.parameters, "seed": seed}, problem.data)
        if problem.held_out is not None:
            self.booster.add_valid(problem.held_out, "held-out")

    @property
    def starting(self) -> bool:
        return self.guess is not None and self.n_rounds < GUESS_ROUNDS

    def learn(self) -> float | None:
        losses = []

        def objective(raw: np.ndarray, _: Any) -> tuple[np.ndarray, np.ndarray]:
            logits = as_logits(raw, self.problem.k)
            loss, grad, hess = gradient(self.problem.evidence, logits, self.guess if self.starting else None)
            losses.append(loss)
            return (grad[:, 1], hess[:, 1]) if self.problem.k == 2 else (grad, hess)

        if self.booster.update(fobj=objective) and self.n_rounds > 0:  # no leaf can be split any more
            return None
        self.n_rounds += 1
        return losses[0]

    def logits(self, *, held_out: bool) -> Tensor:
        """Return the logits of the rows, as LightGBM keeps them."""
        kept: list[Tensor] = []

        def keep(raw: np.ndarray, _: Any) -> tuple[str, float, bool]:
            kept.append(as_logits(raw, self.problem.k))
            return "kept", 0.0, True

        (self.booster.eval_valid if held_out else self.booster.eval_train)(keep)
        return kept[0]

    def held_out_logits(self) -> Tensor | None:
        return None if self.problem.held_out is None else self.logits(held_out=True)

    def model(self, n_rounds: int) -> Trees:
        """Return the trees of the first rounds; the shares of the classes become part of the first trees."""
        text = self.booster.model_to_string(num_iteration=n_rounds)
        booster = import_lightgbm().Booster(model_str=text)
        for tree, (n_leaves, start) in enumerate(zip(leaves_of(text), self.problem.start.tolist(), strict=False)):
            for leaf in range(n_leaves):
                booster.set_leaf_output(tree, leaf, booster.get_leaf_output(tree, leaf) + start)
        return Trees(booster, self.problem.k)


def _guessed(problem: _Problem, guess: Tensor, seed: int, ready: float) -> _Boosting:
    """Return trees that begin with a guess, after it was made better as often as there is time for."""
    for _ in range(GUESSES):
        learner = _Boosting(problem, guess, seed)
        while learner.starting and time.monotonic() < ready and learner.learn() is not None:
            pass
        if time.monotonic() >= ready:
            break
        _, posterior = problem.evidence.infer(learner.logits(held_out=False).float())
        guess = posterior / problem.evidence.row_weights[:, None].clamp_min(SMALLEST)
    return _Boosting(problem, guess, seed)


def gradient(
    evidence: RowEvidence, logits: Tensor, guess: Tensor | None = None
) -> tuple[float, np.ndarray, np.ndarray]:
    """Return the negative log-likelihood per group, and its gradient and curvature in the logits of each row.

    The gradient is ``softmax - posterior``, by Fisher's identity, added up over the groups of a row; the curvature is
    that of a row whose class is known.

    Parameters
    ----------
    evidence
        The observed groups.
    logits
        Of their rows, ``(rows, classes)``.
    guess
        A distribution over classes for each row that is learned in place of the posterior.
    """
    weights, log_probs = evidence.row_weights[:, None], logits.double().log_softmax(-1)
    if guess is None:
        log_likelihood, expected = evidence.infer(logits.float())
    else:
        expected = weights * guess
        log_likelihood = float((expected * log_probs).sum() / evidence.total)
    probs = log_probs.exp()
    return -log_likelihood, (weights * probs - expected).numpy(), (weights * probs * (1 - probs)).numpy()


def leaves_of(text: str) -> list[int]:
    """Return how many leaves each tree has, from LightGBM's own text."""
    return [int(number) for number in re.findall(r"^num_leaves=(\d+)$", text, re.MULTILINE)]


def as_table(X: Tensor) -> np.ndarray:
    """Return rows of any shape as a table of numpy."""
    return X.reshape(len(X), -1).numpy(force=True)


def as_logits(raw: np.ndarray, n_classes: int) -> Tensor:
    """Return logits of each class, ``(rows, classes)``, from what LightGBM has: for two classes the log-odds of one."""
    scores = torch.from_numpy(np.ascontiguousarray(raw, dtype=np.float64))
    return torch.stack([torch.zeros_like(scores), scores], 1) if n_classes == 2 else scores.reshape(-1, n_classes)


def has_lightgbm() -> bool:
    """Whether LightGBM is installed."""
    return find_spec("lightgbm") is not None


def import_lightgbm() -> Any:
    """Return the module, or say how to install it."""
    try:
        import lightgbm  # noqa: PLC0415 (an extra)
    except ImportError as error:
        raise ImportError("model='trees' needs LightGBM, which is not there: pip install unbag[trees]") from error
    return lightgbm
