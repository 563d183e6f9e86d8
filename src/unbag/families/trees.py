"""Boosted trees: LightGBM with the gradient of the likelihood of groups."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unbag.families.base import Fitted
from unbag.families.rounds import Learner, constant_logits, fit_rounds, needs_guess
from unbag.families.row_evidence import RowEvidence
from unbag.families.starts import guess_classes
from unbag.training import Observations

# Rounds that learn a first guess, where observations tell nothing without one.
GUESS_ROUNDS = 8

PARAMETERS = {
    "objective": "custom",
    "learning_rate": 0.1,
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
        return sum(map(int, re.findall(r"^num_leaves=(\d+)$", self.booster.model_to_string(), re.MULTILINE)))

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
    ) -> Fitted:
        """Add trees round by round, along the gradient of the log-likelihood of the groups."""
        _lightgbm()
        evidence = RowEvidence(used)
        table, start = as_table(X[evidence.rows]), constant_logits(used)
        if not bool(((table != table[0]) & ~(np.isnan(table) & np.isnan(table[0]))).any()):
            raise ValueError(
                f"X is the same in all {len(table):,} rows of groups: trees have nothing to tell rows apart by; give "
                "columns that vary"
            )
        held = as_table(X[RowEvidence(held_out).rows]) if held_out else None

        def starts(seed: int) -> list[Learner]:
            guesses: list[Tensor | None] = [None]
            if needs_guess(used):
                guesses = [*guess_classes(table, len(start), seed)]
            return [_Boosting(table, held, evidence, start, guess, seed) for guess in guesses]

        seeds = [seed + replica for replica in range(self.n_restarts)]
        return fit_rounds(
            starts,
            X,
            used,
            held_out,
            seeds,
            most=self.rounds,
            patience=self.patience,
            time_limit=time_limit,
            verbose=self.verbose,
        )


class _Boosting:
    """Trees in the making: from the shares of the classes on, or from a first guess."""

    def __init__(
        self,
        table: np.ndarray,
        held: np.ndarray | None,
        evidence: RowEvidence,
        start: Tensor,
        guess: Tensor | None,
        seed: int,
    ) -> None:
        lightgbm = _lightgbm()
        self.evidence, self.start, self.guess, self.n_rounds = evidence, start, guess, 0
        k = len(start)
        parameters = {
            **PARAMETERS,
            "num_class": 1 if k == 2 else k,
            "min_data_in_leaf": max(1, min(20, len(table) // 20)),
            "num_threads": torch.get_num_threads(),
            "seed": seed,
        }
        rows = lightgbm.Dataset(table, init_score=self._start_scores(len(table)), params=parameters)
        self.booster = lightgbm.Booster(parameters, rows)
        self.has_held_out = held is not None
        if held is not None:
            others = lightgbm.Dataset(held, reference=rows, init_score=self._start_scores(len(held)), params=parameters)
            self.booster.add_valid(others, "held-out")

    @property
    def starting(self) -> bool:
        return self.guess is not None and self.n_rounds < GUESS_ROUNDS

    def learn(self) -> float | None:
        losses = []

        def objective(raw: np.ndarray, _: Any) -> tuple[np.ndarray, np.ndarray]:
            logits = as_logits(raw, len(self.start))
            loss, grad, hess = gradient(self.evidence, logits, self.guess if self.starting else None)
            losses.append(loss)
            return (grad[:, 1], hess[:, 1]) if len(self.start) == 2 else (grad, hess)

        if self.booster.update(fobj=objective) and self.n_rounds > 0:  # no leaf can be split any more
            return None
        self.n_rounds += 1
        return losses[0]

    def held_out_logits(self) -> Tensor | None:
        if not self.has_held_out:
            return None
        found: list[Tensor] = []

        def keep(raw: np.ndarray, _: Any) -> tuple[str, float, bool]:
            found.append(as_logits(raw, len(self.start)))
            return "kept", 0.0, True

        self.booster.eval_valid(keep)
        return found[0]

    def model(self, n_rounds: int) -> Trees:
        """Return the trees of the first rounds; the shares of the classes become part of the first trees."""
        text = self.booster.model_to_string(num_iteration=n_rounds)
        booster = _lightgbm().Booster(model_str=text)
        own = self._start_scores(1).reshape(-1)
        for tree, n_leaves in enumerate(re.findall(r"^num_leaves=(\d+)$", text, re.MULTILINE)[: len(own)]):
            for leaf in range(int(n_leaves)):
                booster.set_leaf_output(tree, leaf, booster.get_leaf_output(tree, leaf) + float(own[tree]))
        return Trees(booster, len(self.start))

    def _start_scores(self, n: int) -> np.ndarray:
        """Return the start as LightGBM has it: one number a row for two classes, otherwise one for each class."""
        start = self.start.numpy()
        return np.full(n, start[1] - start[0]) if len(start) == 2 else np.tile(start, (n, 1))


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
    log_likelihood, posterior = evidence.infer(logits.float())
    weights = evidence.row_weights[:, None]
    probs = logits.double().softmax(-1)
    expected = posterior if guess is None else weights * guess
    return -log_likelihood, (weights * probs - expected).numpy(), (weights * probs * (1 - probs)).numpy()


def as_table(X: Tensor) -> np.ndarray:
    """Return rows of any shape as a table of numpy."""
    return X.reshape(len(X), -1).numpy(force=True)


def as_logits(raw: np.ndarray, n_classes: int) -> Tensor:
    """Return logits of each class, ``(rows, classes)``, from what LightGBM has: for two classes the log-odds of one."""
    raw = torch.from_numpy(np.ascontiguousarray(raw, dtype=np.float64))
    return torch.stack([torch.zeros_like(raw), raw], 1) if n_classes == 2 else raw.reshape(-1, n_classes)


def _lightgbm() -> Any:
    try:
        import lightgbm  # noqa: PLC0415 (an extra)
    except ImportError as error:
        raise ImportError("model='trees' needs LightGBM, which is not there: pip install unbag[trees]") from error
    return lightgbm
