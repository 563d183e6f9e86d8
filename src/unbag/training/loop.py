"""The training loop: Algorithm 1 of the paper, for one model or several at once."""

import copy
import logging
import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor, nn

from unbag._utils.environment import versions
from unbag._utils.files import locked
from unbag._utils.random_state import RandomState, may_draw
from unbag.aggregates.observations import Observations, check_sets
from unbag.data.row_source import Rows, Views, gather_rows
from unbag.objectives.objective import Objective
from unbag.training.batches import Batches
from unbag.training.capture import CapturedSteps, can_be_captured
from unbag.training.checkpoint import Checkpoint, TimeBudgetExceeded, identify, pack, unpack
from unbag.training.processes import Processes
from unbag.training.replicas import (
    Accelerate,
    MakeModel,
    Replicas,
    check_outputs,
    learns_from_all_rows,
    make_models,
    unstack,
)
from unbag.training.selection import Best, Patience, Score, StoppingRule, never
from unbag.training.settings import (
    MakeOptimiser,
    MakeSchedule,
    PerStep,
    Phase,
    Settings,
    make_optimiser,
    make_schedule,
)
from unbag.training.step import Hooks, Limits, Step

logger = logging.getLogger("unbag")

Progress = Callable[[Sequence[dict[str, Any]], int], None]
"""Called after every epoch with the history and the number of epochs."""


@dataclass(frozen=True, eq=False)
class Trained:
    """The result of a training run.

    ``models`` has a model for each seed, with the weights of its best epoch, ready to predict. ``history`` has an entry
    for each epoch: ``epoch``, ``phase``, ``loss`` and ``score`` of each replica, and ``seconds``; of several criteria,
    ``score`` is a list of the scores by each. ``others`` holds the result by each criterion after the first.
    """

    models: list[Any]
    history: list[dict[str, Any]]
    best_epoch: list[int]
    best_score: list[float] | None
    others: list["Trained"] = field(default_factory=list)


def train(
    make_model: MakeModel | Sequence[MakeModel],
    X: Rows,
    observations: Sequence[Observations | Sequence[Observations]],
    settings: Settings | None = None,
    *,
    seeds: Sequence[int] = (0,),
    score: Score | None = None,
    checkpoint: Checkpoint | None = None,
    progress: Progress | None = None,
    objective: Objective | None = None,
    n_criteria: int = 1,
    keep_diverged: bool = False,
    accelerate: Accelerate | None = None,
    optimiser: MakeOptimiser | None = None,
    schedule: MakeSchedule | None = None,
    stopping: StoppingRule | None = None,
    views: Views | None = None,
    processes: Processes | None = None,
    limits: Limits | None = None,
) -> Trained:
    """Train one model for each seed, all at once, on sets of observed groups.

    Parameters
    ----------
    make_model
        Function that returns a new model from rows of ``X`` to logits, or a list with one for each seed; it is called
        with torch's random numbers set to the seed. Models with batch norm or running statistics need a single seed.
    X
        Rows, (n, ...), on the device to train on, or a :class:`RowSource`, whose rows may be on disk.
    observations
        The sets to learn from, all at once. Each is shared by all replicas, or a list with one for each seed, of which
        the longest determines the length of an epoch.
    settings
        How to train.
    seeds
        Seeds of the initial weights and the order of groups, one for each replica. A replica is the same, up to
        rounding, alone or beside others, except with torch's dropout, whose random numbers are drawn for all at once.
    score
        Function that scores the replicas after an epoch; the weights of the best epoch are returned.
    checkpoint
        Where the run is saved, and resumed if it was saved before.
    progress
        Function that is called after every epoch with the history and the number of epochs; by default, it logs them.
    objective
        Function from outputs, one row per membership, groups and encoded observations to one value per group, which is
        minimised in place of Algorithm 1. Warm-up, loss and remembered weights are then ignored.
    n_criteria
        Number of criteria of ``score``, which with more than one returns (criteria, replicas). Each criterion selects
        epochs and stops by itself, and the run goes on until the last has stopped.
    keep_diverged
        Whether to return replicas with NaN as weights or scores, with epoch -1 and score -inf if no epoch was selected.
        By default, they are an error.
    accelerate
        Hook that replaces the model that runs by a faster one; see :data:`unbag.training.replicas.Accelerate`.
    optimiser
        Function from parameters to a torch optimiser in place of Adam. Replicas are a first dimension of the
        parameters, so that it must be element-wise, as Adam, AdamW and SGD are.
    schedule
        Function from the optimiser to a schedule of ``torch.optim.lr_scheduler``, which advances after every epoch, or
        with :class:`PerStep` after every step.
    stopping
        Rule in place of patience: ``lambda best, history: best.score > -0.1`` returns after an epoch which replicas
        stop.
    views
        Function from the rows of a step, (n, ...), to the inputs of the models: augmentation or noise. Predictions and
        scores are of the rows themselves.
    processes
        This process among several that call this function with the same arguments. They divide the groups of each step,
        and all return the same as one process does, up to rounding.
    limits
        Sizes from which on a step runs in parts.
    """
    processes = processes or Processes()
    settings = settings or Settings()
    seeds = [int(seed) for seed in seeds]
    if not seeds:
        raise ValueError("seeds is empty: give at least one seed, one for each replica")
    sets = [[s.counting() for s in ([s] if isinstance(s, Observations) else s)] for s in observations]
    check_sets(sets, X, len(seeds))
    models = make_models(make_model, seeds, X.device)
    if objective is None:
        rows = gather_rows(X, torch.arange(min(2, len(X)), device=X.device))
        with RandomState(seeds[0], X.device).in_place():
            check_outputs(models[0], rows, settings.loss_function, sets[0][0].n_classes)
    if (len(seeds) > 1 or processes.size > 1) and learns_from_all_rows(models[0]):
        raise ValueError(
            "a model with batch norm or running statistics learns from all rows of a step at once, which is possible "
            "only for a single seed in a single process; call train once for each seed, or use layer norm or group norm"
        )
    hooks = Hooks(score, objective, accelerate, optimiser, schedule, stopping, views)
    run = Run(models, X, sets, settings, seeds, hooks, n_criteria, processes, limits or Limits(), checkpoint)
    run.train(progress or log_epoch)
    return run.result(keep_diverged=keep_diverged)


