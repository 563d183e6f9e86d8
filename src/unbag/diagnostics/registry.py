"""The registry of checks, and what a check receives.

A check is a function from a :class:`Context` to findings. Its stage says when it runs: ``"observations"`` and
``"rows"`` before a fit, ``"fit"`` after it. All checks of a stage run in Python and on the command line; those of other
packages are found by the entry points ``unbag.checks``.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from unbag._utils import plugins
from unbag._utils.checks import check_choice
from unbag._utils.findings import Finding
from unbag.aggregates.observations import Observations
from unbag.aggregates.symmetry import Symmetry, find_symmetry

Stage = Literal["observations", "rows", "fit"]


@dataclass(frozen=True, eq=False)
class Context:
    """What a check can look at; a check of a stage finds the parts of this stage, and those of the stages before it."""

    sets: Sequence[Observations]  # without groups of weight zero
    classes: Sequence[Any]  # names of the classes
    labels: Sequence[bool] = ()  # for each set, whether it consists of labels of rows
    sampling: Sequence[Any] = ()  # for each set, how groups were selected by their observation, or None
    class_shares: Tensor | None = None  # known shares, (classes,)
    # Whether something besides the observations shows which class is which, or where ordered classes begin and end.
    classes_named: bool = False
    borders_known: bool = False
    n_rows: int | None = None  # of the whole table, where sets and rows are an excerpt
    n_groups: int | None = None
    # From "rows" on: all rows as numbers, float64, NaN where a value is missing.
    X: Tensor | None = None
    columns: Sequence[Any] | None = None  # names of the columns
    subjects: Tensor | None = None  # number of the subject of each row
    # From "fit" on, for each set: log-probabilities of each membership by models that did not see its group, NaN where
    # there are none; those by the models of each fold; and the number of the fold that predicts it, -1 where none does.
    log_probs: Sequence[Tensor] = ()
    fold_log_probs: Sequence[Sequence[Tensor]] = ()
    folds: Sequence[Tensor] = ()
    sample_log_probs: Tensor | None = None  # of some rows by the fitted model
    interval: tuple[float, float] | None = None  # of the estimated accuracy
    seconds: float = 0.0  # that training took
    time_limit: float | None = None

    @cached_property
    def symmetry(self) -> Symmetry:
        """Permutations of the classes that leave the observations unchanged."""
        return find_symmetry(self.sets)

    @property
    def table(self) -> Tensor:
        """The rows, one column per number."""
        assert self.X is not None
        return self.X.reshape(len(self.X), -1)

    @cached_property
    def members(self) -> Tensor:
        """Numbers of the rows that are in any group, sorted."""
        return torch.cat([s.groups.members for s in self.sets]).unique()

    def name_column(self, column: int) -> str:
        """Return how messages call a column."""
        return str(column) if self.columns is None else f"{column} ({self.columns[column]})"

    def sampling_of(self, number: int) -> Any:
        """Return how the groups of a set were selected, or None."""
        return self.sampling[number] if self.sampling else None


Check = Callable[[Context], Iterable[Finding]]
CHECKS: dict[Check, Stage] = {}


def register_check(stage: Stage) -> Callable[[Check], Check]:
    """Register a function as a check of a stage; checks of ``"rows"`` run if there are rows to look at."""
    check_choice("stage", stage, get_args(Stage))

    def register(check: Check) -> Check:
        CHECKS[check] = stage
        return check

    return register


def unregister_check(check: Check) -> None:
    """Remove a check from the registry."""
    del CHECKS[check]


def run_checks(stage: Stage, context: Context) -> list[Finding]:
    """Return what all checks of a stage find, in the order in which they were registered."""
    for name in plugins.names(plugins.CHECKS):
        plugins.load(plugins.CHECKS, name)
    return [finding for check, of_stage in list(CHECKS.items()) if of_stage == stage for finding in check(context)]


def raise_if_fatal(findings: Sequence[Finding], n_sets: int) -> None:
    """Raise an error if nothing can be learned; with several sets, one may contain what another lacks."""
    if n_sets == 1 and (fatal := [finding.message for finding in findings if finding.fatal]):
        raise ValueError(f"there is nothing to learn from these observations: {'; '.join(fatal)}")
