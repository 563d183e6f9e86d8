"""The demonstration: single digits from groups of six images, of which only the count of each digit is known."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import unbag
from unbag._utils.random_state import first_seed
from unbag.objectives.objective import match_proportions
from unbag.report import summarise
from unbag.training import Observations

GROUP_SIZE = 6
TITLE = "Digits from counts in groups of six"

Report = Callable[[str], None]


def run(seed: int = 0, epochs: int = 200, *, verbose: int = 1, report: Report = print) -> dict[str, Any]:
    """Learn to read digits in four ways, three of which see no label; return the summary of the first.

    Parameters
    ----------
    seed
        Of the split, the groups and the models.
    epochs
        How often every group is visited, at most.
    verbose
        1 shows a progress bar in a terminal.
    report
        Told how each way went as soon as it is known.

    Returns
    -------
    dict
        What :func:`unbag.report.summarise` returns of the unbiased method, with the ``comparison`` of all.
    """
    images, digits = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(images, digits, test_size=0.25, stratify=digits, random_state=seed)
    groups = draw_groups(len(X), seed)
    counts = unbag.LabelProportions().observe(y, groups, n_classes=10)  # all that three of the four are told
    known = ", ".join(map(str, counts[0].tolist()))
    report(f"{len(groups)} groups of {GROUP_SIZE} images; of the first we know how many show 0, 1, 2, ...: {known}")
    shared: dict[str, Any] = {"model": "mlp", "epochs": epochs, "random_state": seed, "verbose": verbose}
    uum = unbag.AggregateClassifier(**shared)
    likelihood = unbag.AggregateClassifier(method="likelihood", **shared)
    supervised = unbag.AggregateClassifier(**shared)
    seen = Observations(unbag.LabelProportions(), groups, counts, n_classes=10)
    ways: dict[str, Callable[[], np.ndarray]] = {
        "unbiased risk (UUM)": lambda: uum.fit(X, counts, groups).predict(X_test),
        "log-likelihood": lambda: likelihood.fit(X, counts, groups).predict(X_test),
        "mean proportion (DLLP)": lambda: predict_by_mean_proportion(uum, X, X_test, seen),
        "every label (supervised ceiling)": lambda: supervised.fit(X, y).predict(X_test),
    }
    rows = []
    with one_thread():
        for method, learn in ways.items():
            start = time.perf_counter()
            accuracy = float((learn() == y_test).mean())
            rows.append({"method": method, "accuracy": accuracy, "seconds": time.perf_counter() - start})
            report(f"{method}: {accuracy:.1%} of {len(y_test)} new images right, after {rows[-1]['seconds']:.0f} s")
        summary = summarise(
            uum,
            np.concatenate([X, X_test]),
            counts,
            groups,
            title=TITLE,
            inputs={
                "images": "the 1,797 handwritten digits of 8 by 8 pixels that come with scikit-learn",
                "groups": f"drawn at random from {len(X):,} images; every image is in about {GROUP_SIZE // 2} of them",
                "labels": f"of {len(X_test)} images that are in no group, to judge by",
                "seed": seed,
            },
            labels=y_test,
            labelled_rows=len(X) + np.arange(len(X_test)),
        )
    return {**summary, "comparison": rows}


def draw_groups(n_rows: int, seed: int) -> unbag.Groups:
    """Draw half as many groups as there are rows; every row is in about three of them.

    Examples
    --------
    >>> len(draw_groups(20, seed=0))
    10
    """
    random = np.random.default_rng(seed)
    shuffled = np.concatenate([random.permutation(n_rows) for _ in range(GROUP_SIZE // 2)])
    n_groups = len(shuffled) // GROUP_SIZE
    return unbag.Groups.from_tuples(shuffled[: n_groups * GROUP_SIZE].reshape(n_groups, GROUP_SIZE))


def predict_by_mean_proportion(
    like: unbag.AggregateClassifier, X: np.ndarray, X_test: np.ndarray, seen: Observations
) -> np.ndarray:
    """Train as another classifier was, but for what is minimised, and return the classes of other rows."""
    rows = torch.from_numpy(X)
    seed = first_seed(like.random_state)
    fitted = prepare(like.get_params(deep=False), rows, [seen], seed, objective=match_proportions).train()
    return fitted.log_probs(torch.from_numpy(X_test)).argmax(1).numpy()


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread: the batches are small, and on a busy machine more mostly wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
