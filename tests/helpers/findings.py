"""Findings of checks, by their kind."""

import warnings

from unbag import Finding, LabelProportions, diagnose


def kinds(findings: list[Finding]) -> list[str]:
    """Return the kinds of findings, in their order."""
    return [finding.kind for finding in findings]


def the(kind: str, findings: list[Finding]) -> Finding:
    """Return the only finding of a kind."""
    (found,) = [finding for finding in findings if finding.kind == kind]
    return found


def look_at(X, y, groups, k=2, aggregate=None):
    """Diagnose observations of labels, by default their counts, and rows."""
    aggregate = aggregate or LabelProportions()
    return diagnose(aggregate, groups, aggregate.observe(y, groups, k), k, X)


def warned(clf, X, z, **options) -> str:
    """Fit, and return all warnings as one text."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        clf.fit(X, z, **options)
    return "; ".join(str(warning.message) for warning in caught)
