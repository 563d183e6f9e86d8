"""Search over the settings of a scikit-learn pipeline without labelled rows.

Run it with ``python examples/grid_search.py``.
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV, GroupKFold, train_test_split
from sklearn.pipeline import Pipeline

import unbag

images, digits = load_digits(return_X_y=True)
X, X_new, y, y_new = train_test_split(images, digits, test_size=0.25, stratify=digits, random_state=0)

# 336 groups of about four images each; the number of each digit in a group is known.
ids = np.random.default_rng(0).permutation(len(X)) % 336
counts = [np.bincount(y[ids == group], minlength=10) for group in range(336)]  # below, y is only for evaluation
target = unbag.target(ids, counts)  # one entry per row, so that scikit-learn can split it

pipeline = Pipeline(
    [
        ("reduce", PCA(random_state=0)),
        # Two folds inside each of those of the search save time.
        ("classify", unbag.AggregateClassifier(model="linear", validation=unbag.CrossFitting(2), random_state=0)),
    ]
)
# Groups must stay whole: GroupKFold with groups=ids. The score of a target is the log-likelihood of held-out groups.
search = GridSearchCV(
    pipeline,
    {"reduce__n_components": [5, 30], "classify__scaling": ["standard", "table"]},
    cv=GroupKFold(n_splits=2),
)
search.fit(X, target, groups=ids)

for settings, score in zip(search.cv_results_["params"], search.cv_results_["mean_test_score"], strict=True):
    n, scaling = settings["reduce__n_components"], settings["classify__scaling"]
    print(f"{n:2d} components, scaling {scaling}: {score:.2f} per held-out group")
best = search.best_params_
print(f"chosen without labels: {best['reduce__n_components']} components, scaling {best['classify__scaling']}")
print(f"{search.best_estimator_.score(X_new, y_new):.1%} of new images are classified correctly")

# A splitter that divides groups raises an error.
try:
    GridSearchCV(pipeline, {"reduce__n_components": [5]}, cv=[(np.arange(900), np.arange(900, len(X)))]).fit(X, target)
except ValueError as error:
    print(
        "a splitter that divides groups is refused:",
        str(error).strip().splitlines()[-1].split(":")[1].split(",")[0].strip(),
    )
