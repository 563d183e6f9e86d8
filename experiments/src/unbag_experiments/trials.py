"""Training and evaluation of the trials of a cell: all at once, and in each the choice of every selection."""

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

from unbag import Groups
from unbag._kernels.segments import Segments
from unbag.training import Checkpoint, Predict, Scaling, Score, Settings, Trained, fit_scaling, train
from unbag_experiments.baselines import METHODS, Judged, Method, Task, accuracy
from unbag_experiments.dropout import ColumnDropout
from unbag_experiments.measures import MEASURES, area_under_curve
from unbag_experiments.plan import SELECTIONS, Cell, Choice
from unbag_experiments.progress import ProgressBar
from unbag_experiments.sampling import symmetry

ROWS_AT_ONCE = 4096
STEPS_BETWEEN_SAVES = 2000


@dataclass(frozen=True, eq=False)
class Outcome:
    """One finished trial: what each selection chose, and how good that is on the test data."""

    seed: int
    by: dict[str, dict[str, Any]]
    """By the name of the selection: ``accuracy`` and, of bags, ``auc`` on the test data, and what else the plan
    measures there; the number of its ``choice``, and which ``epoch`` of how many ``epochs`` it took; and the best
    ``scores`` of all choices."""
    choices: list[dict[str, Any]]
    """What there was to choose among."""
    settings: dict[str, Any]
    """What all choices share."""
    rows: dict[str, int]
    """How many rows, or bags, the trial trained on, chose by and was judged on."""
    seconds: float
    """Of training, all choices together; of trials that were trained at once, an equal share."""
    beside: int
    """How many trials were trained at once."""


@dataclass(frozen=True, eq=False)
class _Candidate:
    """One way to train one trial, trained, at its best by one selection."""

    choice: Choice
    trained: Trained
    place: int  # of the replica

    @property
    def score(self) -> float:
        assert self.trained.best_score is not None
        return self.trained.best_score[self.place]

    @property
    def epoch(self) -> int:
        return self.trained.best_epoch[self.place]


def run_trials(
    cell: Cell,
    tasks: Mapping[int, Task],
    *,
    folder: Path | None = None,
    until: float | None = None,
    progress: ProgressBar | None = None,
) -> list[Outcome]:
    """Train and judge trials of a cell.

    Each selection takes the best epoch of the choice with the best score, of equal ones the first, and looks at the
    test data once.
    """
    method = METHODS[cell.method]
    prepared = dict(zip(tasks, stack([method.prepare(task) for task in tasks.values()]), strict=True))
    runs: list[tuple[list[tuple[int, Choice]], Trained]] = []
    for number, choices in enumerate(_runs(cell.choices)):
        settings = method.settings(replace(cell.settings, **choices[0].changes))
        settings = _on_device(settings, next(iter(prepared.values())).X.device)
        replicas = [(seed, choice) for choice in choices for seed in tasks]
        checkpoint = None
        if folder is not None:
            place, run_id = folder / f"run {number}", f"{cell.digest}, run {number}, with score and objective"
            checkpoint = Checkpoint(place, every=STEPS_BETWEEN_SAVES, until=until, run_id=run_id)
        trained = train_choices(
            cell, method, settings=settings, tasks=prepared, replicas=replicas, checkpoint=checkpoint, progress=progress
        )
        runs.append((replicas, trained))
    seconds = sum(entry["seconds"] for _, trained in runs for entry in trained.history) / len(tasks)
    shared = _as_numbers(method.settings(cell.settings))
    varied = {name for choice in cell.choices for name in choice.changes}
    return [
        Outcome(
            seed=seed,
            by={
                name: _judge(cell, task, _candidates(cell, seed, place, runs)) for place, name in enumerate(SELECTIONS)
            },
            choices=[choice.as_dict() for choice in cell.choices],
            settings={
                "model": cell.model,
                "method": dict(vars(method)),  # margins and the like
                **{name: value for name, value in shared.items() if name not in varied},
            },
            rows={
                "train": len(task.observations.groups if cell.data == "bags" else task.train_rows),
                "validation": len(task.validation.truth),
                "test": len(task.test.truth),
            },
            seconds=seconds,
            beside=len(tasks),
        )
        for seed, task in prepared.items()
    ]


