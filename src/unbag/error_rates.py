"""Rates of wrong answers that nobody knows, from answers that models have not learned from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from unbag.aggregates import Aggregate
from unbag.aggregates.noisy import fits_rate
from unbag.data.row_source import Rows
from unbag.families import is_network
from unbag.families.choice import AUTO, TREES
from unbag.families.cross_fit import Align, CrossFitted
from unbag.fit_settings import as_int
from unbag.fold_fitting import N_FOLDS, prepare_folds
from unbag.training import Observations
from unbag.training.excerpts import excerpt

# A rate that moves by less hardly changes what is learned; the second round is mostly the last.
SETTLED, MOST_ROUNDS = 0.02, 4
LARGEST = 0.49
"""Of one half, answers would tell nothing, and nothing could be learned."""


def with_rate(aggregate: Aggregate, rate: float | None) -> Aggregate:
    """Return an aggregate with the rate that was found for it, if there was one to find."""
    return aggregate.with_rate(rate) if rate is not None and fits_rate(aggregate) else aggregate


def with_rates(sets: Sequence[Observations], rates: Sequence[float | None]) -> list[Observations]:
    """Return sets with the rates that were found for the aggregates of each."""
    return [
        one if rate is None else replace(one, aggregate=with_rate(one.aggregate, rate))
        for one, rate in zip(sets, rates, strict=True)
    ]


def fit_error_rates(
    choices: dict[str, Any], X: Rows, observations: Sequence[Observations], seed: int, align: Align
) -> list[float | None]:
    """Return the rate of wrong answers of each set, one for the whole set; None where it is known.

    Models learn with a rate that is too large, so that they doubt answers which fit to no others; what they say of
    left-out answers tells a better rate, with which they learn again, until it settles. All models that follow have the
    same rate.

    Parameters
    ----------
    choices
        The estimator's parameters. Its model is taken where that is a network, otherwise an ``"mlp"``; of a time limit,
        half is left for what follows.
    X, observations
        What to learn from.
    seed
        Of the folds and of the first model.
    align
        Brings classes that observations leave unnamed into one order.
    """
    table, sets = excerpt(X, [one.counting() for one in observations])
    for one in sets:
        if fits_rate(one.aggregate) and len(one.groups) < N_FOLDS:
            raise ValueError(
                f'rate="fit" needs at least {N_FOLDS} answers, of which some are left out, got {len(one.groups)}; give '
                "a rate, or collect more answers"
            )
    n_folds = as_int(choices["n_folds"])
    own = {**choices, "n_folds": n_folds if isinstance(n_folds, int) else N_FOLDS}
    automatic = isinstance(choices["model"], str) and choices["model"] == AUTO
    if bool(table.isnan().any()):
        own["model"] = TREES
    elif automatic or not is_network(choices["model"]):  # what learns in rounds may settle at one answer for all
        own |= {"model": "mlp", **({} if automatic else {"epochs": AUTO, "patience": AUTO})}
    if choices["time_limit"] is not None:
        own["time_limit"] = choices["time_limit"] / 2 / MOST_ROUNDS
    rates: list[float | None] = [None] * len(sets)
    for _ in range(MOST_ROUNDS):
        before, prepared = rates, prepare_folds(own, table, with_rates(sets, rates), seed)
        assert prepared is not None  # there are folds
        fitted = prepared.train(align)
        assert isinstance(fitted, CrossFitted)  # their number is given
        left_out = fitted.out_of_fold
        rates = [_most_likely_rate(one, left_out[n].log_probs) if n in left_out else None for n, one in enumerate(sets)]
        moved = [abs(new - old) for new, old in zip(rates, before, strict=True) if new is not None and old is not None]
        if moved and max(moved) < SETTLED:
            break
    return rates


def _most_likely_rate(one: Observations, left_out: Tensor) -> float | None:
    """Return the rate that fits best to what models say of the members of groups that they have not seen."""
    aggregate, one = one.aggregate, one.to("cpu")
    if not fits_rate(aggregate):
        return None
    return min(aggregate.most_likely_rate(left_out, one.groups.segments, one.checked, one.weights), LARGEST)
