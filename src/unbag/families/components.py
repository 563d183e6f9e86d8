"""Networks of very wide tables, which learn from few components of rows and end as networks of all columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeGuard

import torch
from torch import Tensor, nn

from unbag._utils.parts import join
from unbag.data.row_source import Rows
from unbag.data.scaling import Scaling, ScalingName, fit_scaling
from unbag.families.base import Fitted
from unbag.families.choice import AUTO
from unbag.families.folds import Fold
from unbag.families.networks import ROWS_AT_ONCE, Network, Networks
from unbag.training import Observations

MOST_COMPONENTS = 1024
MOST_COLUMNS = 10_000
"""Of more, LightGBM takes a minute to begin and seconds for a tree, and a network has millions of weights in each fold:
``model="auto"`` is linear then."""
LINEAR_FIRST = ("linear", "logistic", "mlp")
"""Models whose first layer is linear in the columns."""

# Of the largest variance of a component: what is less are rounding errors.
SMALLEST = 1e-5


def is_wide(X: Rows) -> TypeGuard[Tensor]:
    """Whether a table has so many columns that its rows span few of their directions."""
    if not isinstance(X, Tensor) or X.ndim != 2 or X.shape[1] <= 2 * max(len(X), MOST_COMPONENTS):
        return False
    return not bool(X.isnan().any())  # which is left to trees


def describe_width(X: Rows, model: object) -> str | None:
    """Say what is not tried, or not looked at, in a very wide table."""
    if not is_wide(X) or not isinstance(model, str):
        return None
    start = f"X has {X.shape[1]:,} columns for {len(X):,} rows: "
    if model == AUTO and X.shape[1] > MOST_COLUMNS:
        return f"{start}only a linear model is tried; name model='mlp' or 'trees' to have another"
    if model in (AUTO, *LINEAR_FIRST) and len(X) > MOST_COMPONENTS:
        return f"{start}linear models and networks learn from {MOST_COMPONENTS:,} components of these, chosen at random"
    return None


@dataclass(frozen=True, eq=False)
class ComponentNetworks:
    """Networks whose first layer learns in the span of the rows.

    The gradient of a first layer is a sum of rows, so that its weights never leave their span, except for where they
    began. Of at most 1,024 rows all components are taken, and nothing is lost; of more rows, those in the span of as
    many, chosen at random.
    """

    make_networks: Callable[[int], Networks]
    """From a number of components to networks of these, all of one factor."""
    make_net: Callable[[], nn.Module]
    """Returns a new model of scaled columns."""
    scaling: ScalingName

    def fit(
        self,
        X: Tensor,
        used: Sequence[Observations],
        held_out: Sequence[Observations],
        seed: int,
        time_limit: float | None = None,
        *,
        goal: float | None = None,
    ) -> Fitted:
        """Train one replica for each restart."""
        return self.fit_folds(X, [Fold(list(used), list(held_out))], seed, time_limit, goal=goal)[0]

    def fit_folds(
        self,
        X: Tensor,
        folds: Sequence[Fold],
        seed: int,
        time_limit: float | None = None,
        *,
        goal: float | None = None,
    ) -> list[Fitted]:
        """Train one replica for each fold and restart, all side by side."""
        rows = torch.cat([one.groups.members for fold in folds for one in fold.used]).unique()
        scaling = fit_scaling(X[rows], self.scaling)
        basis = find_components(scaling(X[rows]), seed)
        components = join((scaling(part) @ basis for part in X.split(ROWS_AT_ONCE)), len(X))
        fitted = self.make_networks(basis.shape[1]).fit_folds(components, folds, seed, time_limit, goal=goal)
        for one in fitted:
            one.trained.models[:] = [self._widen(model, scaling, basis) for model in one.trained.models]
        return [Fitted(one.trained, [self.scaling] * len(one.scalings), one.scores) for one in fitted]

    def _widen(self, model: Network, scaling: Scaling, basis: Tensor) -> Network:
        """Return a network of columns that says the same as one of components."""
        (inner, old), net = model, self.make_net().to(basis.device)
        weights = old.state_dict()
        first = next(name for name, part in old.named_modules() if isinstance(part, nn.Linear))
        own = weights[f"{first}.weight"] * inner.factor  # (outputs, components)
        weights |= {f"{first}.weight": own @ basis.T, f"{first}.bias": weights[f"{first}.bias"] - own @ inner.shift}
        net.load_state_dict(weights)
        return Network(scaling, net.eval())


def find_components(rows: Tensor, seed: int) -> Tensor:
    """Return an orthonormal basis of the span of rows, or of some of them, ``(columns, components)``."""
    some = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:MOST_COMPONENTS]]
    variances, directions = torch.linalg.eigh((some @ some.T).double())
    kept = variances > SMALLEST * variances[-1]
    return some.T @ (directions[:, kept] / variances[kept].sqrt()).to(some.dtype)
