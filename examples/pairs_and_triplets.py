"""Classes from comparisons: pairs and triplets in one fit, then ten labels that name what was found.

People who cannot name a class can often say whether two things are alike. Run it with
``python examples/pairs_and_triplets.py``.
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import unbag

images, digits = load_digits(n_class=5, return_X_y=True)
X, X_new, y, y_new = train_test_split(images, digits, test_size=0.3, stratify=digits, random_state=0)

# Two kinds of answers about images drawn at random. True labels serve to answer, and at the end to judge.
rng = np.random.default_rng(0)
pairs = unbag.Groups.from_tuples(rng.integers(0, len(X), (1500, 2)))
triplets = unbag.Groups.from_tuples(rng.integers(0, len(X), (1500, 3)))
alike = unbag.PairwiseSimilarity().observe(y, pairs, n_classes=5)
nearer = unbag.TripletComparison().observe(y, triplets, n_classes=5)
print(f"{len(pairs)} pairs, of which {alike.sum()} alike; {len(triplets)} triplets, of which {nearer.sum()} say yes")

# Both together in one fit: a list of aggregates takes a list of observations and a list of groups.
clf = unbag.AggregateClassifier(["pairwise_similarity", "triplet_comparison"], "linear", n_classes=5, random_state=0)
clf.fit(X, [alike, nearer], groups=[pairs, triplets])
print(
    f"found classes {clf.classes_.tolist()}, numbered at random: {clf.score(X_new, y_new):.0%} of new images are right"
)

# Ten labels, two of each digit, are enough to say which class is which.
few = np.concatenate([np.flatnonzero(y == digit)[:2] for digit in range(5)])
clf.name_classes(X[few], y[few])
print(f"after naming them with {len(few)} labels: {clf.score(X_new, y_new):.0%}")

# Classes keep their meaning from here on, also for single images.
some = [int(np.flatnonzero(y_new == digit)[0]) for digit in range(5)]
print(f"images of 0, 1, 2, 3, 4 are read as {clf.predict(X_new[some]).tolist()}")
