"""Learn to read single digits from groups of six, of which only the count of each digit is known.

Run it with ``python examples/digits.py``. Nobody says which image of a group is which digit, and yet the classifier
comes close to one that is told every label.
"""

from __future__ import annotations

import time

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import unbag

GROUP_SIZE = 6


def main(epochs: int = 200) -> dict[str, float]:
    """Learn by the unbiased risk, by the likelihood and from true labels; return their accuracies on new images."""
    console = Console()
    images, labels = load_digits(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(images, labels, test_size=0.25, stratify=labels, random_state=0)

    # Half as many groups as there are rows, drawn at random; every row is in about three of them.
    rng = np.random.default_rng(0)
    shuffled = np.concatenate([rng.permutation(len(X_train)) for _ in range(GROUP_SIZE // 2)])
    n_groups = len(shuffled) // GROUP_SIZE
    groups = unbag.Groups.from_tuples(shuffled[: n_groups * GROUP_SIZE].reshape(n_groups, GROUP_SIZE))
    counts = unbag.LabelProportions().observe(y_train, groups, n_classes=10)  # all that is known of the labels
    console.print(f"{n_groups} groups of {GROUP_SIZE} images; of the first we know: {counts[0].tolist()}")

    table = Table(title="accuracy, %")
    table.add_column("learned")
    table.add_column("new images", justify="right")
    table.add_column("images in the groups, given their counts", justify="right")
    table.add_column("seconds", justify="right")
    accuracies = {}
    for name, method, observed in (
        ("by the unbiased risk", "uum", {"y": counts, "groups": groups}),
        ("by the likelihood", "likelihood", {"y": counts, "groups": groups}),
        ("from every label", "uum", {"y": y_train}),
    ):
        start = time.perf_counter()
        clf = unbag.AggregateClassifier(method=method, epochs=epochs, random_state=0, verbose=1).fit(
            X_train, **observed
        )
        seconds = time.perf_counter() - start
        accuracies[name] = clf.score(X_test, y_test)
        inside = clf.disaggregate(X_train, counts, groups=groups).argmax(1) == y_train[groups.members]
        table.add_row(name, f"{100 * accuracies[name]:.1f}", f"{100 * inside.mean():.1f}", f"{seconds:.0f}")
        console.print(f"{name}: {100 * accuracies[name]:.1f} % of new images right after {clf.n_iter_} epochs")
    console.print(table)
    return accuracies


if __name__ == "__main__":
    torch.set_num_threads(1)  # the batches are small: on a busy machine more threads mostly wait for each other
    main()
