"""A finding: one thing that observations or a model fitted to them do not identify, or that is suspicious."""

from dataclasses import dataclass

NO_ESTIMATE = (
    *("unknown_borders", "unlikely_answers", "unused_classes", "unexpected_answers", "interchangeable_classes"),
    *("copies", "near_duplicates", "split_subjects", "share_column", "answer_column", "group_column"),
)
"""Findings after which no accuracy is estimated: held-out groups do not show whether the classes of a model are those
that are meant, or how well new rows are predicted."""


@dataclass(frozen=True)
class Finding:
    """One thing that the observations do not identify, or that is suspicious about rows, groups or model.

    Parameters
    ----------
    kind
        Name of the finding. Before a fit, of observations: ``"single_group"``, ``"one_class_explains_all"``,
        ``"same_observations"``, ``"few_observations"``, ``"little_information"``, ``"missing_classes"``,
        ``"interchangeable_classes"``, ``"unnamed_classes"``, ``"unknown_borders"``, ``"unlikely_answers"``,
        ``"size_dependent_shares"`` or ``"rows_without_group"``; of rows: ``"constant_columns"``, ``"missing_columns"``,
        ``"few_groups"``, ``"copies"``, ``"near_duplicates"``, ``"share_column"``, ``"group_column"`` or
        ``"answer_column"``. After it: ``"worse_than_constant"``, ``"overdispersion"``, ``"suspicious_groups"``,
        ``"split_subjects"``, ``"unused_classes"``, ``"unexpected_answers"``, ``"never_predicted"``,
        ``"rough_estimate"`` or ``"short_time"``. Of new rows: ``"shift"``. Other packages may register further kinds.
    message
        A sentence with the number behind it.
    fatal
        Whether training cannot work.
    """

    kind: str
    message: str
    fatal: bool = False


class UnbagWarning(UserWarning):
    """Something that observations do not identify, see :func:`unbag.diagnose`, or that is suspicious about a model."""
