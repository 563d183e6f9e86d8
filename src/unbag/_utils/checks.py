"""Checks of arguments, whose errors name the argument, the groups or rows, what was expected, what came, what to do."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor


class ImpossibleObservation(ValueError):
    """Raised on request where the logits give an observation a probability of exactly zero."""


def format_indices(kind: str, bad: Tensor, name: Callable[[int], str] = str) -> str:
    """List the first positions where a mask is true, and count the others."""
    places = bad.nonzero().flatten().tolist()
    shown = ", ".join(name(place) for place in places[:3])
    more = f" and {len(places) - 3} more" if len(places) > 3 else ""
    return f"{kind}{'s' if len(places) > 1 else ''} {shown}{more}"


def raise_if_any(
    wrong: Tensor,
    rule: str,
    explain: Callable[[int], str],
    name: Callable[[int], str] = str,
    kind: str = "group",
) -> None:
    """Raise an error that states a rule, lists where a mask says that it is violated, and describes the first entry."""
    if bool(wrong.any()):
        first = int(wrong.nonzero()[0])
        places = format_indices(kind, wrong, name)
        raise ValueError(f"{rule}; this does not hold for {places}: {explain(first)}")


def as_tensor(value: Any, name: str, device: torch.device, ids: Sequence[Any] | None = None) -> Tensor:
    """Return an argument as a tensor; a tensor must be on the right device. Errors name the ids of entries."""
    if isinstance(value, Tensor):
        if value.device != device:
            raise ValueError(
                f"{name} is on {value.device}, but the groups are on {device}; "
                f"move one of them, for example with .to({str(device)!r})"
            )
        return value
    if not isinstance(value, list | tuple) or any(hasattr(part, "__array__") for part in value):
        value = as_numbers(value, name, ids).copy()  # torch accepts neither read-only arrays nor reversed ones
    with _describe_conversion(name):
        return torch.as_tensor(value, device=device)


def as_numbers(value: Any, name: str, ids: Sequence[Any] | None = None) -> np.ndarray:
    """Return an argument as an array without missing values."""
    raise_if_masked(value, name, ids)
    with _describe_conversion(name):
        if isinstance(value, list | tuple):
            value = [part.numpy(force=True) if isinstance(part, Tensor) else part for part in value]
        # Columns and tables of pandas, polars and pyarrow have a method for it.
        array = value.to_numpy() if hasattr(value, "to_numpy") else np.asarray(value)
        if array.dtype != object:
            return array
        missing = np.array([any(map(is_missing, np.ravel(row))) for row in np.atleast_1d(array)], dtype=bool)
    _raise_if_missing(missing, name, ids)
    with _describe_conversion(name):
        return np.array(array.tolist())  # from a column of lists, or from numbers that might have been missing


def is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN or pandas' NA."""
    try:
        return value is None or bool(value != value)  # noqa: PLR0124 (NaN, in whatever type, differs from itself)
    except TypeError:  # from NA of pandas
        return True


def raise_if_masked(value: Any, name: str, ids: Sequence[Any] | None = None) -> None:
    """Raise an error if entries are masked, which NumPy, torch and scikit-learn would ignore."""
    if isinstance(value, np.ma.MaskedArray):
        mask = np.atleast_1d(np.ma.getmaskarray(value))
        _raise_if_missing(np.logical_or.reduce(mask, axis=tuple(range(1, mask.ndim))), name, ids)
    elif isinstance(value, list | tuple):
        _raise_if_missing(np.array([np.ma.is_masked(part) for part in value], dtype=bool), name, ids)


def _raise_if_missing(missing: np.ndarray, name: str, ids: Sequence[Any] | None) -> None:
    if missing.any():
        named = ids if ids is not None and len(ids) == len(missing) else None
        places = format_indices(
            "place", torch.from_numpy(missing), str if named is None else lambda at: f"{at} (id {named[at]!r})"
        )
        raise ValueError(f"{name} has no value at {places}; fill in what is missing, or leave it out")


@contextmanager
def _describe_conversion(name: str) -> Iterator[None]:
    try:
        yield
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(
            f"{name} cannot be made into a tensor: {error}; pass numbers as a tensor, an array or a list of lists of "
            "equal length"
        ) from error


def describe(value: Any) -> str:
    """Return the type of a value, or the data type and shape of a tensor."""
    return f"{value.dtype} of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__


def is_integral(tensor: Tensor) -> bool:
    """Return whether a tensor holds integers or booleans."""
    return not (tensor.is_floating_point() or tensor.is_complex())


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> Any:
    """Return a value that must be one of a few."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
    return value


def check_n_classes(n_classes: int) -> int:
    """Return a number of classes, which must be at least two."""
    if isinstance(n_classes, bool) or not isinstance(n_classes, Integral) or n_classes < 2:
        raise ValueError(f"n_classes must be a whole number of at least 2, got {n_classes!r}")
    return int(n_classes)


def check_device(device: Any) -> torch.device:
    """Return a device that torch can use on this machine."""
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError, TypeError) as error:
        usable = ["'cpu'"]
        if torch.accelerator.is_available():
            kind = torch.accelerator.current_accelerator()
            usable += [repr(f"{kind}:{number}") for number in range(torch.accelerator.device_count())]
        raise ValueError(
            f"device={device!r} cannot be used: this machine and its torch {torch.__version__} have "
            f"{', '.join(usable)}; choose one of these, or install a torch for the device, and its driver"
        ) from error
