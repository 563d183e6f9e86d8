"""Learn ordered grades from comparisons: which of two is better, and which of two is nearer to a third.

Graders disagree on what a "3" is, but not on which of two essays is better. Run it with
``python examples/ordered_grades.py``.
"""

from __future__ import annotations

import numpy as np

import unbag

# 1,200 essays, four grades from 0 (poor) to 3 (very good); quality is a direction in eight features.
rng = np.random.default_rng(0)
X = rng.normal(size=(1200, 8))
quality = X @ np.array([1.0, 0.8, 0.6, 0.4, 0.2, 0.0, 0.0, 0.0]) + 0.15 * rng.normal(size=1200)
y = np.digitize(quality, np.quantile(quality, [0.25, 0.5, 0.75]))  # used for answers and for evaluation
train, new = np.arange(800), np.arange(800, 1200)


def report(name: str, clf: unbag.AggregateClassifier) -> None:
    """Print how often the grade is right, and how far off it is on average."""
    guessed = clf.predict(X[new])
    print(
        f"{name}: {np.mean(guessed == y[new]):.0%} of new essays graded correctly, "
        f"off by {np.abs(guessed - y[new]).mean():.2f} grades on average"
    )


# Comparisons identify the order of essays; the known share of each grade identifies where one ends.
settings = {"n_classes": 4, "class_shares": [0.25] * 4, "validation": unbag.CrossFitting(2), "random_state": 0}

# Which of two is better: the order of the classes is part of the observation, so grades have names.
pairs = unbag.Groups.from_tuples(rng.choice(train, (3000, 2)))
better = unbag.OrdinalRank().observe(y, pairs, n_classes=4)
print(f"{len(pairs)} pairs; the second is better in {better.sum()}")
by_rank = unbag.AggregateClassifier("ordinal_rank", "linear", **settings)
by_rank.fit(X[train], better, groups=pairs)
report("from ranks", by_rank)

# Which of two is nearer to a third: the direction is not identified, so a few labels are needed.
triplets = unbag.Groups.from_tuples(rng.choice(train, (2000, 3)))
nearer = unbag.OrdinalTriplet().observe(y, triplets, n_classes=4)
by_triplet = unbag.AggregateClassifier("ordinal_triplet", "linear", **settings)
by_triplet.fit(X[train], nearer, groups=triplets)
few = np.concatenate([np.flatnonzero(y[train] == grade)[:2] for grade in range(4)])
by_triplet.name_classes(X[few], y[few])
report("from triplets", by_triplet)

# A pair is predicted too: how likely is the second to be better?
new_pairs = unbag.Groups.from_tuples(new.reshape(200, 2))
guessed = by_rank.predict_groups(X, new_pairs)
first, second = y[new[:2]]
print(f"grades {first} and {second}: the second is better with {guessed[0]:.0%}")
right = (guessed > 0.5) == unbag.OrdinalRank().observe(y, new_pairs, n_classes=4).numpy()
print(f"{right.mean():.0%} of 200 new pairs are predicted correctly")
