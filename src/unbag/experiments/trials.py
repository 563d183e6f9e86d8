"""From tasks to accuracies: all trials of a cell trained at once, and in each the choice that validation prefers."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from unbag.baselines import METHODS, Judged, Method, Task, accuracy
from unbag.experiments.plan import Cell, Choice
from unbag.experiments.sampling import symmetry
from unbag.groups import Groups
from unbag.training import Checkpoint, Settings, Silent, Trained, train
from unbag.training.scaling import Scaling, fit_scaling
from unbag.training.selection import Predict, Score

ROWS_AT_ONCE = 4096
STEPS_BETWEEN_SAVES = 2000


@dataclass(frozen=True, eq=False)
class Outcome:
    """One finished trial: what validation chose, and how good that is on the test data."""

    seed: int
    accuracy: float
    validation_accuracy: float
    settings: dict[str, Any]
    history: dict[str, Any]
    seconds: float
    """Of training, all choices together; of trials that were trained at once, an equal share."""


@dataclass(frozen=True, eq=False)
class _Candidate:
    """One way to train one trial, trained."""

    choice: Choice
    settings: Settings
    trained: Trained
    place: int  # of the replica

    @property
    def score(self) -> float:
        assert self.trained.best_score is not None
        return self.trained.best_score[self.place]


def run_trials(
    cell: Cell,
    tasks: Mapping[int, Task],
    *,
    folder: Path | None = None,
    until: float | None = None,
    progress: Silent | None = None,
) -> list[Outcome]:
    """Train and judge trials of a cell.

    The test data are looked at once, by the model of the best epoch of the choice with the best validation accuracy;
    of equal ones, the first.

    Parameters
    ----------
    cell
        What to train, and how.
    tasks
        By the seed of the trial.
    folder
        Where to save the run while it lasts, and to go on from.
    until
        A moment of ``time.monotonic()`` at which to save and stop with ``OutOfTime``.
    progress
        Shows how training is doing.
    """
    method = METHODS[cell.method]
    prepared = dict(zip(tasks, stack([method.prepare(task) for task in tasks.values()]), strict=True))
    candidates: dict[int, list[_Candidate]] = {seed: [] for seed in tasks}
    for number, choices in enumerate(_runs(cell.choices)):
        settings = method.settings(replace(cell.settings, **choices[0].changes))
        settings = _on_device(settings, next(iter(prepared.values())).X.device)
        replicas = [(seed, choice) for choice in choices for seed in tasks]
        checkpoint = (
            None if folder is None else Checkpoint(folder / f"run {number}", every=STEPS_BETWEEN_SAVES, until=until)
        )
        trained = _train(
            cell,
            method,
            settings=settings,
            tasks=prepared,
            replicas=replicas,
            checkpoint=checkpoint,
            progress=progress,
        )
        for place, (seed, choice) in enumerate(replicas):
            candidates[seed].append(_Candidate(choice, settings, trained, place))
    return [_judge(cell, seed, prepared[seed], candidates[seed], len(tasks)) for seed in tasks]


def stack(tasks: Sequence[Task]) -> list[Task]:
    """Give tasks with tables of their own one table in common, so that their trials can be trained at once.

    Tasks that share a table already stay as they are.
    """
    if all(task.X is tasks[0].X for task in tasks):
        return list(tasks)
    X = torch.cat([task.X for task in tasks])
    first, stacked = 0, []
    for task in tasks:
        stacked.append(_moved(task, X, first))
        first += len(task.X)
    return stacked


def _moved(task: Task, X: Tensor, first: int) -> Task:
    """Return a task whose rows begin at another place of another table."""
    groups = task.observations.groups
    observations = replace(task.observations, groups=Groups(groups.members + first, groups.offsets, len(X)))
    labels = task.labels
    if labels is not None:
        everywhere = labels.new_full((len(X),), -1)
        everywhere[first : first + len(task.X)] = labels
        labels = everywhere
    return replace(
        task,
        X=X,
        observations=observations,
        train_rows=task.train_rows + first,
        labels=labels,
        validation=replace(task.validation, rows=task.validation.rows + first),
        test=replace(task.test, rows=task.test.rows + first),
    )


def _runs(choices: Sequence[Choice]) -> list[list[Choice]]:
    """Put choices together that can be trained at once: scalings, with all else the same."""
    runs: list[list[Choice]] = []
    for choice in choices:
        alike = [run for run in runs if replace(run[0], scaling=choice.scaling) == choice]
        if alike:
            alike[0].append(choice)
        else:
            runs.append([choice])
    return runs


def _on_device(settings: Settings, device: torch.device) -> Settings:
    """Leave out what pays on a GPU only."""
    return settings if device.type == "cuda" else replace(settings, precision="float32", compiled=False)


def _train(
    cell: Cell,
    method: Method,
    *,
    settings: Settings,
    tasks: Mapping[int, Task],
    replicas: Sequence[tuple[int, Choice]],
    checkpoint: Checkpoint | None,
    progress: Silent | None,
) -> Trained:
    X = tasks[replicas[0][0]].X
    dropout = replicas[0][1].dropout
    # A number that depends on the trial and the choice alone: a trial comes out the same, whichever run beside it. Not
    # so with dropout, which draws for all at once.
    seeds = [100 * seed + cell.choices.index(choice) for seed, choice in replicas]
    scalings = [fit_scaling(X[tasks[seed].train_rows], choice.scaling).cpu() for seed, choice in replicas]

    def make_model(scaling: Scaling) -> nn.Module:
        net = method.make_model(cell.model, tuple(X.shape[1:]), tasks[replicas[0][0]].n_classes)
        parts = [copy.deepcopy(scaling), *([nn.Dropout(dropout)] if dropout else []), net]
        return nn.Sequential(*parts)

    return train(
        [partial(make_model, scaling) for scaling in scalings],
        X,
        [[tasks[seed].observations for seed, _ in replicas]],
        settings,
        seeds=seeds,
        score=_score(cell, [tasks[seed] for seed, _ in replicas]),
        checkpoint=checkpoint,
        progress=progress,
        objective=method.objective,
    )


def _score(cell: Cell, tasks: Sequence[Task]) -> Score:
    """Score each replica by its accuracy on the validation data of its own trial."""
    rows = torch.cat([task.validation.rows for task in tasks]).unique()
    inputs = tasks[0].X[rows]
    places = [torch.searchsorted(rows, task.validation.rows) for task in tasks]

    def score(predict: Predict) -> Tensor:
        outputs = predict(inputs)  # (replicas, rows of any trial, width)
        found = [
            _accuracy(cell, own[place].float(), task.validation, task)
            for own, place, task in zip(outputs, places, tasks, strict=True)
        ]
        return torch.tensor(found, dtype=torch.float64, device=rows.device)

    return score


def _judge(cell: Cell, seed: int, task: Task, candidates: Sequence[_Candidate], n_trials: int) -> Outcome:
    method = METHODS[cell.method]
    chosen = max(candidates, key=lambda candidate: candidate.score)
    runs = {id(candidate.trained): candidate.trained for candidate in candidates}.values()
    model = chosen.trained.models[chosen.place]
    with torch.no_grad():
        parts = task.test.rows.split(ROWS_AT_ONCE)
        outputs = torch.cat([model(task.X[rows]) for rows in parts]).float()
    last = chosen.trained.history[-1]
    return Outcome(
        seed=seed,
        accuracy=_accuracy(cell, outputs, task.test, task),
        validation_accuracy=chosen.score,
        settings={
            "model": cell.model,
            "scaling": chosen.choice.scaling,
            "dropout": chosen.choice.dropout,
            "method": dict(vars(method)),  # margins and the like
            **_as_numbers(chosen.settings),
        },
        history={
            "epochs": len(chosen.trained.history),
            "best_epoch": chosen.trained.best_epoch[chosen.place],
            "final_loss": _number(last["loss"][chosen.place]),
        },
        seconds=sum(entry["seconds"] for run in runs for entry in run.history) / n_trials,
    )


def _accuracy(cell: Cell, outputs: Tensor, judged: Judged, task: Task) -> float:
    if not bool(outputs.isfinite().all()):  # a model that diverged is never the best one
        return math.nan
    guessed = METHODS[cell.method].predict(outputs, judged, task)
    found = accuracy(guessed, judged.truth, task.permuted)
    if symmetry(cell.problem, task.n_classes) == "reversal":
        return max(found, accuracy(task.n_classes - 1 - guessed, judged.truth, task.permuted))
    return found


def _as_numbers(settings: Settings) -> dict[str, Any]:
    loss = settings.loss if isinstance(settings.loss, str) else getattr(settings.loss, "__name__", "own")
    return {**vars(settings), "loss": loss}


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None  # JSON knows no NaN
