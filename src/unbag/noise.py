"""Additive noise of published counts: its log-density, its variance, and seeded samples.

Each kind of noise is a class with one parameter, ``scale``, a number or an array with one for each published value.
``Laplace`` and ``Gaussian`` are continuous, ``Geometric`` (the discrete Laplace distribution) and ``DiscreteGaussian``
whole numbers.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import torch
from torch import Tensor


class Noise(ABC):
    """One kind of noise with a scale for each value.

    Parameters
    ----------
    scale
        A positive number, or an array of them.
    """

    code: ClassVar[int]
    """By which :mod:`unbag.published` tells kinds of noise apart; 0 is none."""
    name: ClassVar[str]
    is_integral: ClassVar[bool] = False
    """Whether it moves counts by whole numbers."""

    def __init__(self, scale: Any) -> None:
        self.scale = torch.as_tensor(scale, dtype=torch.float64)
        if bool((wrong := ~(self.scale.isfinite() & (self.scale > 0))).any()):
            raise ValueError(f"the scale of noise must be a positive number, got {self.scale[wrong].flatten()[0]:g}")

    @classmethod
    def from_epsilon(cls, epsilon: Any, sensitivity: Any = None) -> Self:
        """Return the noise of a mechanism with this privacy loss.

        Parameters
        ----------
        epsilon
            The privacy loss of the release.
        sensitivity
            The most by which one person changes the released counts, added up over those that share the epsilon: 1
            where a person is counted once, 2 where a person may be moved from one class to another.

        Examples
        --------
        >>> Laplace.from_epsilon(epsilon=0.5, sensitivity=1)
        Laplace(scale=2)
        """
        return cls(_positive("sensitivity", sensitivity) / _positive("epsilon", epsilon))

    @staticmethod
    @abstractmethod
    def log_density(x: Tensor, scale: Tensor) -> Tensor:
        """Return the log-density, or log-probability of whole numbers, at x."""

    @staticmethod
    @abstractmethod
    def variance(scale: Tensor) -> Tensor:
        """Return the variance."""

    @abstractmethod
    def sample(self, shape: tuple[int, ...], generator: torch.Generator | None = None) -> Tensor:
        """Draw noise; for simulations, not for releases that have to keep a promise."""

    def log_prob(self, x: Any) -> Tensor:
        """Return the log-density, or log-probability, of published value minus count."""
        return self.log_density(torch.as_tensor(x, dtype=torch.float64), self.scale)

    def __str__(self) -> str:
        return f"{self.name}:{self.scale.item():.17g}"

    def __repr__(self) -> str:
        scale = f"{self.scale.item():g}" if self.scale.numel() == 1 else f"<{self.scale.numel()} values>"
        return f"{type(self).__name__}(scale={scale})"


class Laplace(Noise):
    """Laplace noise of density ``exp(-|x| / scale) / (2 scale)``.

    Examples
    --------
    >>> Laplace(2).log_prob(1.0).exp()
    tensor(0.1516, dtype=torch.float64)
    """

    code, name = 1, "laplace"

    @staticmethod
    def log_density(x: Tensor, scale: Tensor) -> Tensor:  # noqa: D102
        return -x.abs() / scale - (2 * scale).log()

    @staticmethod
    def variance(scale: Tensor) -> Tensor:  # noqa: D102
        return 2 * scale.square()

    def sample(self, shape: tuple[int, ...], generator: torch.Generator | None = None) -> Tensor:  # noqa: D102
        sides = torch.empty(2, *shape, dtype=torch.float64).exponential_(generator=generator)
        return self.scale * (sides[0] - sides[1])


class Gaussian(Noise):
    """Normal noise with the scale as its standard deviation."""

    code, name = 2, "gaussian"

    @classmethod
    def from_epsilon(cls, epsilon: Any, sensitivity: Any = None, delta: float | None = None) -> Self:
        """Return the noise of the Gaussian mechanism, ``sensitivity sqrt(2 log(1.25 / delta)) / epsilon``.

        The sensitivity is Euclidean, and the formula is one for an epsilon of at most 1. Where the publisher names the
        standard deviation or a rho, take that.
        """
        if delta is None or not 0 < delta < 1:
            raise ValueError(
                f"{cls.__name__}.from_epsilon needs a delta between 0 and 1, got {delta!r}; if the standard deviation "
                f"was published, use {cls.__name__}(scale)"
            )
        if bool((_positive("epsilon", epsilon) > 1).any()):
            raise ValueError(
                f"the formula from epsilon and delta holds for an epsilon of at most 1, got {epsilon!r}; use "
                f"{cls.__name__}(scale) with the standard deviation that was published, or from_rho"
            )
        return cls(math.sqrt(2 * math.log(1.25 / delta)) * _positive("sensitivity", sensitivity) / epsilon)

    @classmethod
    def from_rho(cls, rho: Any, sensitivity: Any) -> Self:
        """Return the noise of zero-concentrated differential privacy, ``sensitivity / sqrt(2 rho)``."""
        return cls(_positive("sensitivity", sensitivity) / (2 * _positive("rho", rho)).sqrt())

    @staticmethod
    def log_density(x: Tensor, scale: Tensor) -> Tensor:  # noqa: D102
        return -(x / scale).square() / 2 - (scale * math.sqrt(2 * math.pi)).log()

    @staticmethod
    def variance(scale: Tensor) -> Tensor:  # noqa: D102
        return scale.square()

    def sample(self, shape: tuple[int, ...], generator: torch.Generator | None = None) -> Tensor:  # noqa: D102
        return self.scale * torch.randn(shape, generator=generator, dtype=torch.float64)


class Geometric(Noise):
    """Two-sided geometric noise, the discrete Laplace distribution: ``p(x)`` proportional to ``exp(-|x| / scale)``.

    Examples
    --------
    >>> Geometric(1.5).log_prob(torch.arange(-100, 101)).exp().sum()
    tensor(1., dtype=torch.float64)
    """

    code, name, is_integral = 3, "geometric", True

    @staticmethod
    def log_density(x: Tensor, scale: Tensor) -> Tensor:  # noqa: D102
        return -x.abs() / scale + (0.5 / scale).tanh().log()

    @staticmethod
    def variance(scale: Tensor) -> Tensor:  # noqa: D102
        return 0.5 / (0.5 / scale).clamp_max(300).sinh().square()

    def sample(self, shape: tuple[int, ...], generator: torch.Generator | None = None) -> Tensor:  # noqa: D102
        # A whole part of an exponential is geometric.
        sides = torch.empty(2, *shape, dtype=torch.float64).exponential_(generator=generator)
        return (self.scale * sides).floor().diff(dim=0)[0]


class DiscreteGaussian(Gaussian):
    """Normal noise on whole numbers: ``p(x)`` proportional to ``exp(-x^2 / (2 scale^2))``.

    Examples
    --------
    >>> round(DiscreteGaussian(0.7).log_prob(torch.arange(-20, 21)).exp().sum().item(), 12)
    1.0
    """

    code, name, is_integral = 4, "discrete_gaussian", True

    @staticmethod
    def log_density(x: Tensor, scale: Tensor) -> Tensor:  # noqa: D102
        n = torch.arange(1, 16, dtype=torch.float64, device=scale.device)
        # The sum over whole numbers, and what Poisson's formula makes of it: one of both has few terms.
        narrow = 1 + 2 * (-(n / scale[..., None]).square() / 2).exp().sum(-1)
        wide = 1 + 2 * (-2 * (math.pi * n * scale[..., None]).square()).exp().sum(-1)
        total = torch.where(scale < 0.4, narrow, wide * scale * math.sqrt(2 * math.pi))
        return -(x / scale).square() / 2 - total.log()

    def sample(self, shape: tuple[int, ...], generator: torch.Generator | None = None) -> Tensor:  # noqa: D102
        # Rejection from geometric noise of about the same width; some two of three draws are kept.
        scale = self.scale.expand(shape)
        width = scale.floor() + 1
        sampled, todo = torch.zeros_like(scale), torch.ones_like(scale, dtype=torch.bool)
        while bool(todo.any()):
            drawn = Geometric(width).sample(shape, generator)
            log_chance = -((drawn.abs() - scale.square() / width) / scale).square() / 2
            kept = todo & (torch.rand(shape, generator=generator, dtype=torch.float64).log() < log_chance)
            sampled, todo = torch.where(kept, drawn, sampled), todo & ~kept
        return sampled


KINDS: dict[str, type[Noise]] = {kind.name: kind for kind in (Laplace, Gaussian, Geometric, DiscreteGaussian)}
"""Kinds of noise by name."""


def register_noise(kind: type[Noise]) -> type[Noise]:
    """Register a kind of noise under its ``name`` and ``code``, so that it can be named, published and saved."""
    taken = [other for other in KINDS.values() if kind.code == other.code or kind.name == other.name]
    if kind.code == 0 or any(other is not kind for other in taken):
        raise ValueError(f"{kind.__name__} must have a name and a code of its own, got {kind.name!r} and {kind.code}")
    KINDS[kind.name] = kind
    return kind


def read_noise(written: str | Noise) -> Noise:
    """Return the noise that is meant by its name and scale.

    Examples
    --------
    >>> read_noise("laplace:2.5")
    Laplace(scale=2.5)
    """
    if isinstance(written, Noise):
        return written
    name, _, scale = written.partition(":")
    try:
        return KINDS[name](float(scale))
    except (KeyError, ValueError) as error:
        raise ValueError(
            f"noise must be one of {', '.join(KINDS)}, a colon and a positive scale, as in laplace:2.5; got {written!r}"
        ) from error


def _positive(name: str, value: Any) -> Tensor:
    numbers = torch.as_tensor(float("nan") if value is None else value, dtype=torch.float64)
    if not bool((numbers.isfinite() & (numbers > 0)).all()):
        meaning = ", by how much one person changes the counts," if name == "sensitivity" else ""
        raise ValueError(f"{name}{meaning} must be a positive number, got {value!r}")
    return numbers
