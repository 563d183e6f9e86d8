"""The state of a training run, and its epochs and steps."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from unbag._utils.random_state import RandomState, may_draw
from unbag.aggregates.base import full_precision
from unbag.aggregates.observations import Observations
from unbag.data.row_source import Rows, Views, gather_rows, make_views
from unbag.objectives.objective import Objective, ValueAndGrad
from unbag.training.algorithm import expectation_maximisation, own_objective, warm_up
from unbag.training.averaging import WeightAverage
from unbag.training.batches import Batch, Batches
from unbag.training.best import Best, Patience, StoppingRule, never
from unbag.training.capture import CapturedSteps, can_be_captured
from unbag.training.checkpoints import Checkpoint, TimeBudgetExceeded
from unbag.training.fusing import Measure, fuse_objective
from unbag.training.optimisation import MakeOptimiser, MakeSchedule, Optimisation
from unbag.training.passes import Backward, fits, run_at_once, run_in_parts
from unbag.training.processes import Processes, Share
from unbag.training.progress import LogProgress
from unbag.training.replicas import Accelerate, Replicas, looks_across_rows, unstack
from unbag.training.resuming import resume, save
from unbag.training.selection import Score
from unbag.training.settings import Phase, Settings
from unbag.training.sharing import add_up_step, gather, predict
from unbag.training.threads import threads_for_step
from unbag.training.trained import Trained

WORTH_FUSING = 50_000
"""Steps of a run from which on it pays to spend some seconds on a compiler."""


@dataclass(frozen=True)
class Hooks:
    """What :func:`train` was given in place of its defaults; see there."""

    optimiser: MakeOptimiser | None = None
    schedule: MakeSchedule | None = None
    stopping: StoppingRule | None = None
    views: Views | None = None


@dataclass(eq=False)
class Run:
    """The state of a run; `resuming.save` names everything that changes."""

    models: Sequence[nn.Module]
    X: Rows
    sets: list[list[Observations]]
    settings: Settings
    seeds: Sequence[int]
    score: Score | None
    objective: Objective | None = None
    n_criteria: int = 1
    accelerate: Accelerate | None = None
    hooks: Hooks = field(default_factory=Hooks)
    processes: Processes = field(default_factory=Processes)
    identity: dict[str, str] | None = None
    history: list[dict[str, Any]] = field(default_factory=list)
    epoch_number: int = 0
    step: int = 0

    def __post_init__(self) -> None:
        half = self.settings.precision == "bfloat16"
        if half and isinstance(self.X, Tensor) and self.X.ndim == 4:
            self.X = self.X.contiguous(memory_format=torch.channels_last)
        self.share = Share.of(self.processes, len(self.seeds))
        own, compiled = self.share.replicas, self.settings.compiled
        self.replicas = Replicas(self.models, half=half, compiled=compiled, accelerate=self.accelerate, own=own)
        self.processes.copy_first_([*self.replicas.state.values()])
        hooks = self.hooks
        parameters = self.replicas.parameters()
        self.optimisation = Optimisation(parameters, self.settings, hooks.optimiser, hooks.schedule)
        self.stopping = hooks.stopping or never
        if hooks.stopping is None and self.score is not None and self.settings.patience is not None:
            self.stopping = Patience(self.settings.patience, self.settings.patient_from)
        n_replicas = len(self.seeds)
        most = max(len(one.groups) for given in self.sets for one in given)
        one_pass = math.ceil(most / self.settings.batch_size)
        self.n_steps = self.settings.steps or one_pass
        block = getattr(self.X, "rows_of_block", None)
        longest = [max(len(one.groups) for one in given) for given in self.sets]
        self.batches = [
            Batches(
                given, n_replicas, self.n_steps, -(-n * self.n_steps // one_pass), share=self.share, rows_of_block=block
            )
            for given, n in zip(self.sets, longest, strict=True)
        ]
        self.generators = [torch.Generator().manual_seed(seed) for seed in self.seeds]
        self.random = RandomState(self.seeds[0], self.X.device)  # of dropout
        aggregates = [batches.aggregate for batches in self.batches]
        parts = (self.objective, self.score, hooks.views, hooks.optimiser, *aggregates)
        self._draws = may_draw(self.models[0], self.settings.loss_function, *parts)
        self._shuffle()
        self.loss_sum = torch.zeros(n_replicas, dtype=torch.float64, device=self.X.device)
        self.average = WeightAverage(self.replicas, self.settings.averaging) if self.settings.averaging else None
        self.best = [Best.of_none(self.replicas, self.X.device) for _ in range(self.n_criteria)]
        # What the model said at the last visit, as log-probabilities; before the first, all classes are as likely.
        k = self.sets[0][0].n_classes
        remembers = self.settings.remembers and self.objective is None
        remembered = [batches.n_memberships if remembers else 0 for batches in self.batches]
        self.memory = [torch.full((n, k), -math.log(k), device=self.X.device) for n in remembered]
        self.fused: dict[tuple[Phase, int, int], Measure] = {}
        self.captured: CapturedSteps | None = None
        self._across_rows = looks_across_rows(self.models[0])
        at_once = self._across_rows or all(fits(batches.most_rows) for batches in self.batches)
        if self.settings.capture and at_once and self._can_be_captured():
            self.captured = CapturedSteps(self.batches, self._train_step, self._changing)
        long = self.n_steps * self.settings.epochs >= WORTH_FUSING
        self._fuses = self.captured is not None and long

    def _can_be_captured(self) -> bool:
        # What a source does, and what views draw outside of torch, a graph would repeat.
        plain = isinstance(self.X, Tensor) and self.X.is_cuda and self.hooks.views is None and self.share.parts == 1
        return plain and can_be_captured(self.batches) and self.optimisation.can_be_captured()

    @property
    def finished(self) -> bool:
        """Whether all epochs are done, or all replicas have stopped by every criterion."""
        return self.epoch_number >= self.settings.epochs or bool(self._stopped.all())

    def train(self, checkpoint: Checkpoint | None, progress: LogProgress) -> None:
        """Go on to the end, from where a run was saved if it was."""
        n_rows = sum(batches.most_rows for batches in self.batches)
        n_parameters = sum(parameter.numel() for parameter in self.models[0].parameters())
        threads = threads_for_step(self.X, n_rows, n_parameters)
        alone = checkpoint.locked() if checkpoint is not None and self.processes.first else nullcontext()
        with alone, threads, progress as shown:
            if checkpoint is not None:
                resume(self, checkpoint)
            while not self.finished:
                self.epoch(checkpoint)
                shown.epoch(self.history, self.settings.epochs)
        gather(self)

    def epoch(self, checkpoint: Checkpoint | None) -> None:
        """Visit every group once, from where the run is."""
        start = time.perf_counter()
        phase = self.settings.phase(self.epoch_number)
        if self._rests:
            for batches in self.batches:
                batches.replicas = (~self._stopped).nonzero().flatten()
        if self.captured is not None:
            self.captured.go_to(self.step)
        while self.step < self.n_steps:
            self._step(phase)
            self.optimisation.after("step")
            self.step += 1
            self._save_if_due(checkpoint)
        self.processes.sum_([self.loss_sum])
        losses = (self.loss_sum / self.n_steps).tolist()
        self._close_epoch(phase, losses, start)
        self._save_if_due(checkpoint, at_end=self.finished)

    @property
    def _stopped(self) -> Tensor:
        """Which replicas have stopped by every criterion, (replicas,)."""
        return torch.stack([one.stopped for one in self.best]).all(0)

    @property
    def _rests(self) -> bool:
        """Whether replicas have stopped and others learn without them, whose random numbers do not depend on theirs."""
        alone = self.captured is None and self.processes.size == 1 and not self._draws
        return alone and bool(self._stopped.any())

    def _save_if_due(self, checkpoint: Checkpoint | None, *, at_end: bool = False) -> None:
        if checkpoint is None:
            return
        due, time_is_up = self.processes.any(checkpoint.due(), checkpoint.time_is_up)  # no two clocks are the same
        if not (due or at_end):
            return
        save(self, checkpoint)
        if time_is_up and not at_end:
            raise TimeBudgetExceeded(
                f"time is up after {self.epoch_number} epochs; the run is saved in {checkpoint.folder}"
            )

    def _drawing(self) -> AbstractContextManager[None]:
        """Have what draws random numbers draw those of this run; where nothing does, other runs need not wait."""
        return self.random.in_place() if self._draws else nullcontext()

    def _step(self, phase: Phase) -> None:
        if self.processes.size > 1 and self._draws:  # in each process by itself, and also after going on
            numbers = (self.seeds[0], self.epoch_number, self.step, self.processes.rank)
            self.random = RandomState(hash(numbers) % 2**63, self.X.device)
        with self._drawing():
            if self.captured is not None:
                self.captured.run(phase, self.step)
            else:
                self._train_step(phase, [batches.batch(self.step) for batches in self.batches])

    def _train_step(self, phase: Phase, visited: Sequence[Batch | None]) -> None:
        """Learn from one batch of each set, where it has one for this process."""
        self.optimisation.optimiser.zero_grad()
        for place, batch in enumerate(visited):
            if batch is None:
                continue
            batches = self.batches[place]
            outputs, backward = self._forward(batch)
            with full_precision(outputs.device.type):
                objective = self._objective(phase, place, batch, outputs)
            if batch.weights is not None:
                objective = objective.weighted(batch.weights, batch.segments)
            # The mean over the groups of each replica.
            share = objective.scale * batches.weight * len(self.seeds) / batch.n_groups
            backward(objective.grad.mul_(share))
            values = objective.values.view(len(batch.rows), -1).sum(1)
            self.loss_sum[batch.replicas] += share * values
        if self.share.parts > 1:
            add_up_step(self)
        self.optimisation.optimiser.step()
        if self.average is not None:
            self.average.update()

    def _forward(self, batch: Batch) -> tuple[Tensor, Backward]:
        if self._across_rows or fits(batch.rows.numel()):
            return run_at_once(self.replicas, self._inputs, batch)
        return run_in_parts(self.replicas, self._inputs, batch, self.random if self._draws else None)

    def _inputs(self, rows: Tensor) -> Tensor:
        gathered = gather_rows(self.X, rows)
        return gathered if self.hooks.views is None else make_views(self.hooks.views, gathered)

    def _changing(self) -> list[Tensor]:
        """Return all tensors that a step changes; those of the optimiser exist only after the first one."""
        averaged = [] if self.average is None else [*self.average.state.values(), self.average.n_steps]
        return [*self.replicas.state.values(), *self.memory, self.loss_sum, *averaged, *self.optimisation.tensors()]

    def _objective(self, phase: Phase, place: int, batch: Batch, outputs: Tensor) -> ValueAndGrad:
        """Return what is minimised of a batch of one of the sets, of all replicas, and its gradient in the outputs."""
        memory = self.memory[place]
        recalls = phase == "remembered weights" and self.objective is None
        inputs = (outputs, batch.z, *([memory.index_select(0, batch.memory)] if recalls else []))
        measure: Measure = partial(self._measure(phase), self.batches[place].aggregate, batch.segments)
        if self._fuses:
            measure = self._fused(measure, (phase, place, len(batch.segments)), inputs)
        log_probs, objective = measure(*inputs)
        if len(memory):
            memory.index_copy_(0, batch.memory, log_probs)
        return objective

    def _measure(self, phase: Phase) -> Measure:
        if self.objective is not None:
            return partial(own_objective, self.objective)
        if phase == "likelihood":
            return warm_up
        return partial(expectation_maximisation, self.settings.loss_function)

    def _fused(self, measure: Measure, key: tuple[Phase, int, int], inputs: tuple[Tensor, ...]) -> Measure:
        """Return the same with few kernels, made when it is first asked for."""
        if key not in self.fused:
            self.fused[key] = fuse_objective(measure, inputs)
        return self.fused[key]

    def _scores(self) -> Tensor | None:
        """Return the scores of the epoch, (criteria, replicas); None where it has none."""
        if self.score is None or not self.settings.scores(self.epoch_number):
            return None
        with self._drawing():
            scores = self.score(partial(predict, self))
        expected = (len(self.seeds),) if self.n_criteria == 1 else (self.n_criteria, len(self.seeds))
        if scores.shape != expected:
            raise ValueError(
                f"score must return one number for each of {len(self.seeds)} replicas"
                f"{'' if self.n_criteria == 1 else f' by each of {self.n_criteria} criteria'}, shape {expected}; "
                f"got shape {tuple(scores.shape)}"
            )
        scores = scores.to(self.best[0].score).view(self.n_criteria, -1)
        self.processes.copy_first_([scores])
        return scores

    def _shuffle(self) -> None:
        for batches in self.batches:
            batches.shuffle(self.generators)

    def _close_epoch(self, phase: Phase, losses: list[float], start: float) -> None:
        if self.share.parts > 1:  # what processors of different makes round otherwise must not add up
            self.processes.copy_first_([*self.replicas.state.values()])
        with nullcontext() if self.average is None else self.average.in_place():
            scores = self._scores()
            for place, best in enumerate(self.best):
                if self.score is None:  # the latest epoch is the best
                    best.keep_latest(self.replicas, self.epoch_number)
                elif scores is not None:
                    best.update(self.replicas, self.epoch_number, scores[place])
        if self._rests:
            before, stopped = self.history[-1]["loss"], self._stopped.tolist()
            losses = [before[place] if stopped[place] else loss for place, loss in enumerate(losses)]
            if scores is not None:
                scores = scores.where(~self._stopped, torch.stack([one.score for one in self.best]))
        shown = None if scores is None else scores.tolist()
        self.history.append(
            {
                "epoch": self.epoch_number,
                "phase": phase,
                "loss": losses,
                "score": shown[0] if shown is not None and self.n_criteria == 1 else shown,
                "seconds": self.processes.of_first(lambda: time.perf_counter() - start),
            }
        )
        for best in self.best:
            best.stop_by(self.stopping, self.history)
            self.processes.copy_first_([best.stopped])
        self.optimisation.after("epoch")
        self.loss_sum.zero_()
        self._shuffle()
        self.epoch_number, self.step = self.epoch_number + 1, 0

    def result(self, models: Sequence[nn.Module], *, keep_diverged: bool = False) -> Trained:
        """Return the models at their best by each criterion."""
        results = []
        for number, best in enumerate(self.best):
            diverged = best.diverged()
            if bool(diverged.any()) and not keep_diverged:
                place = int(diverged.nonzero()[0])
                what = "score was NaN in every epoch" if best.epoch[place] < 0 else "weights are NaN"
                raise RuntimeError(
                    f"training with seed {self.seeds[place]} diverged: its {what}; try a lower learning_rate, and look "
                    "at the scale of the features"
                )
            own = models if number == 0 else copy.deepcopy(models)
            score = None if self.score is None else best.score.tolist()
            results.append(Trained(unstack(own, best.weights), self.history, best.epoch.tolist(), score))
        return replace(results[0], others=results[1:])
