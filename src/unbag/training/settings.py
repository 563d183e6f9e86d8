"""The choices of a training run that are numbers and names."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Literal

from unbag.objectives.losses import LOSSES, Loss

Phase = Literal["likelihood", "current weights", "remembered weights"]

_LEAST = {
    "epochs": 1,
    "warm_up": 0,
    "batch_size": 1,
    "remember_from": 0,
    "steps": 1,
    "score_every": 1,
    "score_from": 0,
    "patience": 1,
}


@dataclass(frozen=True)
class Settings:
    """How to train.

    Parameters
    ----------
    epochs
        How often every group is visited.
    warm_up
        For so many epochs first, minimise the negative log-likelihood; with as many as there are epochs, this is the
        log-likelihood method.
    loss
        The loss of the unbiased risk after that, by name or as a function from logits to losses.
    remember_from
        From this epoch on, counted from 0, weights come from what the model said at the last visit of a group; before
        it, or always with None, from what it says now.
    batch_size
        Groups a step, of the largest set.
    steps
        Steps an epoch; None: as many as it takes to visit every group once. In a given number of steps, few groups are
        visited several times; of many, a part is visited, and the others in the epochs that follow.
    learning_rate, weight_decay
        Of Adam.
    decoupled
        Decay weights by themselves, as AdamW does, and not through the gradient.
    averaging
        Decay of the exponential moving average of the weights, which is scored and kept in place of those of the last
        step; 0 does without.
    score_every
        The score is computed after every so many epochs, and after the last.
    score_from
        No epoch before this one, counted from 0, has a score or can be the best, and patience begins with it.
    patience
        A replica stops, and the run with the last of them, once its score has not improved for so many epochs after
        warm-up; None trains to the end.
    capture
        On a GPU, run a step as one captured graph wherever the kind of observation allows it.
    precision
        Of the model's own arithmetic; ``"bfloat16"`` pays for large convolutional models. Evidence is always computed
        in full precision.
    compiled
        Run the model through ``torch.compile``: a minute at the start, faster steps from then on. For single models
        and those that are trained one after the other.

    Examples
    --------
    >>> paper = Settings(epochs=100, warm_up=20, remember_from=20)
    >>> paper.phase(0), paper.phase(20)
    ('likelihood', 'remembered weights')
    """

    epochs: int = 200
    warm_up: int = 0
    loss: str | Loss = "cross_entropy"
    remember_from: int | None = None
    batch_size: int = 128
    steps: int | None = None
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    decoupled: bool = False
    averaging: float = 0.0
    score_every: int = 1
    score_from: int = 0
    patience: int | None = None
    capture: bool = True
    precision: Literal["float32", "bfloat16"] = "float32"
    compiled: bool = False

    def __post_init__(self) -> None:
        # Numbers of NumPy become plain ones, so that equal settings look equal.
        for name, least in _LEAST.items():
            if getattr(self, name) is not None or name not in ("remember_from", "patience", "steps"):
                object.__setattr__(self, name, _whole(name, getattr(self, name), least))
        if self.score_from >= self.epochs:
            raise ValueError(f"score_from must be less than epochs, which is {self.epochs}; got {self.score_from}")
        if not _is_finite(self.learning_rate) or self.learning_rate <= 0:
            raise ValueError(f"learning_rate must be a positive number, got {self.learning_rate!r}")
        if not _is_finite(self.weight_decay) or self.weight_decay < 0:
            raise ValueError(f"weight_decay must be a number that is not negative, got {self.weight_decay!r}")
        if not _is_finite(self.averaging) or not 0 <= self.averaging < 1:
            raise ValueError(f"averaging must be at least 0 and less than 1, got {self.averaging!r}")
        for name in ("learning_rate", "weight_decay", "averaging"):
            object.__setattr__(self, name, float(getattr(self, name)))
        if self.precision not in ("float32", "bfloat16"):
            raise ValueError(f"precision must be 'float32' or 'bfloat16', got {self.precision!r}")
        if not callable(self.loss) and (not isinstance(self.loss, str) or self.loss not in LOSSES):
            raise ValueError(f"loss must be one of {', '.join(LOSSES)}, or a function; got {self.loss!r}")

    def phase(self, epoch: int) -> Phase:
        """Return what is minimised in an epoch, and where its weights come from."""
        if epoch < self.warm_up:
            return "likelihood"
        if self.remember_from is not None and epoch >= self.remember_from:
            return "remembered weights"
        return "current weights"

    def scores(self, epoch: int) -> bool:
        """Whether the score is computed after an epoch, counted from 0.

        Examples
        --------
        >>> [epoch for epoch in range(10) if Settings(epochs=10, score_from=5, score_every=2).scores(epoch)]
        [6, 8, 9]
        """
        done = epoch + 1 - self.score_from
        return epoch + 1 == self.epochs or (done > 0 and done % self.score_every == 0)

    @property
    def patient_from(self) -> int:
        """The epoch, counted from 0, from which on patience counts."""
        # A warm-up to the end is no warm-up but the likelihood method.
        return max(self.score_from, self.warm_up if self.warm_up < self.epochs else 0)

    @property
    def remembers(self) -> bool:
        """Whether any epoch needs what the model said at the last visit."""
        return any(self.phase(epoch) == "remembered weights" for epoch in range(self.epochs))

    @property
    def loss_function(self) -> Loss:
        """The loss as a function from logits to losses."""
        return self.loss if callable(self.loss) else LOSSES[self.loss]


def _whole(name: str, value: object, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return int(value)


def _is_finite(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
