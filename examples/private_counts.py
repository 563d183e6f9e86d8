"""From exact counts to private ones, and from these to a classifier: what the noise leaves to learn.

A hospital group may not hand out who is ill, nor how many of a ward are. It publishes counts with noise for
differential privacy, drawn by OpenDP. Run it with ``python examples/private_counts.py``; it needs
``pip install "unbag[private]"``.
"""

from __future__ import annotations

import csv
import sys
import tempfile
import tomllib
import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from sklearn.metrics import roc_auc_score

import unbag
from unbag import published
from unbag.noise import read_noise
from unbag.tables.options import Protection
from unbag.tables.protect import protect_counts

if find_spec("opendp") is None:
    sys.exit('noise that keeps a promise comes from OpenDP: pip install "unbag[private]"')

# Patients of 100 wards. Who is ill is used to count, and at the end to judge.
rng = np.random.default_rng(0)
ward = np.repeat(np.arange(100), 40)
age = rng.normal(rng.uniform(30, 70, 100)[ward], 10)
blood_pressure, weight = rng.normal(130, 15, 4000), rng.normal(75, 12, 4000)
X = np.stack([age, blood_pressure, weight], 1)
log_odds = 0.12 * (age - 55) + 0.06 * (blood_pressure - 130)
ill = (rng.random(4000) < 1 / (1 + np.exp(-log_odds))).astype(int)
counts = np.stack([np.bincount(ward, 1 - ill), np.bincount(ward, ill)], 1).astype(int)

folder = Path(tempfile.mkdtemp())
with open(folder / "wards.csv", "w", newline="") as file:
    table = csv.writer(file)
    table.writerow(["ward", "healthy", "ill"])
    table.writerows([f"ward {number}", *row] for number, row in enumerate(counts))


def learn(z: torch.Tensor) -> float:
    """Learn from what was published of each ward, and return how well single patients are ranked."""
    clf = unbag.AggregateClassifier(unbag.PublishedCounts(), "linear", random_state=0)
    clf.fit(X, z, groups=unbag.Groups.from_ids(ward))
    return roc_auc_score(ill, clf.predict_proba(X)[:, 1])


print(f"from exact counts: {learn(published.exact(counts)):.3f} (area under the ROC curve of single patients)")

# The same as: unbag protect wards.csv --epsilon 0.5 --sensitivity 2 --out protected.csv. Who is in a ward is known, so
# that the promise is about the class alone, and a person who moves from one class to the other changes two counts.
protect_counts(folder / "wards.csv", folder / "protected.csv", Protection(epsilon=0.5, sensitivity=2), group="ward")
noise = read_noise(tomllib.loads((folder / "protected.csv.published.toml").read_text())["noise"])
with open(folder / "protected.csv", newline="") as file:
    noisy = np.array([[int(row["healthy"]), int(row["ill"])] for row in csv.DictReader(file)])
print(f"ward 0: {counts[0].tolist()}, published as {noisy[0].tolist()} with {noise!r}")

# Counts as they were published, some negative, none adding up to the size of its ward: the likelihood knows the noise.
print(f"from private counts, by their likelihood: {learn(published.noisy(noisy, noise)):.3f}")

# What one would do by hand: bring each count into its bounds so that both add up, and take that for exact.
repaired = ((noisy[:, 1] + 40 - noisy[:, 0]) / 2).round().clip(0, 40)
warnings.simplefilter("ignore", unbag.UnbagWarning)  # fit notices that repaired counts vary too much
print(f"from private counts, repaired by hand: {learn(published.exact(np.stack([40 - repaired, repaired], 1))):.3f}")
