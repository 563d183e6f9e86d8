"""The demonstration: digits learned from groups of six images, of which only the count of each digit is known."""

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import unbag
from unbag.data.scaling import fit_scaling
from unbag.learners.architectures import build
from unbag.objectives.objective import match_proportions
from unbag.report import summarise
from unbag.training import Observations, Settings, held_out_likelihood, train

GROUP_SIZE, N_TEST = 6, 453
HELD_OUT = 0.1
"""Share of the groups that chooses the epoch of the match of proportions, as in the other methods."""


def run(
    title: str,
    seed: int = 0,
    epochs: int = 200,
    *,
    time_limit: float | None = None,
    report: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Learn to read digits in four ways, three of which receive no labels, and ``report`` the result of each.

    Returns the summary of the default fit, which ends after ``time_limit`` seconds, with the ``comparison`` of all.
    """
    images, digits = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(images, digits, test_size=N_TEST, stratify=digits, random_state=seed)
    groups = unbag.Groups.from_tuples(np.random.default_rng(seed).permutation(len(X)).reshape(-1, GROUP_SIZE))
    counts = unbag.LabelProportions().observe(y, groups, n_classes=10)  # all that three of the methods receive
    shown = ", ".join(map(str, counts[0].tolist()))
    report(f"{len(groups)} groups of {GROUP_SIZE} images; counts of the digits 0 to 9 in the first group: {shown}")
    network: dict[str, Any] = {"model": "mlp", "random_state": seed, "training": unbag.NetworkTraining(epochs)}
    default = unbag.AggregateClassifier(time_limit=time_limit, random_state=seed)
    likelihood = unbag.AggregateClassifier(method="likelihood", **network)
    supervised = unbag.AggregateClassifier(**network)
    seen = Observations(unbag.LabelProportions(), groups, counts, n_classes=10)
    methods: dict[str, Callable[[], np.ndarray]] = {
        "unbag, default": lambda: default.fit(X, counts, groups).predict(X_test),
        "log-likelihood of one network": lambda: likelihood.fit(X, counts, groups).predict(X_test),
        "mean proportion (DLLP)": lambda: predict_by_mean_proportion(X, X_test, seen, seed, epochs),
        "every label (supervised ceiling)": lambda: supervised.fit(X, y).predict(X_test),
    }
    rows = []
    for method, predict in methods.items():
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", unbag.UnbagWarning)  # they are in the report
            accuracy = float((predict() == y_test).mean())
        rows.append({"method": method, "accuracy": accuracy, "seconds": time.perf_counter() - start})
        report(f"{method}: {accuracy:.1%} of {len(y_test)} new images correct, after {rows[-1]['seconds']:.0f} s")
    summary = summarise(
        default,
        np.concatenate([X, X_test]),
        counts,
        groups,
        title=title,
        inputs={
            "images": "the 1,797 handwritten digits of 8 by 8 pixels that come with scikit-learn",
            "groups": f"drawn at random from {len(X):,} images; every image is in one of them",
            "labels": f"of {len(X_test)} images that are in no group, for evaluation",
            "seed": seed,
        },
        labels=y_test,
        labelled_rows=len(X) + np.arange(len(X_test)),
    )
    return {**summary, "comparison": rows}


def predict_by_mean_proportion(
    X: np.ndarray, X_test: np.ndarray, seen: Observations, seed: int, epochs: int
) -> np.ndarray:
    """Match the mean prediction of each group with its proportions, and return the classes of other rows."""
    scaling = fit_scaling(torch.from_numpy(X), "standard")
    rows, new_rows = (scaling(torch.from_numpy(part)).float() for part in (X, X_test))
    kept, held_out = seen.split(HELD_OUT, torch.Generator().manual_seed(seed))
    trained = train(
        build("mlp", (X.shape[1],), seen.n_classes),
        rows,
        [kept],
        Settings(epochs=epochs, patience=30),
        seeds=[seed],
        score=held_out_likelihood(rows, [held_out]),
        objective=match_proportions,
    )
    with torch.no_grad():
        return trained.models[0](new_rows).argmax(1).numpy()
