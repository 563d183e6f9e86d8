"""Scores of bags for scikit-learn; public as ``unbag.metrics``."""

from typing import Any

from sklearn.metrics import roc_auc_score
from sklearn.pipeline import Pipeline

from unbag.data.targets import is_target, read_target


def bag_auc(estimator: Any, X: Any, y: Any, groups: Any = None) -> float:
    """Compute the area under the ROC curve of the predicted probability that a bag is positive.

    It is a scorer: ``cross_val_score(clf, X, y, groups=ids, cv=GroupKFold(), scoring=unbag.metrics.bag_auc)`` with the
    result of :func:`unbag.target`, or ``cross_val_score(clf, bags, labels, scoring=unbag.metrics.bag_auc)`` with a list
    of arrays and one label per bag.

    ``estimator`` is a fitted :class:`unbag.AggregateClassifier` whose observations are 0 and 1; the other arguments are
    those of its ``fit``.

    Examples
    --------
    >>> import numpy as np, unbag
    >>> rng = np.random.default_rng(0)
    >>> bags = [rng.normal(size=(5, 2)) + (number % 2) * np.array([[2, 0]]) for number in range(40)]
    >>> labels = np.arange(40) % 2
    >>> clf = unbag.AggregateClassifier("multiple_instance", "linear", random_state=0).fit(bags[:30], labels[:30])
    >>> unbag.metrics.bag_auc(clf, bags[30:], labels[30:])
    1.0
    """
    if isinstance(estimator, Pipeline):
        X, estimator = estimator[:-1].transform(X), estimator[-1]
    if is_target(y):
        groups, y = read_target(y)
    X, groups = estimator._split_bags(X, groups)
    probabilities = estimator.predict_groups(X, groups)
    if getattr(probabilities, "ndim", 0) != 1:
        raise ValueError(
            "bag_auc needs the probability that a group is positive, but the observations of this classifier "
            "are not 0 and 1; leave scoring= out to compare log-likelihoods"
        )
    (observations,) = estimator._read_observations(y, groups, len(X))
    return float(roc_auc_score(observations.checked, probabilities))
