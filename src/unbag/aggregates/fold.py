"""Observations that are a fold over the labels of a group."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unbag._kernels.lattice import Accept, Lattice, forward_backward
from unbag._kernels.logspace import log_softmax, normalise
from unbag._kernels.segments import Segments
from unbag._utils.checks import check_n_classes
from unbag.aggregates.base import Aggregate, check_labels
from unbag.data.alignment import read_per_group
from unbag.data.groups import Groups

# Fits in several threads may share an aggregate. The lock is global because an aggregate with a lock cannot be copied.
_EXPLORING = threading.RLock()


class FromFold(Aggregate):
    """A fold over the labels of a group: an initial state, a step from state and label to state, and an output.

    Reachable states are enumerated once for each number of members. Likelihood and posterior are then exact, by a
    forward-backward pass over states. It costs members times states times classes (classes with equal transitions
    count once), so that states should be small.

    Parameters
    ----------
    start
        State before the first label.
    step
        ``step(state, label) -> state``; states must be hashable, for example numbers, strings or tuples.
    finish
        ``finish(state) -> z``, a number or a tuple of numbers.
    max_states
        Largest number of states after any number of labels.

    Examples
    --------
    >>> even = FromFold(0, lambda state, label: (state + label) % 2, lambda state: state == 0)
    >>> groups = Groups.from_sizes([2, 3])
    >>> even.observe([1, 1, 0, 2, 1], groups, n_classes=3)
    tensor([1, 0])
    >>> even.log_likelihood(torch.zeros(5, 3), groups, [1, 0]).exp()
    tensor([0.5556, 0.4815])
    """

    _derived_attributes = ("_explorations", "_numbers")

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
        self._explorations: dict[int, _ReachableStates] = {}  # by number of classes
        self._numbers: dict[Any, int] = {}  # of the outcomes

    def observe(self, labels: Any, groups: Groups, n_classes: int) -> Tensor:
        members = check_labels(labels, groups, n_classes).split(groups.sizes.tolist())
        values = [_as_key(self.finish(reduce(self.step, labels.tolist(), self.start))) for labels in members]
        array = np.array(values)
        if array.dtype.kind not in "biuf":
            raise TypeError(f"finish must return a number or a tuple of numbers, got {values[0]!r}")
        return torch.from_numpy(array).to(groups.device)

    def check(self, z: Any, groups: Groups, n_classes: int) -> Tensor:
        """Return the number of each observation among all outcomes."""
        check_n_classes(n_classes)
        z = read_per_group(z, groups)
        if len(z.shape) == 0 or len(z) != len(groups):
            raise ValueError(f"z must have one entry per group, {len(groups)} in all; got shape {tuple(z.shape)}")
        possible = {size: self._possible_values(size, n_classes) for size in groups.sizes.unique().tolist()}
        numbers = []
        for group, (value, size) in enumerate(zip(z.tolist(), groups.sizes.tolist(), strict=True)):
            values = possible[size]
            numbers.append(values.get(_as_key(value), -1))
            if numbers[-1] < 0:
                raise ValueError(
                    f"z[{group}] is {value}, which is not possible for group {groups.name(group)} of size {size}; "
                    f"possible are {_shorten([*values])}"
                )
        return torch.tensor(numbers, device=groups.device)

    def is_binary(self, groups: Groups, n_classes: int) -> bool:
        sizes = groups.sizes.unique().tolist()
        return all(value in (0, 1) for size in sizes for value in self._possible_values(size, n_classes))

    def expect(self, log_probs: Tensor, groups: Groups) -> Tensor:
        if not self.is_binary(groups, log_probs.shape[1]):
            return super().expect(log_probs, groups)
        # -1 is the outcome of no state, for groups that cannot have the observation 1.
        yes = torch.full((len(groups),), self._numbers.get(1, -1), device=groups.device)
        return self.e_step(log_probs, groups.segments, yes)[0].exp()

    def infer(self, log_probs: Tensor, segments: Segments, z: Tensor) -> tuple[Tensor, Tensor]:
        device, n_classes = log_probs.device, log_probs.shape[1]
        with _EXPLORING:
            lattice, classes = self._reachable_states(n_classes).make_lattice(segments.max_size, device)
        sizes = segments.sizes.unique().tolist()
        outcomes = {size: self._outcomes_after(size, n_classes).to(device) for size in sizes}
        exact = log_softmax(log_probs.double())  # rounding errors of many members would accumulate
        moves, within = zip(*(normalise(exact[:, equivalent]) for equivalent in classes), strict=True)
        log_likelihood, shares = forward_backward(torch.stack(moves, 1), segments, lattice, Accept(outcomes, z))
        posterior = torch.empty_like(log_probs)
        for move, equivalent in enumerate(classes):
            # The observation does not change the ratios of classes with equal transitions.
            posterior[:, equivalent] = (within[move].nan_to_num(0.0) * shares[:, move, None]).to(log_probs.dtype)
        return log_likelihood.to(log_probs.dtype), posterior

    def _reachable_states(self, n_classes: int) -> _ReachableStates:
        return self._explorations.setdefault(n_classes, _ReachableStates(self, n_classes))

    def _outcomes_after(self, size: int, n_classes: int) -> Tensor:
        """Return the number of the outcome of each final state of groups of a size, shape (states,)."""
        with _EXPLORING:
            reachable = self._reachable_states(n_classes)
            if size not in reachable.outcomes:
                reachable.explore(size)
                values = [_as_key(self.finish(state)) for state in reachable.levels[size]]
                if not all(isinstance(value, Hashable) for value in values):
                    raise TypeError(f"finish must return a number or a tuple of numbers, got {values[0]!r}")
                numbers = [self._numbers.setdefault(value, len(self._numbers)) for value in values]
                reachable.outcomes[size] = torch.tensor(numbers)
            return reachable.outcomes[size]

    def _possible_values(self, size: int, n_classes: int) -> dict[Any, int]:
        """Return the possible observations of groups of a size, with their numbers."""
        possible = {*self._outcomes_after(size, n_classes).tolist()}
        return {value: number for value, number in list(self._numbers.items()) if number in possible}


@dataclass(eq=False)
class _ReachableStates:
    """States that labels ``0 .. n_classes - 1`` reach from a start, level by level, explored on demand.

    If a level has the same states as the previous one, all later levels are equal and share their tables.
    """

    fold: FromFold
    n_classes: int
    levels: list[list[Hashable]] = field(default_factory=list)  # the states after t labels
    tables: list[Tensor] = field(default_factory=list)  # (states at t, classes), the state at t + 1
    outcomes: dict[int, Tensor] = field(default_factory=dict)  # by size, (states,), the number of each state's outcome
    lattices: dict[tuple[int, torch.device], tuple[Lattice, list[list[int]]]] = field(default_factory=dict)

    def make_lattice(self, depth: int, device: torch.device) -> tuple[Lattice, list[list[int]]]:
        """Return the lattice up to a depth, and the classes of each of its moves."""
        self.explore(depth)
        if (depth, device) not in self.lattices:
            tables = self.tables[:depth]
            distinct = {id(table): table for table in tables}
            # Classes that always lead to the same states are one move.
            _, move_of_class = torch.cat(list(distinct.values())).unique(dim=1, return_inverse=True)
            classes = [(move_of_class == move).nonzero().flatten().tolist() for move in range(move_of_class.max() + 1)]
            first = [labels[0] for labels in classes]
            merged = {key: table[:, first].contiguous().to(device) for key, table in distinct.items()}
            widths = [len(level) for level in self.levels[: depth + 1]]
            self.lattices[depth, device] = Lattice([merged[id(table)] for table in tables], widths), classes
        return self.lattices[depth, device]

    def explore(self, depth: int) -> None:
        """Find the states of all levels up to a depth."""
        self.levels = self.levels or [[self.fold.start]]
        while len(self.tables) < depth:
            current = self.levels[-1]
            if len(self.levels) > 1 and current is self.levels[-2]:
                self.levels.append(current)
                self.tables.append(self.tables[-1])
                continue
            reached: dict[Hashable, int] = {}
            table = [[self._number(reached, state, label) for label in range(self.n_classes)] for state in current]
            states, numbers = list(reached), torch.tensor(table)
            if reached.keys() == {*current}:
                in_order = {state: number for number, state in enumerate(current)}
                states, numbers = current, torch.tensor([in_order[state] for state in states])[numbers]
            self.levels.append(states)
            self.tables.append(numbers)

    def _number(self, reached: dict[Hashable, int], state: Hashable, label: int) -> int:
        following = self.fold.step(state, label)
        try:
            number = reached.setdefault(following, len(reached))
        except TypeError as error:
            raise TypeError(
                f"step({state!r}, {label}) returned {following!r}, which cannot be a state because it is not hashable; "
                "return a number, a string or a tuple"
            ) from error
        if number >= self.fold.max_states:
            raise ValueError(
                f"the fold reaches more than max_states={self.fold.max_states} states after {len(self.levels)} labels "
                f"of {self.n_classes} classes; simplify the state, use smaller groups, or increase max_states"
            )
        return number


class FromFunction(FromFold):
    """Any function of the label vector of a group, for small groups: all label vectors are enumerated.

    Parameters
    ----------
    g
        ``g(labels) -> z``, from a tuple of labels to a number or a tuple of numbers.
    max_vectors
        Largest number of label vectors of a group, classes to the power of members.

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
                f"group {groups.name(largest)} of {groups.max_size} members and {n_classes} classes has "
                f"{n_classes}^{groups.max_size} label vectors, more than max_vectors={self.max_vectors}; write g as a "
                "fold with FromFold, use smaller groups, or raise max_vectors"
            )
        return super().check(z, groups, n_classes)


def _as_key(value: Any) -> Any:
    """Convert a result of ``finish`` to plain numbers and tuples of them, as in the list of a tensor."""
    if isinstance(value, Tensor | np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return tuple(_as_key(part) for part in value)
    return int(value) if isinstance(value, bool) else value


def _shorten(values: list[Any]) -> str:
    shown = ", ".join(map(str, values[:8]))
    return f"{shown}, ... ({len(values)} in all)" if len(values) > 8 else shown