def _candidates(
    cell: Cell, seed: int, selection: int, runs: Sequence[tuple[Sequence[tuple[int, Choice]], Trained]]
) -> list[_Candidate]:
    """Return what a trial has to choose among by one of the selections, in the order of the cell's choices."""
    candidates = {
        cell.choices.index(choice): _Candidate(choice, [trained, *trained.others][selection], place)
        for replicas, trained in runs
        for place, (own, choice) in enumerate(replicas)
        if own == seed
    }
    return [candidates[number] for number in range(len(cell.choices))]


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
    seen = [task.observations, *([] if task.held_out is None else [task.held_out])]
    moved = [replace(one, groups=Groups(one.groups.members + first, one.groups.offsets, len(X))) for one in seen]
    labels = task.labels
    if labels is not None:
        everywhere = labels.new_full((len(X),), -1)
        everywhere[first : first + len(task.X)] = labels
        labels = everywhere
    return replace(
        task,
        X=X,
        observations=moved[0],
        train_rows=task.train_rows + first,
        labels=labels,
        validation=replace(task.validation, rows=task.validation.rows + first),
        test=replace(task.test, rows=task.test.rows + first),
        held_out=moved[1] if task.held_out is not None else None,
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
    return settings if device.type == "cuda" else replace(settings, precision="float32")


def train_choices(
    cell: Cell,
    method: Method,
    *,
    settings: Settings,
    tasks: Mapping[int, Task],
    replicas: Sequence[tuple[int, Choice]],
    checkpoint: Checkpoint | None = None,
    progress: ProgressBar | None = None,
) -> Trained:
    """Train choices of trials, each a seed and a choice, that differ in nothing but their scaling."""
    X = tasks[replicas[0][0]].X
    dropout = replicas[0][1].dropout
    # A number that depends on the trial and the choice alone: a trial draws the same, whichever run beside it.
    seeds = [100 * seed + cell.choices.index(choice) for seed, choice in replicas]
    scalings = [fit_scaling(X[tasks[seed].train_rows], choice.scaling).cpu() for seed, choice in replicas]

    def make_model(scaling: Scaling, seed: int) -> nn.Module:
        net = method.make_model(cell.model, tuple(X.shape[1:]), tasks[replicas[0][0]].n_classes)
        return nn.Sequential(copy.deepcopy(scaling), *([ColumnDropout(dropout, seed)] if dropout else []), net)

    return train(
        [partial(make_model, scaling, seed) for scaling, seed in zip(scalings, seeds, strict=True)],
        X,
        [[tasks[seed].observations for seed, _ in replicas]],
        settings,
        seeds=seeds,
        score=_score(cell, method, [tasks[seed] for seed, _ in replicas]),
        checkpoint=checkpoint,
        progress=progress,
        objective=method.objective,
        n_criteria=len(SELECTIONS),
        keep_diverged=True,
        accelerate=_compile,
    )


def _compile(model: nn.Module, *, replicas: int, half: bool) -> nn.Module:
    """Compile a single large model."""
    if half and replicas == 1:
        model.compile()
    return model


def _score(cell: Cell, method: Method, tasks: Sequence[Task]) -> Score:
    """Score each replica on the validation data of its own trial, by labels and by groups."""
    rows = torch.cat([task.validation.rows for task in tasks]).unique()
    inputs = tasks[0].X[rows]
    places = [torch.searchsorted(rows, task.validation.rows) for task in tasks]
    of_groups = _score_groups(method, tasks, rows)

    def score(predict: Predict) -> Tensor:
        outputs = predict(inputs).float()  # (replicas, rows of any trial, width)
        scores = [
            _accuracy(cell, own[place], task.validation, task)
            for own, place, task in zip(outputs, places, tasks, strict=True)
        ]
        by_labels = torch.tensor(scores, dtype=torch.float64, device=rows.device)
        return torch.stack([by_labels, of_groups(outputs)])

    return score


def _score_groups(method: Method, tasks: Sequence[Task], rows: Tensor) -> Predict:
    """Score outputs for some rows, (replicas, rows, width), by how well they explain the held-out groups, (replicas,).

    By their mean log-likelihood or, for a method with an objective of its own, by that.
    """
    held_out = [task.held_out for task in tasks if task.held_out is not None]
    starts = torch.arange(len(tasks), device=rows.device) * len(rows)
    members = torch.cat(
        [torch.searchsorted(rows, one.groups.members) + start for one, start in zip(held_out, starts, strict=True)]
    )
    segments = Segments.from_sizes(torch.cat([one.groups.sizes for one in held_out]))
    z = torch.cat([one.checked for one in held_out])
    counts = [len(one.groups) for one in held_out]

    def score(outputs: Tensor) -> Tensor:
        of_members = outputs.flatten(0, 1)[members]
        if method.objective is None:
            values, _ = held_out[0].aggregate.e_step(of_members.log_softmax(-1), segments, z)
        else:
            values = -method.objective(of_members, segments, z)
        return torch.stack([own.mean() for own in values.double().split(counts)])

    return score


def _judge(cell: Cell, task: Task, candidates: Sequence[_Candidate]) -> dict[str, Any]:
    """Judge the best of the candidates on the test data."""
    number = max(range(len(candidates)), key=lambda place: (candidates[place].epoch >= 0, candidates[place].score))
    chosen = candidates[number]
    if chosen.epoch < 0:
        raise RuntimeError("every way to train this trial diverged: no epoch has a score that is a number")
    model = chosen.trained.models[chosen.place]
    with torch.no_grad():
        parts = task.test.rows.split(ROWS_AT_ONCE)
        outputs = torch.cat([model(task.X[rows]) for rows in parts]).float()
    return {
        "accuracy": _accuracy(cell, outputs, task.test, task),
        **({"auc": _auc(cell, outputs, task)} if cell.data == "bags" else {}),
        **_measures(cell, outputs, task),
        "choice": number,
        "epoch": chosen.epoch,
        "epochs": len(chosen.trained.history),
        "scores": [_number(candidate.score) for candidate in candidates],
    }


def _accuracy(cell: Cell, outputs: Tensor, judged: Judged, task: Task) -> float:
    if not bool(outputs.isfinite().all()):  # a model that diverged is never the best one
        return math.nan
    guessed = METHODS[cell.method].predict(outputs, judged, task)
    value = accuracy(guessed, judged.truth, task.permuted)
    if symmetry(cell.problem, task.n_classes) == "reversal":
        return max(value, accuracy(task.n_classes - 1 - guessed, judged.truth, task.permuted))
    return value


def _auc(cell: Cell, outputs: Tensor, task: Task) -> float | None:
    """Return the area under the ROC curve of the test bags; None where all are of one class."""
    return area_under_curve(METHODS[cell.method].rank_bags(outputs, task.test, task), task.test.truth == 1)


def _measures(cell: Cell, outputs: Tensor, task: Task) -> dict[str, float | None]:
    log_probs = METHODS[cell.method].class_log_probs(outputs)
    return {name: MEASURES[name](log_probs, task.test.truth) for name in cell.part.measures}


def _as_numbers(settings: Settings) -> dict[str, Any]:
    loss = settings.loss if isinstance(settings.loss, str) else getattr(settings.loss, "__name__", "own")
    return {**vars(settings), "loss": loss}


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None  # JSON knows no NaN
