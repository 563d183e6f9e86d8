"""Read tables of instances and of observations, fit, and write predictions.

A table is a CSV file with a header (UTF-8; commas, semicolons or tabs; also compressed by gzip), a Parquet file, or a
folder of Parquet files with the same columns. The first file has one row per instance, the second one row per
observation:

=========================================  ==========================================================================
kind                                       columns of the second file
=========================================  ==========================================================================
``label_proportions``                      group id, and a column for each class with counts, proportions or
                                           percentages, with bounds, blanks or noise as they were published;
                                           ``n``, ``size``, ``total`` or ``n_members`` for the sizes of groups
``multiple_instance``                      group id, and 0 or 1, yes or no
``pairwise_similarity``                    two row ids, and 0 or 1
``ordinal_rank``                           two row ids, and 0 or 1, or one of < > <= >=
``triplet_comparison, ordinal_triplet``    three row ids, and 0 or 1
``at_least(2), at_least(2, label=ill)``    group id, and 0 or 1
``count_of(ill)``                          group id, and the number of members of the class
``majority``                               group id, and the name of a class
``my_module:MyKind``                       by the traits of the class, which is imported
=========================================  ==========================================================================

Columns are found by their names, in which capitals, spaces and dashes do not matter, unless options name them:

- row ids: ``id``, ``row``, ``instance``, ``item`` (each also with ``_id``), ``key``;
- group ids: ``group``, ``bag``, ``cohort`` (each also with ``_id``), or the only column that both files share;
- subjects, the persons or objects that rows are about: ``subject``, ``subject_id``, ``person_id``, ``patient_id``,
  ``participant_id``;
- true classes of instances, used for evaluation only: ``label``, ``true_label``, ``truth``;
- row ids of pairs and triplets: ``a, b, c``; ``first, second, third``; ``i, j, k``; ``id_1, id_2, id_3``; ``id_a, id_b,
  id_c``; ``row_1, row_2, row_3``; ``left, right``; ``anchor, near, far``;
- observations: ``z``, ``label``, ``observed``, ``similar``, ``same``, ``closer``, ``positive``, ``relation``, ``lower``
  and similar names, or the only column that is left. Names of the contrary, such as ``different``, ``negative``,
  ``higher`` or ``farther``, exchange the meaning of 0 and 1.

All other columns of the first file are features. Missing numbers become the median of the training rows, and a further
feature marks them; dates are days since 1970; text becomes a feature of 0 and 1 for each category. Ids in CSV files are
text, as they are written.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unbag._utils.problems import TableError as TableError
    from unbag.tables.checking import check_tables as check_tables
    from unbag.tables.files import read_table as read_table
    from unbag.tables.fit import fit_tables as fit_tables
    from unbag.tables.plan import make_plan as make_plan
    from unbag.tables.plan import read_config as read_config
    from unbag.tables.predict import disaggregate_table as disaggregate_table
    from unbag.tables.predict import predict_groups_table as predict_groups_table
    from unbag.tables.predict import predict_table as predict_table
    from unbag.tables.read_tables import Tables as Tables

_MODULES = {
    "TableError": "unbag._utils.problems",
    "Tables": "unbag.tables.read_tables",
    "check_tables": "unbag.tables.checking",
    "disaggregate_table": "unbag.tables.predict",
    "fit_tables": "unbag.tables.fit",
    "make_plan": "unbag.tables.plan",
    "predict_groups_table": "unbag.tables.predict",
    "predict_table": "unbag.tables.predict",
    "read_config": "unbag.tables.plan",
    "read_table": "unbag.tables.files",
}
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: the command line shows its help without numpy and torch."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
