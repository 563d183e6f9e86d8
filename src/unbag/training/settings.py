"""The settings of a training run, its optimiser, and the schedule of its learning rate."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Literal

from torch import Tensor
from torch.optim import Adam, Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from unbag._utils.checks import describe
from unbag.objectives.losses import Loss, find_loss

MakeOptimiser = Callable[[list[Tensor]], Optimizer]
"""From the stacked parameters of all replicas to their optimiser, which must be element-wise."""
MakeSchedule = Callable[[Optimizer], LRScheduler]
"""From the optimiser to the schedule of its learning rate, which must follow from the number of calls alone."""
Phase = Literal["likelihood", "current weights", "remembered weights"]

_MINIMUM = dict.fromkeys(("epochs", "batch_size", "score_every", "patience"), 1)
_MINIMUM |= dict.fromkeys(("warm_up", "remember_from", "score_from"), 0)


@dataclass(frozen=True)
class Settings:
    """Settings of :func:`unbag.training.train`; epochs are counted from 0.

    Parameters
    ----------
    epochs
        Number of passes over the groups.
    warm_up
        Number of epochs that minimise the negative log-likelihood before the unbiased risk is minimised. With as many
        as ``epochs``, this is the log-likelihood method.
    loss
        Loss of the unbiased risk: a name from :data:`unbag.losses.LOSSES`, or a function from logits to losses.
    remember_from
        First epoch in which label weights come from the outputs at the last visit of a group; None always takes them
        from the current outputs.
    batch_size
        Groups per step, of the largest set.
    learning_rate, weight_decay
        Settings of Adam.
    score_every
        Number of epochs between two scores; the last epoch always has one.
    score_from
        First epoch that is scored and can be the best; patience counts from it.
    patience
        Epochs without a better score after which a replica stops, counted from the end of the warm-up; None trains to
        the end.
    capture
        Whether steps on a GPU run as one captured graph, where the kind of observation allows it.
    precision
        Precision of the model; ``"bfloat16"`` pays for large convolutional models. The E-step is always computed in
        float32 or float64.
    """

    epochs: int = 200
    warm_up: int = 0
    loss: str | Loss = "cross_entropy"
    remember_from: int | None = None
    batch_size: int = 128
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    score_every: int = 1
    score_from: int = 0
    patience: int | None = None
    capture: bool = True
    precision: Literal["float32", "bfloat16"] = "float32"

    def __post_init__(self) -> None:
        # Numbers of NumPy are converted, so that equal settings have equal representations.
        for name, minimum in _MINIMUM.items():
            value = getattr(self, name)
            if value is None and name in ("remember_from", "patience"):
                continue
            if isinstance(value, bool) or not isinstance(value, Integral) or value < minimum:
                raise ValueError(f"{name} must be a whole number of at least {minimum}, got {value!r}")
            object.__setattr__(self, name, int(value))
        if self.score_from >= self.epochs:
            raise ValueError(f"score_from must be less than epochs, which is {self.epochs}; got {self.score_from}")
        for name, kind in (("learning_rate", "a positive number"), ("weight_decay", "a number that is not negative")):
            value = getattr(self, name)
            finite = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
            if not finite or value < 0 or (value == 0 and name == "learning_rate"):
                raise ValueError(f"{name} must be {kind}, got {value!r}")
            object.__setattr__(self, name, float(value))
        if self.precision not in ("float32", "bfloat16"):
            raise ValueError(f"precision must be 'float32' or 'bfloat16', got {self.precision!r}")
        find_loss(self.loss)

    def phase(self, epoch: int) -> Phase:
        """Return what is minimised in an epoch, and where its label weights come from."""
        if epoch < self.warm_up:
            return "likelihood"
        if self.remember_from is not None and epoch >= self.remember_from:
            return "remembered weights"
        return "current weights"

    def scores(self, epoch: int) -> bool:
        """Return whether an epoch is scored."""
        done = epoch + 1 - self.score_from
        return epoch + 1 == self.epochs or (done > 0 and done % self.score_every == 0)

    @property
    def patient_from(self) -> int:
        """The epoch from which patience counts."""
        # The likelihood method warms up until the end, and can stop before.
        return max(self.score_from, self.warm_up if self.warm_up < self.epochs else 0)

    @property
    def remembers(self) -> bool:
        """Whether any epoch needs the outputs of the last visit."""
        return any(self.phase(epoch) == "remembered weights" for epoch in range(self.epochs))

    @property
    def loss_function(self) -> Loss:
        """The loss as a function from logits to losses."""
        return find_loss(self.loss)


@dataclass(frozen=True)
class PerStep:
    """Make a schedule that advances after every step; that of a plain function advances after every epoch.

    For example ``PerStep(lambda optimiser: OneCycleLR(optimiser, 0.01, total_steps=1000))``.
    """

    make: MakeSchedule

    def __call__(self, optimiser: Optimizer) -> LRScheduler:
        """Return the schedule of an optimiser."""
        return self.make(optimiser)


def make_optimiser(make: MakeOptimiser | None, parameters: list[Tensor], settings: Settings) -> Optimizer:
    """Return the optimiser of parameters, by default Adam."""
    if make is None:
        rate, decay, on_gpu = settings.learning_rate, settings.weight_decay, parameters[0].is_cuda
        return Adam(parameters, rate, weight_decay=decay, capturable=on_gpu, fused=True)
    optimiser: Any = _call("optimiser", make, parameters)
    if not isinstance(optimiser, Optimizer):
        raise TypeError(f"optimiser must return a torch.optim.Optimizer, got {describe(optimiser)}")
    known = {id(parameter) for parameter in parameters}
    if not all(id(parameter) in known for group in optimiser.param_groups for parameter in group["params"]):
        raise ValueError(
            "optimiser must be a function from parameters to an optimiser of these, such as torch.optim.AdamW, but it "
            "returned an optimiser of different parameters"
        )
    return optimiser


def make_schedule(make: MakeSchedule | None, optimiser: Optimizer) -> LRScheduler | None:
    """Return the schedule of an optimiser, if there is one."""
    if make is None:
        return None
    schedule: Any = _call("schedule", make, optimiser)
    if not isinstance(schedule, LRScheduler) or isinstance(schedule, ReduceLROnPlateau):
        raise TypeError(
            "schedule must return a torch.optim.lr_scheduler.LRScheduler that follows from the number of steps, got "
            f"{type(schedule).__name__}"
        )
    return schedule


def _call(name: str, make: Any, argument: Any) -> Any:
    if not callable(make):
        raise TypeError(f"{name} must be a function, which returns a new object, or None; got {make!r}")
    return make(argument)
