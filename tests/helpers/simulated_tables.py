"""Simulations behind figures of the documentation: advertising with many categories, and bags of embeddings.

``python tests/helpers/simulated_tables.py advertising`` and ``... bags --bags 300 --columns 384 --share 0.05 --seed 0``
fit a model and print processor seconds, memory and the AUC on new rows and bags.
"""

import argparse
import resource
import time
import warnings

import numpy as np
import pandas as pd
import torch
from sklearn.metrics import roc_auc_score

from unbag import AggregateClassifier, Groups, PublishedCounts, noise, published

N_TEST_BAGS = 200


def draw_advertising(n: int = 200_000, seed: int = 3) -> tuple[pd.DataFrame, np.ndarray, list[pd.Series]]:
    """Return rows, labels of which 1.7 % are positive, and the keys of two tables: campaign or site, by day."""
    rng = np.random.default_rng(seed)

    def draw_codes(n_codes: int, exponent: float) -> np.ndarray:
        weights = 1 / np.arange(1, n_codes + 1) ** exponent
        return rng.choice(n_codes, n, p=weights / weights.sum())

    campaign, site, day = draw_codes(500, 0.9), draw_codes(200, 1.0), rng.integers(0, 7, n)
    device = rng.choice(["mobile", "desktop", "tablet", "tv"], n, p=[0.6, 0.28, 0.08, 0.04])
    position, vertical = rng.choice(["top", "middle", "footer", "fixed"], n), rng.integers(0, 12, 500)[campaign]
    recency, visits, view = rng.exponential(12, n), np.log1p(rng.gamma(0.7, 1.5, n)), rng.beta(2, 2, n)
    effects = rng.normal(0, 0.6, 500)[campaign] + rng.normal(0, 0.4, 200)[site] + rng.normal(0, 0.4, 12)[vertical]
    logit = -4.6 + effects + 0.9 * (visits - 0.6) - 0.04 * recency + 0.5 * (device == "desktop") + view - 0.5
    labels = (rng.random(n) < 1 / (1 + np.exp(-logit - 0.3 * (position == "top")))).astype(int)
    texts = {"campaign": campaign, "site": site, "vertical": vertical, "device": device, "position": position}
    X = pd.DataFrame({name: pd.Series(values).astype(str) for name, values in texts.items()})
    X = X.assign(recency=recency, visits=visits, view=view)
    X.loc[rng.random(n) < 0.15, "recency"] = np.nan
    return X, labels, [X[name] + " " + pd.Series(day).astype(str) for name in ("campaign", "site")]


def fit_advertising(seed: int) -> str:
    """Fit a linear model to two tables of counts with noise, and describe how it ranks new rows."""
    X, labels, keys = draw_advertising(seed=seed)
    rng = np.random.default_rng(seed + 1)
    test = rng.random(len(X)) < 0.2
    groups = [Groups.from_ids(key[~test].to_numpy()) for key in keys]
    z = []
    for g in groups:
        counts = g.segments.sum(torch.from_numpy(labels[~test])[g.members]).double()
        noisy = published.noisy(counts + torch.from_numpy(rng.normal(0, 5, len(g))), noise.Gaussian(5.0))
        z.append(torch.stack([published.between(torch.zeros(len(g)), g.sizes), noisy], 1))
    clf = AggregateClassifier([PublishedCounts()] * 2, model="linear", random_state=0, n_jobs=1)
    clf.fit(X[~test].reset_index(drop=True), z, groups=groups)
    return f"AUC {roc_auc_score(labels[test], clf.predict_proba(X[test])[:, 1]):.3f}"


def draw_bags(n: int, d: int, share: float, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return embeddings, the bag of each, their labels, and those of bags; 40 % of bags are positive."""
    rng = np.random.default_rng(seed)
    loadings, kinds = rng.normal(size=(40, d)) / 40**0.5, rng.normal(size=(8, 40))
    signal = rng.normal(size=d)
    signal *= 2.6 / np.linalg.norm(signal)
    rows, labels = [], []
    for _ in range(n):
        size, positive = int(np.exp(rng.uniform(np.log(20), np.log(500)))), rng.random() < 0.4
        hidden = kinds[rng.choice(8, size, p=rng.dirichlet(np.ones(8)))] + rng.normal(size=(size, 40))
        x = hidden @ loadings + 0.5 * rng.normal(size=(size, d)) + 0.25 * rng.normal(size=d)
        y = np.zeros(size, dtype=int)
        if positive:
            y[rng.choice(size, max(1, round(share * size)), replace=False)] = 1
        x[y == 1] += signal * np.abs(rng.normal(1, 0.3, (y.sum(), 1)))
        rows.append(x.astype(np.float32))
        labels.append(y)
    bag = np.repeat(np.arange(n), list(map(len, rows)))
    return np.concatenate(rows), bag, np.concatenate(labels), np.array([y.max() for y in labels])


def fit_bags(model: str, n: int, d: int, share: float, seed: int) -> str:
    """Fit a classifier to bags, and describe how it ranks new bags and their instances."""
    X, bag, labels, z = draw_bags(n + N_TEST_BAGS, d, share, seed)
    old = bag < n
    clf = AggregateClassifier("multiple_instance", model=model, random_state=0, n_jobs=1)
    clf.fit(X[old], z[:n], groups=Groups.from_ids(bag[old]))
    by_bag = roc_auc_score(z[n:], clf.predict_groups(X[~old], Groups.from_ids(bag[~old])))
    return f"AUC of bags {by_bag:.3f}, of instances {roc_auc_score(labels[~old], clf.predict_proba(X[~old])[:, 1]):.3f}"


def main() -> None:
    """Run a simulation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("which", choices=("advertising", "bags"))
    parser.add_argument("--model", default="auto", help="for bags")
    for name, value in (("bags", 300), ("columns", 384), ("share", 0.05), ("seed", 0)):
        parser.add_argument(f"--{name}", type=type(value), default=value)
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    begun = time.process_time()
    if given.which == "advertising":
        result = fit_advertising(given.seed)
    else:
        result = fit_bags(given.model, given.bags, given.columns, given.share, given.seed)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{result}, {time.process_time() - begun:.0f} s, {memory:.2f} GiB")


if __name__ == "__main__":
    main()
