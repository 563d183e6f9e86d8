"""Naming classes that observations leave without names, by a few labels."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linear_sum_assignment

from unbag.aggregates.symmetry import Symmetry


def match_classes(together: np.ndarray, symmetry: Symmetry) -> np.ndarray:
    """Return which output to read each class from, so that most of what is together stays together.

    Parameters
    ----------
    together
        How much each class and each output have in common, ``(classes, outputs)``.
    symmetry
        Which orders are allowed.
    """
    own = np.arange(len(together))
    if isinstance(symmetry, tuple):
        for block in map(list, symmetry):
            own[block] = np.array(block)[linear_sum_assignment(-together[np.ix_(block, block)])[1]]
        return own
    if symmetry == "any":
        return linear_sum_assignment(-together)[1]
    if symmetry == "reversal" and together[own, own[::-1]].sum() > together[own, own].sum():
        return own[::-1].copy()
    return own


def choose_names(labels: np.ndarray, classes: np.ndarray, symmetry: Symmetry, *, fixed: bool) -> np.ndarray:
    """Return the names of the classes from labels of some rows, of which every class needs one.

    Parameters
    ----------
    labels
        Of the rows.
    classes
        The present names of the classes.
    symmetry
        Which classes could be confused.
    fixed
        Whether these names, and their order, are those of the caller; otherwise the labels bring their own.
    """
    distinct = np.unique(labels)
    known = set(distinct.tolist()) <= set(classes.tolist())
    if isinstance(symmetry, tuple):
        if not known:
            raise ValueError(
                f"y must have labels among the classes {classes.tolist()}, only some of which are interchangeable; got "
                f"{distinct[:10].tolist()}; pass classes= to fit for other names"
            )
        unnamed = classes[[number for block in symmetry for number in block]].tolist()
        if missing := [name for name in unnamed if name not in set(distinct.tolist())]:
            raise ValueError(f"each of the interchangeable classes needs a labelled row; there is none for {missing}")
        return classes
    if not fixed and len(distinct) == len(classes):
        if symmetry == "reversal" and not known and distinct.dtype.kind not in "iuf":
            raise ValueError(f"classes are ordered, but the order of {distinct.tolist()} is not known; give classes=")
        return distinct
    if known and (missing := sorted(set(classes.tolist()) - set(distinct.tolist()), key=classes.tolist().index)):
        raise ValueError(f"every class needs a labelled row to be named by; there is none for {missing}")
    if not fixed:
        raise ValueError(
            f"every class needs a labelled row to be named by; there are {len(classes)} classes, but y has "
            f"{len(distinct)}: {distinct[:10].tolist()}"
        )
    return classes
