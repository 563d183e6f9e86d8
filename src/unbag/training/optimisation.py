"""The optimiser of a run, and the schedule of its learning rate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor
from torch.optim import Adam, Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from unbag._utils.checks import describe
from unbag.training.settings import Settings

MakeOptimiser = Callable[[list[Tensor]], Optimizer]
"""From the stacked parameters of all replicas to their optimiser, which must be element-wise."""
MakeSchedule = Callable[[Optimizer], LRScheduler]
"""From the optimiser to the schedule of its learning rate, which must follow from the number of calls alone."""


@dataclass(frozen=True)
class PerStep:
    """Make a schedule that advances after every step; that of a plain function advances after every epoch.

    For example ``PerStep(lambda optimiser: OneCycleLR(optimiser, 0.01, total_steps=1000))``.
    """

    make: MakeSchedule

    def __call__(self, optimiser: Optimizer) -> LRScheduler:
        """Return the schedule of an optimiser."""
        return self.make(optimiser)


class Optimisation:
    """An optimiser of parameters with an optional schedule; the optimiser is Adam unless a hook makes another."""

    def __init__(
        self,
        parameters: list[Tensor],
        settings: Settings,
        make_optimiser: MakeOptimiser | None,
        make_schedule: MakeSchedule | None,
    ) -> None:
        for name, function in (("optimiser", make_optimiser), ("schedule", make_schedule)):
            if function is not None and not callable(function):
                raise TypeError(f"{name} must be a function, which returns a new object, or None; got {function!r}")
        if make_optimiser is None:
            on_gpu = parameters[0].is_cuda
            rate, decay = settings.learning_rate, settings.weight_decay
            self.optimiser: Optimizer = Adam(parameters, rate, weight_decay=decay, capturable=on_gpu, fused=True)
        else:
            self.optimiser = _check_optimiser(make_optimiser(parameters), parameters)
        self._every = "step" if isinstance(make_schedule, PerStep) else "epoch"
        self.schedule = None if make_schedule is None else _check_schedule(make_schedule(self.optimiser))

    def can_be_captured(self) -> bool:
        """Return whether a captured step has the same effect as a plain step."""
        # The state of Adam starts with zeros, as it must. A graph would not see a schedule change the optimiser.
        capturable = all(group.get("capturable") for group in self.optimiser.param_groups)
        return isinstance(self.optimiser, Adam) and capturable and self.schedule is None

    def after(self, event: Literal["epoch", "step"]) -> None:
        """Advance the schedule, if it does so after every such event."""
        if self.schedule is not None and event == self._every:
            self.schedule.step()

    def go_to(self, epochs: int, steps: int) -> None:
        """Advance a new schedule by a number of epochs, and of steps in all."""
        if self.schedule is not None:
            self.optimiser._opt_called = True  # type: ignore[attr-defined]  # in the run that is resumed
            for _ in range(epochs if self._every == "epoch" else steps):
                self.schedule.step()

    def state(self) -> dict[str, Any]:
        """Return the state that the optimiser keeps of each parameter, by its number."""
        return {str(number): state for number, state in self.optimiser.state_dict()["state"].items()}

    def restore(self, states: dict[str, Any]) -> None:
        """Set what :meth:`state` has returned."""
        numbered = {int(number): state for number, state in states.items()}
        self.optimiser.load_state_dict({**self.optimiser.state_dict(), "state": numbered})

    def tensors(self) -> list[Tensor]:
        """Return the tensors that a step changes; there are none before the first step."""
        return [v for state in self.optimiser.state.values() for v in state.values() if isinstance(v, Tensor)]


def _check_optimiser(optimiser: Any, parameters: list[Tensor]) -> Optimizer:
    if not isinstance(optimiser, Optimizer):
        raise TypeError(f"optimiser must return a torch.optim.Optimizer, got {describe(optimiser)}")
    known = {id(parameter) for parameter in parameters}
    if not all(id(parameter) in known for group in optimiser.param_groups for parameter in group["params"]):
        raise ValueError(
            "optimiser must be a function from parameters to an optimiser of these, such as torch.optim.AdamW, but it "
            "returned an optimiser of different parameters"
        )
    return optimiser


def _check_schedule(schedule: Any) -> LRScheduler:
    if not isinstance(schedule, LRScheduler) or isinstance(schedule, ReduceLROnPlateau):
        raise TypeError(
            f"schedule must return a torch.optim.lr_scheduler.LRScheduler that follows from the number of steps, got "
            f"{type(schedule).__name__}"
        )
    return schedule
