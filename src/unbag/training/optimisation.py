"""The optimiser of a run, and the schedule of its learning rate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim import Adam, AdamW, Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from unbag._utils.checks import describe
from unbag.training.adam import PiecewiseAdam
from unbag.training.settings import Settings

MakeOptimiser = Callable[[list[Tensor]], Optimizer]
"""From the parameters of all replicas, stacked, to their optimiser, which must treat each number by itself."""
MakeSchedule = Callable[[Optimizer], LRScheduler]
"""From the optimiser to the schedule of its learning rate; the same calls must always lead to the same rates."""


@dataclass(frozen=True)
class PerStep:
    """A schedule that goes on after every step; a plain function makes one that goes on after every epoch.

    Examples
    --------
    >>> from torch.optim.lr_scheduler import OneCycleLR
    >>> warm_restart = PerStep(lambda optimiser: OneCycleLR(optimiser, 0.01, total_steps=1000))
    """

    make: MakeSchedule

    def __call__(self, optimiser: Optimizer) -> LRScheduler:
        """Return the schedule of an optimiser."""
        return self.make(optimiser)


class Optimisation:
    """An optimiser with a schedule, which may be none.

    Parameters
    ----------
    parameters
        What the optimiser changes.
    settings
        Of Adam, which is the default.
    make_optimiser, make_schedule
        Make others.
    """

    def __init__(
        self,
        parameters: list[Tensor],
        settings: Settings,
        make_optimiser: MakeOptimiser | None,
        make_schedule: MakeSchedule | None,
    ) -> None:
        self._parameters = parameters
        self._every = "step" if isinstance(make_schedule, PerStep) else "epoch"
        adam = partial(make_adam, settings=settings, scheduled=make_schedule is not None)
        self.optimiser = _check_optimiser((make_optimiser or adam)(parameters), parameters)
        self.schedule = None if make_schedule is None else _check_schedule(make_schedule(self.optimiser))
        self._captured: list[dict[str, Any]] | None = None

    def can_be_captured(self) -> bool:
        """Whether a captured step does what a plain one does: the state of Adam begins with zeros, as captures do."""
        groups = self.optimiser.param_groups
        if not isinstance(self.optimiser, Adam) or not all(group["capturable"] for group in groups):
            return False
        if self.schedule is not None and not all(isinstance(group["lr"], Tensor) for group in groups):
            raise ValueError(
                "with a schedule, the learning rate of a captured step must be a tensor that it reads, as in "
                "torch.optim.Adam(parameters, lr=torch.tensor(0.001, device='cuda'), capturable=True); or train with "
                "Settings(capture=False)"
            )
        self._captured = self._constants()
        return True

    def after(self, what: Literal["epoch", "step"]) -> None:
        """Go on with the schedule, where it does so after every step, or after every epoch."""
        if self.schedule is None or what != self._every:
            return
        self.schedule.step()
        if self._captured is not None and self._captured != self._constants():
            raise ValueError(
                "the schedule changes more of the optimiser than its learning rate, which a captured step does not "
                "read; train with Settings(capture=False)"
            )

    def go_to(self, epochs: int, steps: int) -> None:
        """Bring a new schedule to where it is after so many epochs, and so many steps in all."""
        if self.schedule is not None:
            self.optimiser._opt_called = True  # type: ignore[attr-defined]  # the steps before were those of another
            for _ in range(epochs if self._every == "epoch" else steps):
                self.schedule.step()

    def state(self) -> dict[str, Tensor]:
        """Return what the optimiser keeps of each parameter, by its number and a name."""
        states = {}
        for place, parameter in enumerate(self._parameters):
            for name, value in self.optimiser.state.get(parameter, {}).items():
                if isinstance(value, Tensor):
                    states[f"{place}.{name}"] = value
                elif value is not None:
                    raise TypeError(
                        f"{type(self.optimiser).__name__} keeps {name} of a parameter as {describe(value)}, which a "
                        "checkpoint cannot hold; use an optimiser that keeps tensors, or leave checkpoint= out"
                    )
        return states

    def restore(self, state: dict[str, Tensor]) -> None:
        """Set what :meth:`state` has returned."""
        for group in self.optimiser.param_groups:
            counts_on_device = group.get("capturable") or group.get("fused")
            for parameter in group["params"]:
                place = next(n for n, one in enumerate(self._parameters) if one is parameter)
                own = {key.partition(".")[2]: one for key, one in state.items() if key.startswith(f"{place}.")}
                for name, one in own.items():
                    device = "cpu" if name == "step" and not counts_on_device else parameter.device
                    self.optimiser.state[parameter][name] = one.to(device)

    def tensors(self) -> list[Tensor]:
        """Return the tensors that a step changes; there are none before the first one."""
        return [one for state in self.optimiser.state.values() for one in state.values() if isinstance(one, Tensor)]

    def _constants(self) -> list[dict[str, Any]]:
        """Return what a captured step takes for constant."""
        varying = ("params", "lr", "initial_lr")
        return [{k: v for k, v in group.items() if k not in varying} for group in self.optimiser.param_groups]


def make_adam(parameters: list[Tensor], settings: Settings, *, scheduled: bool) -> Adam:
    """Return Adam as the settings want it; its learning rate is a tensor where a captured step must see it change."""
    device = parameters[0].device
    on_gpu = device.type == "cuda"
    rate = settings.learning_rate
    kind = AdamW if settings.decoupled else PiecewiseAdam if on_gpu else Adam
    return kind(
        parameters,
        lr=torch.tensor(rate, device=device) if on_gpu and scheduled else rate,
        weight_decay=settings.weight_decay,
        capturable=on_gpu,
        fused=True,
    )


def _check_optimiser(optimiser: Any, parameters: Sequence[Tensor]) -> Optimizer:
    if not isinstance(optimiser, Optimizer):
        raise TypeError(f"optimiser must return a torch.optim.Optimizer, got {describe(optimiser)}")
    given = {id(one) for one in parameters}
    if not all(id(one) in given for group in optimiser.param_groups for one in group["params"]):
        raise ValueError(
            "optimiser must be a function from parameters to an optimiser of these, such as torch.optim.AdamW; it "
            "returned one of others, which training would not change"
        )
    return optimiser


def _check_schedule(schedule: Any) -> LRScheduler:
    if not isinstance(schedule, LRScheduler) or isinstance(schedule, ReduceLROnPlateau):
        raise TypeError(
            f"schedule must return a torch.optim.lr_scheduler.LRScheduler that follows from the number of steps, got "
            f"{type(schedule).__name__}"
        )
    return schedule
