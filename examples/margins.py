"""Learn from two tables of the same people: counts by age and counts by place.

An office publishes how many people are employed by age group, and by place, but not for both at once. Each person is
counted in both tables. Run it with ``python examples/margins.py``.
"""

from __future__ import annotations

import numpy as np
from sklearn.metrics import roc_auc_score

import unbag

# Age, years of school, and whether a person lives in town. Employment is used for the counts and for evaluation.
rng = np.random.default_rng(0)
n = 3000
place = rng.integers(0, 8, n)
age, school = rng.integers(18, 66, n), rng.uniform(8, 14, 8)[place] + rng.normal(0, 2, n)
town = (rng.random(n) < rng.random(8)[place]).astype(float)
X = np.stack([age, school, town], 1)
log_odds = 0.08 * (age - 40) + 0.5 * (school - 11) + 1.0 * (town - 0.5)
employed = (rng.random(n) < 1 / (1 + np.exp(-log_odds))).astype(int)

# The two tables. A row of people is a member of one group in each: its age group and its place.
by_age, by_place = unbag.Groups.from_ids(age // 5 * 5), unbag.Groups.from_ids(place)
counts = [unbag.LabelProportions().observe(employed, groups, n_classes=2) for groups in (by_age, by_place)]
print(f"{n} people in {len(by_age)} age groups and in {len(by_place)} places")


def learn(observed: list, groups: list) -> unbag.AggregateClassifier:
    """Learn from one table or several; a list of aggregates takes a list of observations and of groups."""
    kinds = ["label_proportions"] * len(groups)
    clf = unbag.AggregateClassifier(kinds, "linear", random_state=0)
    return clf.fit(X, observed, groups=groups)


for name, which in (("by age", [0]), ("by place", [1]), ("both", [0, 1])):
    clf = learn([counts[one] for one in which], [(by_age, by_place)[one] for one in which])
    area = roc_auc_score(employed, clf.predict_proba(X)[:, 1])
    print(f"from the table {name}: {area:.3f} (area under the ROC curve of single people)")

# The likelihood assumes that the tables are independent, but each person is counted in both: probabilities are right
# on average and too confident. Labels that agree with each of the tables:
likely = clf.disaggregate(X, [counts[0], counts[1]], groups=[by_age, by_place])
print(f"disaggregated: {[tuple(part.shape) for part in likely]}")
