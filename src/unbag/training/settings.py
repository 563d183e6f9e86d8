"""The choices of a training run that are numbers and names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from unbag.losses import LOSSES, Loss

Phase = Literal["likelihood", "current weights", "remembered weights"]


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
    learning_rate, weight_decay
        Of Adam.
    patience
        A replica stops, and the run with the last of them, once its score has not improved for so many epochs after
        warm-up; None trains to the end.
    capture
        On a GPU, run a step as one captured graph wherever the kind of observation allows it.

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
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    patience: int | None = None
    capture: bool = True

    def __post_init__(self) -> None:
        for name, least in (("epochs", 1), ("warm_up", 0), ("batch_size", 1)):
            _check_whole(name, getattr(self, name), least)
        for name, least in (("remember_from", 0), ("patience", 1)):
            if getattr(self, name) is not None:
                _check_whole(name, getattr(self, name), least)
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate must be a positive number, got {self.learning_rate!r}")
        if not self.weight_decay >= 0:
            raise ValueError(f"weight_decay must not be negative, got {self.weight_decay!r}")
        if not callable(self.loss) and self.loss not in LOSSES:
            raise ValueError(f"loss must be one of {', '.join(LOSSES)}, or a function; got {self.loss!r}")

    def phase(self, epoch: int) -> Phase:
        """Return what is minimised in an epoch, and where its weights come from."""
        if epoch < self.warm_up:
            return "likelihood"
        if self.remember_from is not None and epoch >= self.remember_from:
            return "remembered weights"
        return "current weights"

    @property
    def remembers(self) -> bool:
        """Whether any epoch needs what the model said at the last visit."""
        return any(self.phase(epoch) == "remembered weights" for epoch in range(self.epochs))

    @property
    def loss_function(self) -> Loss:
        """The loss as a function from logits to losses."""
        return self.loss if callable(self.loss) else LOSSES[self.loss]


def _check_whole(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