def log_epoch(history: Sequence[dict[str, Any]], epochs: int) -> None:
    """Log the last epoch of a history at level INFO."""
    last = history[-1]
    logger.info("epoch %d of %d, loss %s, score %s", last["epoch"] + 1, epochs, last["loss"], last["score"])


@dataclass(eq=False)
class Run:
    """A run of replicas that are trained side by side; parameters are those of :func:`train`, validated."""

    models: Sequence[nn.Module]
    X: Rows
    sets: list[list[Observations]]
    settings: Settings
    seeds: Sequence[int]
    hooks: Hooks
    n_criteria: int
    processes: Processes
    limits: Limits
    checkpoint: Checkpoint | None

    def __post_init__(self) -> None:
        settings, hooks, processes, n_replicas = self.settings, self.hooks, self.processes, len(self.seeds)
        half = settings.precision == "bfloat16"
        if half and isinstance(self.X, Tensor) and self.X.ndim == 4:
            self.X = self.X.contiguous(memory_format=torch.channels_last)
        self.history: list[dict[str, Any]] = []
        self.epoch_number, self.step_number = 0, 0

        self.replicas = Replicas(self.models, half=half, accelerate=hooks.accelerate)
        processes.copy_first_([*self.replicas.state.values()])
        self.optimiser = make_optimiser(hooks.optimiser, self.replicas.parameters(), settings)
        self.schedule = make_schedule(hooks.schedule, self.optimiser)
        self.stopping = hooks.stopping or never
        if hooks.stopping is None and hooks.score is not None and settings.patience is not None:
            self.stopping = Patience(settings.patience, settings.patient_from)

        self.n_steps = math.ceil(max(len(s.groups) for entries in self.sets for s in entries) / settings.batch_size)
        options: dict[str, Any] = {"part": processes.rank, "n_parts": processes.size}
        options |= {"rows_of_block": getattr(self.X, "rows_of_block", None)}
        options |= {"blocks_at_once": self.limits.blocks_at_once}
        self.batches = [Batches(entries, n_replicas, self.n_steps, **options) for entries in self.sets]
        self.generators = [torch.Generator().manual_seed(seed) for seed in self.seeds]
        self._shuffle()

        self.random = RandomState(self.seeds[0], self.X.device)
        aggregates = [batches.aggregate for batches in self.batches]
        drawing = (hooks.objective, hooks.score, hooks.views, hooks.optimiser, *aggregates)
        self._draws = may_draw(self.models[0], settings.loss_function, *drawing)
        random = self.random if self._draws else None
        self.step = Step(
            self.replicas, self.X, self.batches, settings, hooks, self.optimiser, processes, random, self.limits
        )
        self.best = [Best.before_training(self.replicas, self.X.device) for _ in range(self.n_criteria)]
        self.captured: CapturedSteps | None = None
        if settings.capture and self._can_be_captured():
            self.captured = CapturedSteps(self.batches, self.step, self._changing)

    def _can_be_captured(self) -> bool:
        # A graph would repeat what a source reads, and what views draw outside of torch.
        plain = isinstance(self.X, Tensor) and self.X.is_cuda and self.hooks.views is None and self.processes.size == 1
        at_once = self.step.at_once or all(batches.most_rows <= self.limits.max_rows for batches in self.batches)
        return plain and at_once and self.schedule is None and can_be_captured(self.batches, self.optimiser)

    def _changing(self) -> list[Tensor]:
        """Return all tensors that a step changes; those of the optimiser exist only after the first step."""
        of_optimiser = [value for state in self.optimiser.state.values() for value in state.values()]
        tensors = [*self.replicas.state.values(), *self.step.memory, self.step.loss_sum, *of_optimiser]
        return [tensor for tensor in tensors if isinstance(tensor, Tensor)]

    def _shuffle(self) -> None:
        for batches in self.batches:
            batches.shuffle(self.generators)

    def _drawing(self) -> AbstractContextManager[None]:
        """Put the random numbers of this run in place, if anything draws them."""
        return self.random.in_place() if self._draws else nullcontext()

    @property
    def finished(self) -> bool:
        """Whether all epochs are done, or all replicas have stopped by every criterion."""
        return self.epoch_number >= self.settings.epochs or all(bool(best.stopped.all()) for best in self.best)

    def train(self, progress: Progress) -> None:
        """Train to the end, from the checkpoint if there is one."""
        with locked(self.checkpoint.folder) if self.checkpoint and self.processes.first else nullcontext():
            if self.checkpoint is not None:
                self._resume(self.checkpoint)
            while not self.finished:
                self._train_epoch()
                progress(self.history, self.settings.epochs)

    def _train_epoch(self) -> None:
        """Visit every group once; after a resumption, those that remain."""
        start = time.perf_counter()
        phase = self.settings.phase(self.epoch_number)
        if self.captured is not None:
            self.captured.go_to(self.step_number)
        while self.step_number < self.n_steps:
            if self.processes.size > 1 and self._draws:  # different in each process, and the same after a resumption
                numbers = (self.seeds[0], self.epoch_number, self.step_number, self.processes.rank)
                self.random = self.step.random = RandomState(hash(numbers) % 2**63, self.X.device)
            with self._drawing():
                if self.captured is not None:
                    self.captured.run(phase, self.step_number)
                else:
                    self.step(phase, [batches.batch(self.step_number) for batches in self.batches], self.step_number)
            self._advance_schedule("step")
            self.step_number += 1
            self._save_if_due()
        self._close_epoch(phase, start)
        self._save_if_due(at_end=self.finished)

    def _close_epoch(self, phase: Phase, start: float) -> None:
        self.processes.sum_([self.step.loss_sum])
        losses = (self.step.loss_sum / self.n_steps).tolist()
        self.processes.copy_first_([*self.replicas.state.values()])  # rounding of different processors would add up
        scores = self._score()
        if scores is not None or self.hooks.score is None:
            for place, best in enumerate(self.best):
                best.update(self.replicas, self.epoch_number, None if scores is None else scores[place])
        listed = None if scores is None else scores.tolist() if self.n_criteria > 1 else scores[0].tolist()
        seconds = torch.tensor([time.perf_counter() - start], dtype=torch.float64, device=self.processes.device)
        self.processes.copy_first_([seconds])
        entry = {"epoch": self.epoch_number, "phase": phase, "loss": losses, "score": listed, "seconds": float(seconds)}
        self.history.append(entry)
        for best in self.best:
            best.stop_by(self.stopping, self.history)
            self.processes.copy_first_([best.stopped])
        self._advance_schedule("epoch")
        self.step.loss_sum.zero_()
        self._shuffle()
        self.epoch_number, self.step_number = self.epoch_number + 1, 0

    def _advance_schedule(self, event: Literal["epoch", "step"], times: int = 1) -> None:
        """Advance the schedule, if it does so after every such event."""
        if self.schedule is not None and (event == "step") == isinstance(self.hooks.schedule, PerStep):
            self.optimiser._opt_called = True  # type: ignore[attr-defined]  # also in a run that is resumed
            for _ in range(times):
                self.schedule.step()

    def _score(self) -> Tensor | None:
        """Compute the scores of the epoch, (criteria, replicas); None if it has none."""
        if self.hooks.score is None or not self.settings.scores(self.epoch_number):
            return None
        with self._drawing():
            scores = self.hooks.score(self.replicas.predict)
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

    def _save_if_due(self, *, at_end: bool = False) -> None:
        if (checkpoint := self.checkpoint) is None:
            return
        due, time_is_up = self.processes.any(checkpoint.due(), checkpoint.time_is_up)  # clocks differ
        if not (due or at_end):
            return
        self.processes.sum_([self.step.loss_sum])
        if self.processes.first:
            checkpoint.save(self._state())
        else:
            self.step.loss_sum.zero_()
        if time_is_up and not at_end:
            raise TimeBudgetExceeded(
                f"time is up after {self.epoch_number} epochs; the run is saved in {checkpoint.folder}"
            )

    def _state(self) -> dict[str, Any]:
        """Return everything that the rest of the run depends on."""
        return {
            "run": self._identity,
            "epoch": self.epoch_number,
            "step": self.step_number,
            "history": self.history,
            "models": self.replicas.snapshot(),
            "best": [vars(best) for best in self.best],
            "generators": [generator.get_state() for generator in self.generators],
            "orders": [batches.order for batches in self.batches],
            "rests": [batches.rest for batches in self.batches],
            "memory": self.step.memory,
            "optimiser": {str(number): state for number, state in self.optimiser.state_dict()["state"].items()},
            "random": self.random.state,
            "loss_sum": self.step.loss_sum,
        }

    def _resume(self, checkpoint: Checkpoint) -> None:
        state = checkpoint.load() if self.processes.first else None
        if state is not None and state["run"] != self._identity:
            part = next(name for name, value in self._identity.items() if state["run"].get(name) != value)
            raise ValueError(
                f"{checkpoint.file} is of another run: its {part}: {state['run'].get(part)}; of this run: "
                f"{self._identity[part]}; use a separate folder for each run, or remove the checkpoint to start again"
            )
        if self.processes.size > 1:
            state = unpack(self.processes.broadcast(pack(state)))
        if state is None:
            return
        self.epoch_number, self.step_number, self.history = state["epoch"], state["step"], state["history"]
        self.replicas.restore(state["models"])
        for best, saved in zip(self.best, state["best"], strict=True):
            weights = {name: tensor.to(self.X.device) for name, tensor in saved.pop("weights").items()}
            vars(best).update({name: tensor.to(self.X.device) for name, tensor in saved.items()}, weights=weights)
        for generator, saved in zip(self.generators, state["generators"], strict=True):
            generator.set_state(saved)
        for batches, order, rest in zip(self.batches, state["orders"], state["rests"], strict=True):
            batches.order.copy_(order)
            batches.rest = rest
        for memory, saved in zip(self.step.memory, state["memory"], strict=True):
            memory.copy_(saved)
        self.random.state = state["random"]
        if self.processes.first:  # which keeps the sum over processes
            self.step.loss_sum.copy_(state["loss_sum"])
        states = {int(number): saved for number, saved in state["optimiser"].items()}
        self.optimiser.load_state_dict({**self.optimiser.state_dict(), "state": states})
        self._advance_schedule("epoch", self.epoch_number)
        self._advance_schedule("step", self.epoch_number * self.n_steps + self.step_number)
        logger.info("resuming at epoch %d, step %d, from %s", self.epoch_number + 1, self.step_number, checkpoint.file)

    @cached_property
    def _identity(self) -> dict[str, str]:
        """What must not change between the start of a run and its end."""
        run_id = None if self.checkpoint is None else self.checkpoint.run_id
        parts = {
            "run_id": run_id,
            "versions": versions(),
            **{f"settings.{name}": value for name, value in vars(self.settings).items()},
            "seeds": self.seeds,
            "criteria": self.n_criteria,
            "rows": self.X,
            "observations": self.sets,
            "model": self.models,
            **{name: hook for name, hook in vars(self.hooks).items() if hook is not None},
        }
        return {name: identify(part, name, skip_unknown=run_id is not None) for name, part in parts.items()}

    def result(self, *, keep_diverged: bool = False) -> Trained:
        """Return the models at their best epoch by each criterion."""
        results = []
        for number, best in enumerate(self.best):
            if bool((diverged := best.diverged()).any()) and not keep_diverged:
                place = int(diverged.nonzero()[0])
                what = "score was NaN in every epoch" if best.epoch[place] < 0 else "weights are NaN"
                raise RuntimeError(
                    f"training with seed {self.seeds[place]} diverged: its {what}; try a lower learning_rate, and look "
                    "at the scale of the features"
                )
            models = self.models if number == 0 else copy.deepcopy(self.models)
            score = None if self.hooks.score is None else best.score.tolist()
            results.append(Trained(unstack(models, best.weights), self.history, best.epoch.tolist(), score))
        return replace(results[0], others=results[1:])
