"""Which instances make a bag positive? Learned from one yes or no per bag.

A bag stands for a slide with cells, or a molecule with shapes it can take: it is positive if any of its instances is.
Run it with ``python examples/positive_bags.py``.
"""

from __future__ import annotations

import numpy as np
from sklearn.metrics import average_precision_score

import unbag

# 300 bags of 5 to 40 instances. Positive instances are rare and stand in one corner of the ten features.
rng = np.random.default_rng(0)
sizes = rng.integers(5, 41, 300)
bag = np.repeat(np.arange(300), sizes)
truth = rng.random(len(bag)) < 0.04  # of instances; used to label bags and, at the end, to judge
X = rng.normal(size=(len(bag), 10))
X[truth, :3] += 2.5
labels = np.array([truth[bag == one].any() for one in range(300)]).astype(int)
print(f"{labels.sum()} of 300 bags are positive; {truth.sum()} of {len(bag)} instances are, and nobody says which")

# Learn from the first 200 bags.
train, test = bag < 200, bag >= 200
clf = unbag.AggregateClassifier("multiple_instance", model="linear", random_state=0)
clf.fit(X[train], unbag.target(bag[train], labels[:200]))

# New bags, of which nothing is known: how likely each is to be positive.
new_bags = unbag.Groups.from_sizes(sizes[200:])
guessed = clf.predict_groups(X[test], new_bags) > 0.5
print(f"{(guessed == labels[200:]).mean():.0%} of 100 new bags are called as they should be")

# Inside bags: a model's own view of an instance, and what it says once the label of the bag is known as well.
alone = clf.predict_proba(X[test])[:, 1]
inside = clf.disaggregate(X[test], unbag.target(bag[test], labels[200:]))[:, 1]
precision = [average_precision_score(truth[test], found) for found in (alone, inside)]
print(f"finding the positive instances, average precision: {precision[0]:.2f}, {precision[1]:.2f} if bags are labelled")

# The bag with the clearest suspect.
suspect = inside.argmax()
one = bag[test] == bag[test][suspect]
order = np.argsort(-inside[one])[:3]
print(f"bag {bag[test][suspect]}, {one.sum()} instances; the three most suspect:")
for place in order:
    print(f"  instance {place}: {inside[one][place]:.2f} ({'positive' if truth[test][one][place] else 'negative'})")
