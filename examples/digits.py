"""Learn to read single digits from groups of six, of which only the count of each digit is known.

Run it with ``python examples/digits.py``. Nobody says which image of a group is which digit, and yet the classifier
comes close to one that is told every label.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

import unbag

GROUP_SIZE, N_CLASSES = 6, 10


def load() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return training rows, test rows, training labels and test labels; pixels go from 0 to 1."""
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(images / 16, labels, test_size=0.25, stratify=labels, random_state=0)
    X_train, X_test, y_train, y_test = (torch.from_numpy(part) for part in parts)
    return X_train.float(), X_test.float(), y_train, y_test


def train(
    images: Tensor, rows: Tensor, loss_of: Callable[[Tensor, Tensor], Tensor], epochs: int, name: str
) -> nn.Module:
    """Train on batches of groups: ``loss_of`` gets the logits of their members and the numbers of the groups."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 300), nn.ReLU(), nn.Linear(300, N_CLASSES))
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(1, epochs + 1):
        total = 0.0
        for batch in torch.randperm(len(rows)).split(64):
            loss = loss_of(model(images[rows[batch].flatten()]), batch)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            total += loss.item() * len(batch)
        if epoch % 10 == 0 or epoch == epochs:
            print(f"{name}: epoch {epoch} of {epochs}, loss {total / len(rows):.4f}", flush=True)
    return model


def main(epochs: int = 60) -> dict[str, float]:
    """Train by the unbiased risk, by the likelihood and by true labels; return their accuracies on test rows."""
    X_train, X_test, y_train, y_test = load()
    aggregate = unbag.LabelProportions()

    # The groups are drawn at random, half as many as there are rows; a row may be in several.
    random = torch.Generator().manual_seed(0)
    rows = torch.stack([torch.randperm(len(X_train), generator=random)[:GROUP_SIZE] for _ in range(len(X_train) // 2)])
    groups = unbag.Groups.from_tuples(rows, n_rows=len(X_train))
    counts = aggregate.observe(y_train, groups, N_CLASSES)  # (groups, 10): all that is known of the labels
    print(f"{len(groups)} groups of {GROUP_SIZE} images; of the first we know the counts {counts[0].tolist()}")

    unbiased_risk = unbag.UnbiasedRisk(aggregate)
    negative_log_likelihood = unbag.NegativeLogLikelihood(aggregate)

    def in_batch(batch: Tensor) -> unbag.Groups:
        return unbag.Groups.from_sizes([GROUP_SIZE] * len(batch))

    methods = {
        "unbiased risk": lambda logits, batch: unbiased_risk(logits, in_batch(batch), counts[batch]),
        "log-likelihood": lambda logits, batch: negative_log_likelihood(logits, in_batch(batch), counts[batch]),
        "every label known": lambda logits, batch: nn.functional.cross_entropy(logits, y_train[rows[batch].flatten()]),
    }
    table = Table(title="accuracy, %")
    table.add_column("trained by")
    table.add_column("new images", justify="right")
    table.add_column("images in the groups, given their counts", justify="right")
    accuracies = {}
    for name, loss_of in methods.items():
        model = train(X_train, rows, loss_of, epochs, name)
        with torch.no_grad():
            guessed = model(X_test).argmax(1)
            posterior = aggregate.posterior(model(X_train), groups, counts)
        accuracies[name] = (guessed == y_test).float().mean().item()
        inside = (posterior.argmax(1) == y_train[groups.members]).float().mean().item()
        table.add_row(name, f"{100 * accuracies[name]:.1f}", f"{100 * inside:.1f}")
    Console().print(table)
    return accuracies


if __name__ == "__main__":
    torch.set_num_threads(1)  # the batches are small: on a busy machine more threads mostly wait for each other
    main()
