"""Additive noise of published counts: log-densities, variances, and seeded samples."""

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import torch
from torch import Tensor


class Noise(ABC):
    """One kind of noise, with a positive scale, or an array of them with one for each value."""

    code: ClassVar[int]
    """Identifies the kind in statements of :mod:`unbag.published`; 0 means no noise."""
    name: ClassVar[str]
    is_integral: ClassVar[bool] = False
    """Whether the noise consists of whole numbers."""

    def __init__(self, scale: Any) -> None:
        self.scale = torch.as_tensor(scale, dtype=torch.float64)
        if bool((wrong := ~(self.scale.isfinite() & (self.scale > 0))).any()):
            raise ValueError(f"the scale of noise must be a positive number, got {self.scale[wrong].flatten()[0]:g}")

    @classmethod
    def from_epsilon(cls, epsilon: Any, sensitivity: Any = None) -> Self:
        """Return the noise of a differentially private mechanism with privacy loss ``epsilon``.

        The sensitivity is the largest change of the released counts by one person, summed over the counts that share
        the epsilon: 1 if a person is counted once, 2 if a person may move from one class to another.

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
        """Draw noise for simulations; it is not secure enough for private releases."""

    def log_prob(self, x: Any) -> Tensor:
        """Return the log-density, or log-probability, of published value minus count."""
        return self.log_density(torch.as_tensor(x, dtype=torch.float64), self.scale)

    def __str__(self) -> str:
        return f"{self.name}:{self.scale.item():.17g}"

    def __repr__(self) -> str:
        scale = f"{self.scale.item():g}" if self.scale.numel() == 1 else f"<{self.scale.numel()} values>"
        return f"{type(self).__name__}(scale={scale})"


class Laplace(Noise):
    """Laplace noise of density ``exp(-|x| / scale) / (2 scale)``."""

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

        The sensitivity is Euclidean, and epsilon must be at most 1. Prefer the standard deviation or rho if one of
        them was published.
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
    """Two-sided geometric noise, the discrete Laplace distribution: ``p(x)`` proportional to ``exp(-|x| / scale)``."""

    code, name, is_integral = 3, "geometric", True

    @staticmethod
    def log_density(x: Tensor, scale: Tensor) -> Tensor:  # noqa: D102
        return -x.abs() / scale + (0.5 / scale).tanh().log()

    @staticmethod
    def variance(scale: Tensor) -> Tensor:  # noqa: D102
        return 0.5 / (0.5 / scale).clamp_max(300).sinh().square()

    def sample(self, shape: tuple[int, ...], generator: torch.Generator | None = None) -> Tensor:  # noqa: D102
        # The floor of an exponential variable is geometric.
        sides = torch.empty(2, *shape, dtype=torch.float64).exponential_(generator=generator)
        return (self.scale * sides).floor().diff(dim=0)[0]


class DiscreteGaussian(Gaussian):
    """Normal noise on whole numbers: ``p(x)`` proportional to ``exp(-x^2 / (2 scale^2))``."""

    code, name, is_integral = 4, "discrete_gaussian", True

    @staticmethod
    def log_density(x: Tensor, scale: Tensor) -> Tensor:  # noqa: D102
        n = torch.arange(1, 16, dtype=torch.float64, device=scale.device)
        # The sum over whole numbers, or its Poisson summation, whichever has few terms.
        narrow = 1 + 2 * (-(n / scale[..., None]).square() / 2).exp().sum(-1)
        wide = 1 + 2 * (-2 * (math.pi * n * scale[..., None]).square()).exp().sum(-1)
        total = torch.where(scale < 0.4, narrow, wide * scale * math.sqrt(2 * math.pi))
        return -(x / scale).square() / 2 - total.log()

    def sample(self, shape: tuple[int, ...], generator: torch.Generator | None = None) -> Tensor:  # noqa: D102
        # Rejection sampling from geometric noise of similar width, which accepts about two of three draws.
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
    """Register a kind of noise under its ``name`` and ``code``, so that it can be created by name and saved."""
    existing = [other for other in KINDS.values() if kind.code == other.code or kind.name == other.name]
    if kind.code == 0 or any(other is not kind for other in existing):
        raise ValueError(f"{kind.__name__} must have a unique name and code, got {kind.name!r} and {kind.code}")
    KINDS[kind.name] = kind
    return kind


def read_noise(text: str | Noise) -> Noise:
    """Create noise from its name and scale.

    Examples
    --------
    >>> read_noise("laplace:2.5")
    Laplace(scale=2.5)
    """
    if isinstance(text, Noise):
        return text
    name, _, scale = text.partition(":")
    try:
        return KINDS[name](float(scale))
    except (KeyError, ValueError) as error:
        raise ValueError(
            f"noise must be one of {', '.join(KINDS)}, a colon and a positive scale, as in laplace:2.5; got {text!r}"
        ) from error


def _positive(name: str, value: Any) -> Tensor:
    numbers = torch.as_tensor(float("nan") if value is None else value, dtype=torch.float64)
    if not bool((numbers.isfinite() & (numbers > 0)).all()):
        meaning = ", the change of the counts by one person," if name == "sensitivity" else ""
        raise ValueError(f"{name}{meaning} must be a positive number, got {value!r}")
    return numbers
