"""The reachable states of a fold over labels, as a lattice."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from unbag._kernels.lattice import Lattice


@dataclass(eq=False)
class ReachableStates:
    """States that labels ``0 .. n_classes - 1`` reach from a start, level by level, explored on demand.

    If a level has the same states as the previous one, all later levels are equal and share their tables.
    """

    start: Hashable
    step: Callable[[Any, int], Any]
    n_classes: int
    max_states: int
    levels: list[list[Hashable]] = field(default_factory=list)  # the states after t labels
    tables: list[Tensor] = field(default_factory=list)  # (states at t, classes), the state at t + 1
    _lattices: dict[tuple[int, torch.device], tuple[Lattice, list[list[int]]]] = field(default_factory=dict)

    def lattice(self, depth: int, device: torch.device) -> tuple[Lattice, list[list[int]]]:
        """Return the lattice up to a depth, and the classes of each of its moves."""
        self.explore(depth)
        if (depth, device) not in self._lattices:
            tables = self.tables[:depth]
            distinct = {id(table): table for table in tables}
            # Classes that always lead to the same states are one move.
            _, move_of_class = torch.cat(list(distinct.values())).unique(dim=1, return_inverse=True)
            classes: list[list[int]] = [[] for _ in range(int(move_of_class.max()) + 1)]
            for label, move in enumerate(move_of_class.tolist()):
                classes[move].append(label)
            first = [labels[0] for labels in classes]
            merged = {key: table[:, first].contiguous().to(device) for key, table in distinct.items()}
            widths = [len(level) for level in self.levels[: depth + 1]]
            self._lattices[depth, device] = Lattice([merged[id(table)] for table in tables], widths), classes
        return self._lattices[depth, device]

    def explore(self, depth: int) -> None:
        """Find the states of all levels up to a depth."""
        if not self.levels:
            self.levels.append([self.start])
        while len(self.tables) < depth:
            if len(self.levels) > 1 and self.levels[-1] is self.levels[-2]:
                self.levels.append(self.levels[-1])
                self.tables.append(self.tables[-1])
                continue
            self._explore_level()

    def _explore_level(self) -> None:
        current = self.levels[-1]
        reached: dict[Hashable, int] = {}
        table = [[self._number(reached, state, label) for label in range(self.n_classes)] for state in current]
        states = list(reached)
        numbers = torch.tensor(table)
        if set(states) == set(current):
            in_order = {state: number for number, state in enumerate(current)}
            numbers = torch.tensor([in_order[state] for state in states])[numbers]
            states = current
        self.levels.append(states)
        self.tables.append(numbers)

    def _number(self, reached: dict[Hashable, int], state: Hashable, label: int) -> int:
        following = self.step(state, label)
        try:
            number = reached.setdefault(following, len(reached))
        except TypeError as error:
            raise TypeError(
                f"step({state!r}, {label}) returned {following!r}, which cannot be a state because it is not hashable; "
                "return a number, a string or a tuple"
            ) from error
        if number >= self.max_states:
            raise ValueError(
                f"the fold reaches more than max_states={self.max_states} states after {len(self.levels)} labels of "
                f"{self.n_classes} classes; simplify the state, use smaller groups, or increase max_states"
            )
        return number
