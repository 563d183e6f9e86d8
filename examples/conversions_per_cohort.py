"""Who converts? Learned from how many did in each cohort, with a table of mixed columns.

A shop knows of every visitor the age (not always), the number of visits, the plan and whether the newsletter is
read. Of conversions it keeps one number per weekly cohort. Run it with ``python examples/conversions_per_cohort.py``.
"""

from __future__ import annotations

import numpy as np
import torch
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import unbag

# The table: one row per visitor, one column for each thing known; numbers, words and booleans side by side.
rng = np.random.default_rng(0)
n = 4000
age = rng.uniform(18, 80, n)
visits = rng.poisson(3, n)
plan = rng.choice(["free", "basic", "pro"], n, p=[0.6, 0.3, 0.1])
newsletter = rng.random(n) < 0.4
known_age = np.where(rng.random(n) < 0.1, np.nan, age)  # one age in ten is missing
X = np.array([known_age, visits, plan, newsletter], dtype=object).T

# What really happened to each visitor. The classifier never sees it: it is used to count, and at the end to judge.
log_odds = 0.9 * (visits - 3) + 2.0 * newsletter + 2.5 * (plan == "pro") - 0.04 * (age - 45) - 1.5
converted = (rng.random(n) < 1 / (1 + np.exp(-log_odds))).astype(int)

# What was kept: cohorts of unequal sizes, and how many visitors of each converted.
cohort = np.array([f"week {week:03d}" for week in rng.integers(0, 400, n)])
counts = {
    name: np.bincount(converted[cohort == name], minlength=2)  # not converted, converted
    for name in np.unique(cohort)
}
weeks, people = np.unique(cohort, return_counts=True)
print(f"{n} visitors in {len(weeks)} cohorts of {people.min()} to {people.max()}; the first: {counts[weeks[0]]}")

# From columns to numbers; then a linear model that learns from the counts.
columns = ColumnTransformer(
    [
        ("numbers", make_pipeline(SimpleImputer(add_indicator=True), StandardScaler()), [0, 1]),
        ("words", OneHotEncoder(handle_unknown="ignore"), [2, 3]),
    ],
    sparse_threshold=0,
)
clf = make_pipeline(
    columns,
    unbag.AggregateClassifier("label_proportions", model="linear", scaling="none", random_state=0),
)
old = np.isin(cohort, weeks[:300])  # learn from the first 300 cohorts, judge on people of the others
clf.fit(X[old], unbag.target(cohort[old], {name: counts[name] for name in weeks[:300]}))

# How good it is, beside a classifier that is told of every single visitor.
told = make_pipeline(columns, LogisticRegression()).fit(X[old], converted[old])
ceiling = roc_auc_score(converted[~old], told.predict_proba(X[~old])[:, 1])
learned = roc_auc_score(converted[~old], clf.predict_proba(X[~old])[:, 1])
print(f"ranking of new visitors (area under the curve): {learned:.3f} from counts, {ceiling:.3f} from every label")

# The same without labels: the likelihood of cohorts that were not used, against chances that are the same for all.
score = clf.score(X[~old], unbag.target(cohort[~old], {name: counts[name] for name in weeks[300:]}))
rate = converted[old].mean()
same_for_all = torch.tensor([1 - rate, rate]).log().expand((~old).sum(), 2)
trivial = unbag.LabelProportions().log_likelihood(
    same_for_all, unbag.Groups.from_ids(cohort[~old]), [counts[name].tolist() for name in weeks[300:]]
)
print(f"log-likelihood of a new cohort: {score:.2f}, and {trivial.mean():.2f} with one rate for all")

for name in ("free", "basic", "pro"):
    own = ~old & (plan == name)
    print(f"plan {name}: {clf.predict_proba(X[own])[:, 1].mean():.0%} expected, {converted[own].mean():.0%} converted")
