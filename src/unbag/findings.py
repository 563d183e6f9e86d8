"""A finding: one thing that observations, or a model that was fitted to them, do not tell."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One thing that the observations do not tell.

    Parameters
    ----------
    kind
        Which finding it is: ``"single_group"``, ``"one_class_explains_all"``, ``"same_observations"``,
        ``"few_observations"``, ``"little_information"``, ``"missing_classes"``, ``"unnamed_classes"``,
        ``"unknown_borders"``, ``"unlikely_answers"`` or ``"rows_without_group"``; and of a fitted model
        ``"unused_classes"`` or ``"unexpected_answers"``.
    message
        A sentence with the number behind it.
    fatal
        Whether training cannot work.
    """

    kind: str
    message: str
    fatal: bool = False
