"""The training loop: Algorithm 1 of the paper, for one model or several at once."""

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

from unbag.aggregates.base import full_precision
from unbag.models.build import MakeModel
from unbag.objectives import (
    Objective,
    ValueAndGrad,
)
from unbag.random_state import RandomState, may_draw
from unbag.training.adam import PiecewiseAdam
from unbag.training.algorithm import expectation_maximisation, own_objective, warm_up
from unbag.training.batches import Batch, Batches
from unbag.training.best import Best
from unbag.training.capture import CapturedSteps, can_be_captured
from unbag.training.checkpoints import Checkpoint, OutOfTime
from unbag.training.fusing import Measure, fuse_objective
from unbag.training.observations import Observations, check_sets
from unbag.training.passes import Backward, fits, run_at_once, run_in_parts
from unbag.training.progress import Silent, logger
from unbag.training.replicas import (
    Accelerate,
    Replicas,
    can_be_stacked,
    check_outputs,
    looks_across_rows,
    make_models,
    unstack,
)
from unbag.training.resuming import resume, save
from unbag.training.selection import Score
from unbag.training.settings import Phase, Settings
from unbag.training.threads import threads_for_step
from unbag.training.trained import Trained, side_by_side

WORTH_FUSING = 50_000
"""Steps of a run from which on it pays to spend some seconds on a compiler."""


def train(
    make_model: MakeModel | Sequence[MakeModel],
    X: Tensor,
    observations: Sequence[Observations | Sequence[Observations]],
    settings: Settings | None = None,
    *,
    seeds: Sequence[int] = (0,),
    score: Score | None = None,
    checkpoint: Checkpoint | None = None,
    progress: Silent | None = None,
    objective: Objective | None = None,
    n_criteria: int = 1,
    keep_diverged: bool = False,
    accelerate: Accelerate | None = None,
) -> Trained:
    """Train one model for each seed, all at once, on sets of observed groups.

    Parameters
    ----------
    make_model
        Returns a fresh model, from rows of ``X`` to logits; called once for each seed, with torch's random numbers set
        to it. In its place, a list with one function for each seed. Models that keep running statistics cannot run side
        by side and are trained one after the other.
    X
        Rows, (n, ...), on the device to train on; the groups must be there too.
    observations
        The sets to learn from, all at once. In place of one that is shared, a set may be a list with one for each seed.
    settings
        How to train.
    seeds
        One for each replica: of its first weights and of the order in which it visits the groups. A replica comes out
        the same, up to rounding, alone or beside others; not so with torch's dropout, which draws for all at once:
        :class:`unbag.training.dropout.ColumnDropout` draws for each by itself. A run comes out the same, to the last
        bit, whatever other runs are trained in other threads.
    score
        Tells after every epoch how good each replica is; the weights of the best epoch are returned. Without it, those
        of the last.
    checkpoint
        Where to save the run, and how often. If a run was saved there, it goes on from where it was.
    progress
        Shows how the run is doing.
    objective
        Minimised in place of what Algorithm 1 minimises, for other methods: a function from the outputs of the model,
        one row per membership, the groups of a step and the checked observations to one value per group. What the
        settings say of warm-up, loss and remembered weights is then not looked at.
    n_criteria
        How many criteria ``score`` has. With more than one it returns a score of each replica by each of them,
        (criteria, replicas); each criterion chooses epochs and loses patience by itself, and the run goes on until the
        last has.
    keep_diverged
        Return a replica whose weights or whose scores are NaN, with the epoch -1 and the score -inf where no epoch has
        been chosen, instead of ending all of them with an error.
    accelerate
        Exchanges the model that runs for one that computes the same faster; None leaves it as it is.
    """
    settings = settings or Settings()
    seeds = [int(seed) for seed in seeds]
    if not seeds:
        raise ValueError("seeds is empty: give at least one seed, one for each replica")
    sets = [[one] if isinstance(one, Observations) else list(one) for one in observations]
    check_sets(sets, X, len(seeds))
    models = make_models(make_model, seeds, X.device)
    if objective is None:
        with RandomState(seeds[0], X.device).in_place():
            check_outputs(models[0], X[:2], settings.loss_function, sets[0][0].n_classes)
    if len(models) > 1 and not can_be_stacked(models[0]):
        logger.warning(
            "models with batch norm, running statistics or shared weights cannot be trained side by side: "
            "training %d in turn",
            len(models),
        )
        alone = []
        for place, seed in enumerate(seeds):
            own = [given if len(given) == 1 else [given[place]] for given in sets]
            part = None if checkpoint is None else checkpoint.part(f"replica {place}")
            alone.append(
                train(
                    make_model if callable(make_model) else make_model[place],
                    X,
                    own,
                    settings,
                    seeds=[seed],
                    score=score,
                    checkpoint=part,
                    progress=progress,
                    objective=objective,
                    n_criteria=n_criteria,
                    keep_diverged=keep_diverged,
                    accelerate=accelerate,
                )
            )
        return side_by_side(alone)
    run = Run(models, X, sets, settings, seeds, score, objective, n_criteria, accelerate)
    n_rows = sum(batches.most_rows for batches in run.batches)
    n_parameters = sum(parameter.numel() for parameter in models[0].parameters())
    with (
        nullcontext() if checkpoint is None else checkpoint.locked(),
        threads_for_step(X, n_rows, n_parameters),
        progress or Silent() as shown,
    ):
        if checkpoint is not None:
            resume(run, checkpoint)
        while not run.finished:
            run.epoch(checkpoint)
            shown.epoch(run.history[-1], settings.epochs)
    return run.result(models, keep_diverged=keep_diverged)


