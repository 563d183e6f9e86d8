"""A finding: one thing that observations, or a model that was fitted to them, do not tell, or that is suspicious."""

from __future__ import annotations

from dataclasses import dataclass

NO_ESTIMATE = ("unknown_borders", "unlikely_answers", "unused_classes", "unexpected_answers")
"""Findings after which no accuracy is estimated: whether the classes of a model are those meant, groups cannot tell."""


@dataclass(frozen=True)
class Finding:
    """One thing that the observations do not tell, or that is suspicious about rows, groups or model.

    Parameters
    ----------
    kind
        Which finding it is. Before a fit, of observations: ``"single_group"``, ``"one_class_explains_all"``,
        ``"same_observations"``, ``"few_observations"``, ``"little_information"``, ``"missing_classes"``,
        ``"unnamed_classes"``, ``"unknown_borders"``, ``"unlikely_answers"`` or ``"rows_without_group"``; of rows:
        ``"constant_columns"``, ``"few_groups"``, ``"copies"``, ``"group_column"`` or ``"answer_column"``. After it:
        ``"worse_than_constant"``, ``"overdispersion"``, ``"suspicious_groups"``, ``"unused_classes"``,
        ``"unexpected_answers"``, ``"rough_estimate"`` or ``"short_time"``. Of new rows: ``"shift"``.
    message
        A sentence with the number behind it.
    fatal
        Whether training cannot work.
    """

    kind: str
    message: str
    fatal: bool = False


class UnbagWarning(UserWarning):
    """Something that observations cannot tell, see :func:`unbag.diagnose`, or that a model cannot see."""
