"""What beginning with clusters brings where pairs must tell many classes apart: random pairs of known data sets.

Run it with the names of data sets, ``letters``, ``pendigits``, ``optdigits``, and the number of pairs::

    UNBAG_DATA=folder python examples/many_classes.py letters 12000
"""

import sys
import warnings

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from unbag import AggregateClassifier, Groups, PairwiseSimilarity, UnbagWarning, datasets
from unbag.training import permuted_accuracy


def letters(per_class=600, new=100):
    """26 classes of images from three sets, 32 principal components."""
    random, train, test = np.random.default_rng(0), [], []
    for name, k in (("mnist", 10), ("kuzushiji-mnist", 10), ("fashion-mnist", 6)):
        data = datasets.load(name)
        images, labels = data.X.reshape(len(data.X), -1), data.y[: data.n_train]
        for label in range(k):
            rows = random.permutation(np.flatnonzero(labels == label))
            train.append(images[rows[:per_class]])
            test.append(images[rows[per_class : per_class + new]])
    components = PCA(32, random_state=0).fit(np.concatenate(train))
    X, X_new = (components.transform(np.concatenate(part)).astype(np.float32) for part in (train, test))
    return X, np.repeat(np.arange(26), per_class), X_new, np.repeat(np.arange(26), new)


def load(name):
    """Return rows and labels to learn from, and new ones."""
    if name == "letters":
        return letters()
    if name == "digits":
        (X, y), n = load_digits(return_X_y=True), 1200
    else:
        data = datasets.load(name)
        X, y, n = np.asarray(data.X, dtype=np.float32), np.asarray(data.y), data.n_train
    return X[:n], y[:n], X[n:], y[n:]


def main(name="digits", n_pairs="3000"):
    """Train from clusters and from random weights, and print how often each is right under the best names."""
    X, y, X_new, y_new = load(name)
    random, k = np.random.default_rng(0), int(y.max()) + 1
    pairs = Groups.from_tuples(
        np.stack([random.choice(len(X), 2, replace=False) for _ in range(int(n_pairs))]), n_rows=len(X)
    )
    z = PairwiseSimilarity().observe(y, pairs, k)
    warnings.filterwarnings("ignore", "the groups hold", UnbagWarning)
    # The first replica begins with clusters, the second with random weights.
    settings = {"n_classes": k, "n_restarts": 2, "ensemble": True, "random_state": 0}
    clf = AggregateClassifier("pairwise_similarity", "mlp", scaling="standard", **settings).fit(X, z, groups=pairs)
    best = int(np.argmax([one["score"] for one in clf.replicas_]))
    rows, labels = torch.as_tensor(X_new, dtype=torch.float32), torch.as_tensor(y_new)
    for model, replica in zip(clf.models_, (best, 1 - best), strict=True):
        start, score = ("clusters", "random weights")[replica], clf.replicas_[replica]["score"]
        guessed = model.log_probs(rows).argmax(1)
        right, used = permuted_accuracy(guessed, labels.long()), len(guessed.unique())
        print(f"{name}, {n_pairs} pairs, {start}: {right:.1%} right, {used} of {k} classes used, score {score:.4f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
