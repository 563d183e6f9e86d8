"""Checks of what a caller hands in, and the words of their errors.

An error names the argument, the groups or rows, what was expected, what came and what to do about it.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor


class ImpossibleObservation(ValueError):
    """Raised on request where the logits give an observation a probability of exactly zero."""


def name_some(kind: str, bad: Tensor, name: Callable[[int], str] = str) -> str:
    """Name the first few places where a mask is true: ``"groups 2, 5 and 7 more"``.

    Examples
    --------
    >>> name_some("row", torch.tensor([False, True, True]))
    'rows 1, 2'
    """
    places = bad.nonzero().flatten().tolist()
    shown = ", ".join(name(place) for place in places[:3])
    more = f" and {len(places) - 3} more" if len(places) > 3 else ""
    return f"{kind}{'s' if len(places) > 1 else ''} {shown}{more}"


def as_tensor(value: Any, name: str, device: torch.device) -> Tensor:
    """Make a tensor of what a caller handed in; a tensor must already be on the right device."""
    if isinstance(value, Tensor):
        if value.device != device:
            raise ValueError(
                f"{name} is on {value.device}, but the groups are on {device}; "
                f"move one of them, for example with .to({str(device)!r})"
            )
        return value
    if hasattr(value, "to_numpy"):  # a column or a table of pandas, polars or pyarrow
        value = value.to_numpy()
    if isinstance(value, np.ndarray):
        value = value.copy()  # torch takes neither read-only arrays nor reversed ones
    try:
        return torch.as_tensor(value, device=device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(
            f"{name} cannot be made into a tensor: {error}; "
            "hand in numbers as a tensor, an array or a list of lists of equal length"
        ) from error


def describe(value: Any) -> str:
    """Say what came instead of what was expected.

    Examples
    --------
    >>> describe(torch.zeros(2, 3)), describe("three")
    ('torch.float32 of shape (2, 3)', 'str')
    """
    if isinstance(value, Tensor):
        return f"{value.dtype} of shape {tuple(value.shape)}"
    return type(value).__name__


def is_whole(tensor: Tensor) -> bool:
    """Whether a tensor holds integers or booleans."""
    return not (tensor.is_floating_point() or tensor.is_complex())


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> Any:
    """Return a word that must be one of a few."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
    return value


def check_n_classes(n_classes: int) -> int:
    """Refuse problems with fewer than two classes."""
    if isinstance(n_classes, bool) or not isinstance(n_classes, Integral) or n_classes < 2:
        raise ValueError(f"n_classes must be a whole number of at least 2, got {n_classes!r}")
    return int(n_classes)
