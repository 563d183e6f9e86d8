"""Random numbers of a run in a process whose threads share torch's global generators.

Layers draw their first weights, and dropout its masks, from global generators. A run has a state that replaces the
global one while the run may draw, in one thread at a time.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Integral
from typing import Any

import torch
from sklearn.utils import check_random_state
from torch import Tensor, nn

_LOCK = threading.RLock()  # reentrant: a function that makes models may itself fit a model
_CPU = torch.device("cpu")


class RandomState:
    """The state of torch's random numbers of a run, as after ``torch.manual_seed(seed)``.

    A run draws on the CPU, and on a GPU if that is its device; the state has an entry for each generator.
    """

    def __init__(self, seed: int, device: torch.device = _CPU) -> None:
        devices = [_CPU, device] if device.type == "cuda" else [_CPU]
        self.state: list[Tensor] = [torch.Generator(d).manual_seed(seed).get_state() for d in devices]
        self._generators = [torch.default_generator, *(torch.cuda.default_generators[d.index] for d in devices[1:])]

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Replace the state of the global generators, and restore it afterwards, also after an error; others wait."""
        with _LOCK:
            before = self.now()
            try:
                self._set(self.state)
                yield
            finally:
                self.state = self.now()
                self._set(before)

    @contextmanager
    def again_from(self, start: list[Tensor]) -> Iterator[None]:
        """While this state is in place, repeat draws from an earlier state; then continue from here."""
        after = self.now()
        self._set(start)
        yield
        self._set(after)

    def now(self) -> list[Tensor]:
        """Return the state of the global generators, which is this state while it is in place."""
        return [generator.get_state() for generator in self._generators]

    def _set(self, state: list[Tensor]) -> None:
        for generator, value in zip(self._generators, state, strict=True):
            generator.set_state(value)


def first_seed(random_state: Any) -> int:
    """Return the seed of a fit; the same for the same whole number."""
    if isinstance(random_state, Integral) and not 0 <= int(random_state) < 2**32:
        raise ValueError(f"random_state must be a whole number from 0 to {2**32 - 1:,}, got {random_state}")
    return int(check_random_state(random_state).randint(2**31 - 1))


def may_draw(*parts: Any) -> bool:
    """Return whether models, functions or other objects may draw from torch's global generators; unknown ones may."""
    return any(
        any(map(_module_may_draw, part.modules())) if isinstance(part, nn.Module) else not _is_known(part, "unbag.")
        for part in parts
        if part is not None
    )


def _module_may_draw(module: nn.Module) -> bool:
    changed = module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module)
    draws = nn.modules.dropout._DropoutNd | nn.RReLU | nn.FractionalMaxPool2d | nn.FractionalMaxPool3d
    # Attention and recurrent layers have an attribute "dropout".
    known = _is_known(type(module), "unbag.", "torch.nn.modules.")
    return bool(changed or not known or isinstance(module, draws) or getattr(module, "dropout", False))


def _is_known(thing: Any, *packages: str) -> bool:
    """Return whether a class, a function or an instance of a class is from one of these packages."""
    return str(getattr(thing, "__module__", "")).startswith(packages)
