"""Networks by Algorithm 1 of the paper: each step of the training loop visits a batch of groups."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from unbag._utils.random_state import RandomState
from unbag.data.row_source import (
    Rows,
    RowSubset,
    SparseRows,
    Views,
    fill_missing,
    find_missing,
    row_shape,
    rows_on,
    transform_rows,
)
from unbag.learners.architectures import MakeModel
from unbag.learners.base import Unprepared, split_rows
from unbag.learners.network import Architecture, NetworkModel
from unbag.learners.problem import Problem, Watch
from unbag.training import Checkpoint, Observations, Patience, Processes, Settings, held_out_likelihood, train
from unbag.training.checkpoint import identify
from unbag.training.processes import Launcher
from unbag.training.selection import Best, StoppingRule, never
from unbag.training.settings import MakeOptimiser, MakeSchedule

SECONDS_BETWEEN_CHECKPOINTS = 5.0


@dataclass(frozen=True)
class Algorithm(Unprepared):
    """The path is a single network, trained to its end; held-out groups choose the epoch.

    Hooks are those of :func:`unbag.training.train`. ``launcher`` starts several processes that train one network
    together. ``checkpoint`` is the folder from which an interrupted run is resumed, with a subfolder for each run.
    """

    name: str = "network"
    architecture: Architecture = field(default_factory=Architecture)
    settings: Settings = field(default_factory=Settings)
    optimiser: MakeOptimiser | None = None
    schedule: MakeSchedule | None = None
    stopping: StoppingRule | None = None
    views: Views | None = None
    launcher: Launcher = field(default_factory=Launcher)
    checkpoint: Path | None = None
    device: str = "cpu"

    def path(self, problem: Problem, start: Tensor, seed: int) -> Iterator[NetworkModel]:
        """Yield the network at the epoch with the best held-out score, or at the last one where nothing is held out."""
        missing = find_missing(split_rows(problem.X))
        shape, n_outputs = row_shape(problem.X), problem.labels.n_outputs
        if len(missing):
            shape = (shape[0] + len(missing),)
        maker = self.architecture.maker(shape, n_outputs)
        watch, problem = problem.watch, replace(problem, watch=Watch())
        run = partial(self._train, maker, missing, problem, watch.held_out, seed)
        if self.launcher.several:
            state, history = self.launcher.run(partial(_state_of, run, watch.seconds_left()))
            with RandomState(0).in_place():
                module = maker()
            module.load_state_dict(state)
            module.to(self.launcher.device)
        else:
            module, history = run(
                lambda rule: _UntilTimeIsUp(rule, watch.seconds_left, self.checkpoint is not None),
                Processes(device=self.device),
            )
        for entry in history:
            watch.history.append({**entry, "loss": entry["loss"][0], "score": entry["score"] and entry["score"][0]})
        yield NetworkModel(module.eval(), self.architecture, missing, tuple(shape), n_outputs)

    def _train(  # noqa: PLR0917 (called by processes)
        self,
        maker: MakeModel,
        missing: Tensor,
        problem: Problem,
        held_out: Problem | None,
        seed: int,
        limit: Callable[[StoppingRule], StoppingRule],
        processes: Processes,
    ) -> tuple[nn.Module, list[dict[str, Any]]]:
        """Train one network in this process, perhaps together with others."""
        rows, observations = _move(problem, missing, processes.device)
        score = None if held_out is None else held_out_likelihood(*_move(held_out, missing, processes.device))
        patience = None if held_out is None else self.settings.patience
        patient = never if patience is None else Patience(patience, self.settings.patient_from)
        trained = train(
            maker,
            rows,
            observations,
            self.settings,
            seeds=[seed],
            score=score,
            checkpoint=None if self.checkpoint is None else self._checkpoint(maker, problem, held_out, seed),
            optimiser=self.optimiser,
            schedule=self.schedule,
            stopping=limit(patient if self.stopping is None else self.stopping),
            views=self.views,
            processes=processes,
        )
        return trained.models[0], trained.history

    def _checkpoint(self, maker: MakeModel, problem: Problem, held_out: Problem | None, seed: int) -> Checkpoint:
        """Return the checkpoint of this run; each fold has a separate folder."""
        parts = {
            "settings": self.settings,
            "seed": seed,
            "rows": [p and p.X for p in (problem, held_out)],
            "observations": [p and p.sets for p in (problem, held_out)],
            "model": maker,
            "hooks": (self.optimiser, self.schedule, self.stopping, self.views),
        }
        run = identify({name: identify(part, name) for name, part in parts.items()}, "run")
        return Checkpoint(Path(self.checkpoint or ".") / run, seconds=SECONDS_BETWEEN_CHECKPOINTS)


@dataclass(frozen=True, eq=False)
class _UntilTimeIsUp:
    """Follow another rule until no time is left."""

    _derived_attributes = ("seconds_left",)  # a run that is resumed has another clock

    rule: StoppingRule
    seconds_left: Callable[[], float] = field(repr=False)
    resumable: bool = False
    """Whether a checkpoint is saved, from which an interrupted run is resumed rather than ended with its result."""

    def __call__(self, best: Best, history: Sequence[dict[str, Any]]) -> Tensor | bool:
        left = self.seconds_left()
        if left == 0 and self.resumable:  # interrupted; see Watch
            raise KeyboardInterrupt
        return True if left <= 0 else self.rule(best, history)


def _move(problem: Problem, missing: Tensor, device: str) -> tuple[Rows, list[Observations]]:
    """Return rows without missing values, and the observations, on a device."""
    X = RowSubset(problem.X) if isinstance(problem.X, SparseRows) else problem.X  # dense when it is read
    rows = transform_rows(rows_on(X, device), partial(fill_missing, columns=missing))
    return rows, [s.to(device) for s in problem.sets]


def _state_of(run: Callable, seconds: float, processes: Processes) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
    """Train in one of several processes, and return plain values and tensors, which can be sent to another process."""
    end = time.monotonic() + seconds
    module, history = run(lambda rule: _UntilTimeIsUp(rule, lambda: end - time.monotonic()), processes)
    return {name: tensor.cpu() for name, tensor in module.state_dict().items()}, history
