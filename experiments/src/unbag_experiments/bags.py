"""Bags of the multiple-instance data sets, as they are or augmented as in the paper."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unbag_experiments.datasets import Dataset
from unbag_experiments.splits import Split, split_fold, split_together, split_whole

NOISE = 0.01
"""Standard deviation of the noise on copies, in units of each column's own. The paper says "variance 0.01"; its figures
fit a standard deviation of that size, and are out of reach with a variance of it."""

COPIES = {"musk1": 10, "musk2": 10}
"""How many times as many bags the paper makes of a data set."""
COPIES_ELSEWHERE = 5

AUGMENTATION_SEED = 1000


@dataclass(frozen=True, eq=False)
class Bags:
    """Bags one after the other, and which bag each is a copy of."""

    X: np.ndarray  # (n, d)
    sizes: np.ndarray  # (bags,)
    y: np.ndarray  # (bags,)
    origins: np.ndarray  # (bags,), its own number where a bag is no copy

    def rows(self, which: np.ndarray) -> np.ndarray:
        """Return the rows of some bags, one bag after the other."""
        ends = self.sizes.cumsum()
        return np.concatenate([np.arange(ends[bag] - self.sizes[bag], ends[bag]) for bag in which])


def prepare_bags(dataset: Dataset, protocol: str, noise: float = NOISE) -> Bags:
    """Return the bags that a protocol works on, the same ones for all trials.

    ``"paper"`` keeps the bags and adds noisy copies of bags drawn at random. ``"copies_together"`` copies every bag
    equally often, so that each trial has as many training bags as any other. ``"ten_fold"`` takes the bags as they are.
    """
    assert dataset.bags is not None
    n = len(dataset.y)
    times = COPIES.get(dataset.name, COPIES_ELSEWHERE)
    rng = np.random.default_rng(AUGMENTATION_SEED)
    origins = {
        "paper": lambda: np.concatenate([np.arange(n), rng.integers(0, n, n * (times - 1))]),
        "copies_together": lambda: np.tile(np.arange(n), times),
        "ten_fold": lambda: np.arange(n),
    }[protocol]()
    originals = Bags(dataset.X, np.bincount(dataset.bags, minlength=n), dataset.y, np.arange(n))
    return copy_bags(originals, origins, noise, rng)


def copy_bags(originals: Bags, origins: np.ndarray, noise: float, rng: np.random.Generator) -> Bags:
    """Return the bags, and after them their copies with noise.

    ``origins`` says which bag each bag of the result is a copy of; the first of them are all originals in their
    order. ``noise`` is in units of the standard deviation of each column: one that is constant stays so, because
    scaled later, its noise would be all there is.
    """
    n = len(originals.X)
    X = originals.X[originals.rows(origins)]
    X[n:] += noise * originals.X.std(0) * rng.standard_normal(X[n:].shape)
    return Bags(X, originals.sizes[origins], originals.y[origins], origins)


def split_bags(bags: Bags, protocol: str, seed: int) -> Split:
    """Return the split of a trial, as numbers of bags."""
    rng = np.random.default_rng(seed)
    splits: dict[str, Callable[[], Split]] = {
        # Copies of a bag are on both sides: what the paper does, and why its figures are far above what the data bear.
        "paper": lambda: split_whole(len(bags.y), rng),
        "copies_together": lambda: split_together(bags.origins, rng),
        "ten_fold": lambda: split_fold(bags.y, seed),
    }
    return splits[protocol]()