@dataclass(eq=False)
class Run:
    """The state of a run; `resuming.save` names everything that changes."""

    models: Sequence[nn.Module]
    X: Tensor
    sets: list[list[Observations]]
    settings: Settings
    seeds: Sequence[int]
    score: Score | None
    objective: Objective | None = None
    n_criteria: int = 1
    accelerate: Accelerate | None = None
    identity: dict[str, str] | None = None
    history: list[dict[str, Any]] = field(default_factory=list)
    epoch_number: int = 0
    step: int = 0

    def __post_init__(self) -> None:
        half = self.settings.precision == "bfloat16"
        if half and self.X.ndim == 4:
            self.X = self.X.contiguous(memory_format=torch.channels_last)
        self.replicas = Replicas(self.models, half=half, compiled=self.settings.compiled, accelerate=self.accelerate)
        on_gpu = self.X.device.type == "cuda"
        self.optimiser = (PiecewiseAdam if on_gpu else torch.optim.Adam)(
            self.replicas.parameters(),
            lr=self.settings.learning_rate,
            weight_decay=self.settings.weight_decay,
            capturable=on_gpu,
            fused=True,
        )
        n_replicas = len(self.seeds)
        most = max(len(one.groups) for given in self.sets for one in given)
        self.n_steps = math.ceil(most / self.settings.batch_size)
        self.batches = [Batches(given, n_replicas, self.n_steps) for given in self.sets]
        self.generators = [torch.Generator().manual_seed(seed) for seed in self.seeds]
        self.random = RandomState(self.seeds[0], self.X.device)  # of dropout
        parts = (self.objective, self.score, *(batches.aggregate for batches in self.batches))
        self._draws = may_draw(self.models[0], self.settings.loss_function, *parts)
        self._shuffle()
        self.loss_sum = torch.zeros(n_replicas, dtype=torch.float64, device=self.X.device)
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
        if self.settings.capture and on_gpu and at_once and can_be_captured(self.batches):
            self.captured = CapturedSteps(self.batches, self._visit, self._changing)
        long = self.n_steps * self.settings.epochs >= WORTH_FUSING
        self._fuses = self.captured is not None and long

    @property
    def finished(self) -> bool:
        """Whether all epochs are done, or no replica has improved for too long by any criterion."""
        if self.epoch_number >= self.settings.epochs:
            return True
        return self.score is not None and all(
            bool(one.given_up(self.epoch_number, self.settings).all()) for one in self.best
        )

    def epoch(self, checkpoint: Checkpoint | None) -> None:
        """Visit every group once, from where the run is."""
        start = time.perf_counter()
        phase = self.settings.phase(self.epoch_number)
        if self.captured is not None:
            self.captured.go_to(self.step)
        while self.step < self.n_steps:
            self._step(phase)
            self.step += 1
            self._save_if_due(checkpoint)
        losses = (self.loss_sum / self.n_steps).tolist()
        self._close_epoch(phase, losses, start)
        self._save_if_due(checkpoint, at_end=self.finished)

    def _save_if_due(self, checkpoint: Checkpoint | None, *, at_end: bool = False) -> None:
        if checkpoint is None or not (checkpoint.due() or at_end):
            return
        save(self, checkpoint)
        if checkpoint.time_is_up and not at_end:
            raise OutOfTime(f"time is up after {self.epoch_number} epochs; the run is saved in {checkpoint.folder}")

    def _drawing(self) -> AbstractContextManager[None]:
        """Have what draws random numbers draw those of this run; where nothing does, other runs need not wait."""
        return self.random.in_place() if self._draws else nullcontext()

    def _step(self, phase: Phase) -> None:
        with self._drawing():
            if self.captured is not None:
                self.captured.run(phase, self.step)
            else:
                self._visit(phase, [batches.batch(self.step) for batches in self.batches])

    def _visit(self, phase: Phase, visited: Sequence[Batch | None]) -> None:
        """Learn from one batch of each set, where it has one."""
        self.optimiser.zero_grad()
        for place, batch in enumerate(visited):
            if batch is None:
                continue
            batches = self.batches[place]
            outputs, backward = self._forward(batch)
            with full_precision(outputs.device.type):
                found = self._objective(phase, place, batch, outputs)
            # The mean over the groups of each replica.
            share = found.scale * batches.weight * len(self.seeds) / len(batch.segments)
            backward(found.grad.mul_(share))
            self.loss_sum.add_(found.values.view(len(self.seeds), -1).sum(1), alpha=share)
        self.optimiser.step()

    def _forward(self, batch: Batch) -> tuple[Tensor, Backward]:
        if self._across_rows or fits(batch.rows.numel()):
            return run_at_once(self.replicas, self.X, batch)
        return run_in_parts(self.replicas, self.X, batch, self.random if self._draws else None)

    def _changing(self) -> list[Tensor]:
        """Return all tensors that a step changes; those of the optimiser exist only after the first one."""
        of_optimiser = [tensor for state in self.optimiser.state.values() for tensor in state.values()]
        return [*self.replicas.state.values(), *self.memory, self.loss_sum, *of_optimiser]

    def _objective(self, phase: Phase, place: int, batch: Batch, outputs: Tensor) -> ValueAndGrad:
        """Return what is minimised of a batch of one of the sets, of all replicas, and its gradient in the outputs."""
        memory = self.memory[place]
        recalls = phase == "remembered weights" and self.objective is None
        inputs = (outputs, batch.z, *([memory[batch.memory]] if recalls else []))
        measure: Measure = partial(self._measure(phase), self.batches[place].aggregate, batch.segments)
        if self._fuses:
            measure = self._fused(measure, (phase, place, len(batch.segments)), inputs)
        log_probs, found = measure(*inputs)
        if len(memory):
            memory[batch.memory] = log_probs
        return found

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
            scores = self.score(self.replicas.predict)
        expected = (len(self.seeds),) if self.n_criteria == 1 else (self.n_criteria, len(self.seeds))
        if scores.shape != expected:
            raise ValueError(
                f"score must return one number for each of {len(self.seeds)} replicas"
                f"{'' if self.n_criteria == 1 else f' by each of {self.n_criteria} criteria'}, shape {expected}; "
                f"got shape {tuple(scores.shape)}"
            )
        return scores.to(self.best[0].score).view(self.n_criteria, -1)

    def _shuffle(self) -> None:
        for batches in self.batches:
            batches.shuffle(self.generators)

    def _close_epoch(self, phase: Phase, losses: list[float], start: float) -> None:
        scores = self._scores()
        for place, best in enumerate(self.best):
            if self.score is None:  # the latest epoch is the best
                best.keep_latest(self.replicas, self.epoch_number)
            elif scores is not None:
                best.update(self.replicas, self.epoch_number, scores[place], self.settings)
        shown = None if scores is None else scores.tolist()
        self.history.append(
            {
                "epoch": self.epoch_number,
                "phase": phase,
                "loss": losses,
                "score": shown[0] if shown is not None and self.n_criteria == 1 else shown,
                "seconds": time.perf_counter() - start,
            }
        )
        self.loss_sum.zero_()
        self._shuffle()
        self.epoch_number, self.step = self.epoch_number + 1, 0

    def result(self, models: Sequence[nn.Module], *, keep_diverged: bool = False) -> Trained:
        """Return the models at their best by each criterion."""
        found = []
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
            found.append(Trained(unstack(own, best.weights), self.history, best.epoch.tolist(), score))
        return replace(found[0], others=found[1:])
