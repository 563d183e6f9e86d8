"""Any observation that can be made by reading labels one after the other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from unbag._kernels.folds import ReachableStates
from unbag._kernels.lattice import Accept, forward_backward
from unbag._kernels.logspace import log_softmax, normalise
from unbag._kernels.segments import Segments
from unbag._utils.checks import check_n_classes
from unbag.aggregates.base import Aggregate, check_labels
from unbag.data.alignment import read_per_group
from unbag.data.groups import Groups

# Fits in several threads may share an aggregate. One for all of them: an aggregate with a lock could not be copied.
_EXPLORING = threading.RLock()


class _Outcomes(NamedTuple):
    of_states: Tensor  # (states,), the number of the outcome of each state
    possible: frozenset[int]


class FromFold(Aggregate):
    """An aggregate that is a fold over labels: an initial state, a step from state and label to state, and an output.

    The states that labels can reach are found by trying, once for each number of members; likelihood and posterior
    are then exact, by a forward-backward pass over states instead of a sum over label vectors. The cost is members
    times states times classes (classes that act alike count once), so a good state holds no more than what matters.

    Parameters
    ----------
    start
        The state before the first label.
    step
        ``step(state, label) -> state``; a state is anything hashable: a number, a string, a tuple.
    finish
        ``finish(state) -> z``, a number or a tuple of numbers.
    max_states
        The largest number of states after any number of labels.

    Examples
    --------
    Whether the labels of a group, as numbers, add up to an even sum:

    >>> even = FromFold(0, lambda state, label: (state + label) % 2, lambda state: state == 0)
    >>> groups = Groups.from_sizes([2, 3])
    >>> even.observe([1, 1, 0, 2, 1], groups, n_classes=3)
    tensor([1, 0])
    >>> even.log_likelihood(torch.zeros(5, 3), groups, [1, 0]).exp()
    tensor([0.5556, 0.4815])
    """

    _derived_attributes = ("_explorations", "_outcomes", "_numbers")

    def __init__(
        self,
        start: Hashable,
        step: Callable[[Any, int], Any],
        finish: Callable[[Any], Any],
        *,
        max_states: int = 100_000,
    ) -> None:
        self.start = start
        self.step = step
        self.finish = finish
        self.max_states = max_states
        self._explorations: dict[int, ReachableStates] = {}  # by number of classes
        self._outcomes: dict[tuple[int, int], _Outcomes] = {}  # by number of classes and of members
        self._numbers: dict[Any, int] = {}  # of the outcomes

    def observe(self, labels: Any, groups: Groups, n_classes: int) -> Tensor:
        members = check_labels(labels, groups, n_classes).split(groups.sizes.tolist())
        seen = [_as_key(self.finish(reduce(self.step, one.tolist(), self.start))) for one in members]
        array = np.array(seen)
        if array.dtype.kind not in "biuf":
            raise TypeError(f"finish must return a number or a tuple of numbers, got {seen[0]!r}")
        return torch.from_numpy(array).to(groups.device)

    def check(self, z: Any, groups: Groups, n_classes: int) -> Tensor:
        """Return the number of each observation among all outcomes."""
        check_n_classes(n_classes)
        z = read_per_group(z, groups)
        if len(z.shape) == 0 or len(z) != len(groups):
            raise ValueError(f"z must have one entry per group, {len(groups)} in all; got shape {tuple(z.shape)}")
        wanted = []
        for group, (seen, size) in enumerate(zip(z.tolist(), groups.sizes.tolist(), strict=True)):
            possible = self._outcomes_after(size, n_classes).possible
            number = self._numbers.get(_as_key(seen), -1)
            if number not in possible:
                raise ValueError(
                    f"z[{group}] is {seen}, which no labels of group {groups.name(group)}, of size {size}, give; "
                    f"possible are {_shorten([value for value, own in list(self._numbers.items()) if own in possible])}"
                )
            wanted.append(number)
        return torch.tensor(wanted, device=groups.device)

    def is_binary(self, groups: Groups, n_classes: int) -> bool:
        sizes = groups.sizes.unique().tolist()
        possible = frozenset().union(*(self._outcomes_after(size, n_classes).possible for size in sizes))
        return all(value in (0, 1) for value, number in list(self._numbers.items()) if number in possible)

    def expect(self, log_probs: Tensor, groups: Groups) -> Tensor:
        if not self.is_binary(groups, log_probs.shape[1]):
            return super().expect(log_probs, groups)
        # A number that no state has where no labels are observed as yes.
        yes = torch.full((len(groups),), self._numbers.get(1, -1), device=groups.device)
        return self.likelihood_and_posterior(log_probs, groups.segments, yes)[0].exp()

    def infer(self, log_probs: Tensor, segments: Segments, z: Tensor) -> tuple[Tensor, Tensor]:
        device, n_classes = log_probs.device, log_probs.shape[1]
        with _EXPLORING:
            lattice, classes = self._reachable_states(n_classes).lattice(segments.max_size, device)
        sizes = segments.sizes.unique().tolist()
        outcomes = {size: self._outcomes_after(size, n_classes).of_states.to(device) for size in sizes}
        exact = log_softmax(log_probs.double())  # the roundings of many members would add up
        moves, within = zip(*(normalise(exact[:, alike]) for alike in classes), strict=True)
        log_likelihood, shares = forward_backward(torch.stack(moves, 1), segments, lattice, Accept(outcomes, z))
        posterior = torch.empty_like(log_probs)
        for move, alike in enumerate(classes):
            # Classes that act alike share what their move gets as they would without the observation.
            posterior[:, alike] = (within[move].nan_to_num(0.0) * shares[:, move, None]).to(log_probs.dtype)
        return log_likelihood.to(log_probs.dtype), posterior

    def _reachable_states(self, n_classes: int) -> ReachableStates:
        if n_classes not in self._explorations:
            self._explorations[n_classes] = ReachableStates(self.start, self.step, n_classes, self.max_states)
        return self._explorations[n_classes]

    def _outcomes_after(self, size: int, n_classes: int) -> _Outcomes:
        """Return what labels of so many members can be observed as."""
        if (n_classes, size) not in self._outcomes:
            with _EXPLORING:
                reachable = self._reachable_states(n_classes)
                reachable.explore(size)
                seen = [_as_key(self.finish(state)) for state in reachable.levels[size]]
                if not all(isinstance(value, Hashable) for value in seen):
                    raise TypeError(f"finish must return a number or a tuple of numbers, got {seen[0]!r}")
                numbers = [self._numbers.setdefault(value, len(self._numbers)) for value in seen]
                self._outcomes[n_classes, size] = _Outcomes(torch.tensor(numbers), frozenset(numbers))
        return self._outcomes[n_classes, size]


class FromFunction(FromFold):
    """An aggregate from any function of a whole label vector, for small groups: all label vectors are tried.

    Parameters
    ----------
    g
        ``g(labels) -> z``, from a tuple of labels to a number or a tuple of numbers.
    max_vectors
        The largest number of label vectors, classes to the power of members, that is tried.

    Examples
    --------
    >>> spread = FromFunction(lambda labels: max(labels) - min(labels))
    >>> groups = Groups.from_sizes([3])
    >>> spread.observe([4, 1, 2], groups, n_classes=5)
    tensor([3])
    >>> spread.log_likelihood(torch.zeros(3, 2), groups, [0]).exp()
    tensor([0.2500])
    """

    def __init__(self, g: Callable[[tuple[int, ...]], Any], *, max_vectors: int = 100_000) -> None:
        super().__init__((), lambda labels, label: (*labels, label), g, max_states=max_vectors)
        self.g = g
        self.max_vectors = max_vectors

    def check(self, z: Any, groups: Groups, n_classes: int) -> Tensor:
        n_vectors = check_n_classes(n_classes) ** groups.max_size
        if n_vectors > self.max_vectors:
            largest = int(groups.sizes.argmax())
            raise ValueError(
                f"group {groups.name(largest)} of {groups.max_size} members and {n_classes} classes means "
                f"{n_classes}^{groups.max_size} label vectors, more than max_vectors={self.max_vectors}; write g as a "
                "fold with FromFold, use smaller groups, or raise max_vectors"
            )
        return super().check(z, groups, n_classes)


def _as_key(value: Any) -> Any:
    """Make what `finish` returned comparable with what a tensor holds: plain numbers and tuples of them."""
    if isinstance(value, Tensor | np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return tuple(_as_key(part) for part in value)
    return int(value) if isinstance(value, bool) else value


def _shorten(values: list[Any]) -> str:
    shown = ", ".join(map(str, values[:8]))
    return f"{shown}, ... ({len(values)} in all)" if len(values) > 8 else shown
