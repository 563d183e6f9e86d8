"""Methods by name: from counts of groups to probabilities of new rows, and what the estimator reports about itself."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import RidgeCV
from torch import nn

from unbag import AggregateClassifier, Groups
from unbag._kernels.segments import Segments
from unbag.learners import Fourier, Linear, register_learner
from unbag_experiments.baselines.mean_proportion import METHOD as MEAN_PROPORTION

MODELS = {"default": "auto", "linear": "linear", "kernel": "kernel", "network": "mlp", "trees": "trees"}
"""Methods that are the estimator, with the model that it fits."""
N_UNITS, N_PASSES, MIN_STEPS, ROWS_PER_STEP = 300, 100, 500, 1_024
"""Of the match of mean proportions."""
PENALTIES = np.logspace(-2, 5, 15)
RELEASE = "UNBAG_RELEASE"
"""Environment variable with the folder that contains the package ``unbag`` of an earlier version."""


@register_learner
class Kernel(Linear):
    """A linear model of random Fourier features, which the library has in the default fit alone."""

    name = "kernel"

    def __init__(self) -> None:
        super().__init__("kernel", partial(Fourier.fit, scale=0.6), ridges=(100, 10, 1, 0.1))


@dataclass(frozen=True, eq=False)
class Learned:
    """Predictions of new rows, and attributes of the fitted estimator."""

    probs: np.ndarray  # (rows, classes)
    report: dict[str, Any] = field(default_factory=dict)


def learn(method: str, X: np.ndarray, ids: np.ndarray, counts: np.ndarray, X_new: np.ndarray, *, seed: int) -> Learned:
    """Learn from the counts of groups, and predict new rows."""
    if method == "release":
        return _learn_by_release(X, ids, counts, X_new, seed)
    if method in ("match", "ridge"):
        rows, new_rows = _standardise(X, X_new)
        fit = _match_means if method == "match" else _regress_means
        return Learned(fit(rows, ids, counts, new_rows, seed))
    groups = Groups.from_ids(torch.from_numpy(ids))
    classifier = AggregateClassifier(model=MODELS[method], random_state=seed, n_jobs=1)
    classifier.fit(X, counts, groups=groups)
    return Learned(classifier.predict_proba(X_new), report(classifier))


def why_not(method: str) -> str | None:
    """Return why a method is not available here; None where it is."""
    if method == "release" and RELEASE not in os.environ:
        return f"release is not available: set {RELEASE} to the folder with the package unbag of the earlier version"
    if method == "trees" and find_spec("lightgbm") is None:
        return "trees are not available: LightGBM is not installed"
    return None


def report(classifier: Any) -> dict[str, Any]:
    """Return what a fitted estimator states about its accuracy and its models; None where it states nothing."""
    estimate: Any = getattr(classifier, "estimated_accuracy_", None)
    mixture: Any = getattr(classifier, "mixture_", None)
    return {
        "estimated_accuracy": None if estimate is None else float(getattr(estimate, "value", estimate)),
        "interval": [float(estimate.low), float(estimate.high)] if hasattr(estimate, "low") else None,
        "held_out": None if mixture is None or not np.isfinite(mixture.score) else float(mixture.score),
        "candidates": {
            c["model"]: [round(float(c["weight"]), 3), c.get("score"), c.get("seconds")]
            for c in getattr(classifier, "candidates_", ())
            if isinstance(c, Mapping) and "weight" in c
        },
    }


def _standardise(X: np.ndarray, X_new: np.ndarray) -> list[np.ndarray]:
    """Return standardised columns, with missing values replaced by the mean and marked by an indicator."""
    mean, deviation = np.nanmean(X, 0), np.nanstd(X, 0)
    missing = np.isnan(X).any(0)
    scaled = [np.nan_to_num((part - mean) / np.where(deviation > 0, deviation, 1)) for part in (X, X_new)]
    flags = [np.isnan(part[:, missing]) for part in (X, X_new)]
    return [np.hstack(parts).astype(np.float32) for parts in zip(scaled, flags, strict=True)]


def _regress_means(X: np.ndarray, ids: np.ndarray, counts: np.ndarray, X_new: np.ndarray, seed: int) -> np.ndarray:
    """Fit a ridge regression of the shares of classes on the mean rows of groups; shares of new rows are clipped."""
    sizes = counts.sum(1)
    means = np.zeros((len(counts), X.shape[1]))
    np.add.at(means, ids, X)
    model = RidgeCV(PENALTIES).fit(means / sizes[:, None], counts / sizes[:, None], sample_weight=sizes)
    shares = model.predict(X_new).reshape(len(X_new), -1).clip(1e-6, None)
    return shares / shares.sum(1, keepdims=True)


def _match_means(X: np.ndarray, ids: np.ndarray, counts: np.ndarray, X_new: np.ndarray, seed: int) -> np.ndarray:
    """Train a network so that its mean prediction of each group matches the shares of its classes."""
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(X.shape[1], N_UNITS), nn.ReLU(), nn.Linear(N_UNITS, counts.shape[1]))
    optimiser = torch.optim.Adam(model.parameters(), fused=True)
    groups, rows, z = Groups.from_ids(torch.from_numpy(ids)), torch.from_numpy(X), torch.from_numpy(counts)
    n_groups = max(round(ROWS_PER_STEP * len(groups) / len(X)), 1)
    n_passes = max(N_PASSES, MIN_STEPS * n_groups // len(groups))
    for _ in range(n_passes):
        for batch in torch.randperm(len(groups), generator=generator).split(n_groups):
            chosen = groups.take(batch)
            segments = Segments.from_sizes(chosen.sizes)
            optimiser.zero_grad()
            MEAN_PROPORTION.objective(model(rows[chosen.members]), segments, z[batch]).mean().backward()
            optimiser.step()
    with torch.no_grad():
        return model(torch.from_numpy(X_new)).double().softmax(-1).numpy()


def _learn_by_release(X: np.ndarray, ids: np.ndarray, counts: np.ndarray, X_new: np.ndarray, seed: int) -> Learned:
    """Run the default fit of an earlier version in a process of its own, as its modules have the same names."""
    with tempfile.TemporaryDirectory() as folder:
        given, found = Path(folder, "given.npz"), Path(folder, "found.npz")
        np.savez(given, X=X, ids=ids, counts=counts, X_new=X_new)
        environment = {**os.environ, "PYTHONPATH": os.environ[RELEASE]}
        command = [sys.executable, "-W", "ignore", "-c", _RELEASE_CODE, str(given), str(found), str(seed)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"the earlier version failed: {done.stderr[-500:]}")
        with np.load(found) as file:
            estimate = file["estimate"].tolist()
            details = {"estimated_accuracy": estimate[0] if estimate else None, "interval": estimate[1:] or None}
            return Learned(file["probs"], {**details, "version": str(file["version"])})


_RELEASE_CODE = """
import sys
import numpy as np
import torch
import unbag
torch.set_num_threads(1)
given, found, seed = sys.argv[1:]
with np.load(given) as file:
    X, ids, counts, X_new = (file[name] for name in ("X", "ids", "counts", "X_new"))
model = unbag.AggregateClassifier(random_state=int(seed))
model.fit(X, counts, groups=unbag.Groups.from_ids(torch.from_numpy(ids)))
estimate = getattr(model, "estimated_accuracy_", None)
numbers = [] if estimate is None else [float(estimate)]
numbers += [float(estimate.low), float(estimate.high)] if hasattr(estimate, "low") else []
np.savez(found, probs=model.predict_proba(X_new), estimate=numbers, version=unbag.__version__)
"""
