"""unbag beside other packages: speed and error of likelihoods, accuracy of fits; what is not installed is left out.

``python experiments/benchmarks/peers/run.py`` prints the tables; ``--json`` with a file keeps them, and ``--render``
writes them to ``docs/performance.md``. README.md beside this file says how to fetch the peers.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import adapters
import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor
from torch.nn.functional import softplus

import unbag
from unbag._utils.environment import date, versions
from unbag.objectives.objective import match_proportions
from unbag_experiments.benchmarks.references import (
    cross_entropy_with_gradient,
    enumerate_counts,
    recursion_with_autograd,
)
from unbag_experiments.benchmarks.timing import alternate

# KLay is on PyPI as klaycircuits; klay is another package.
PACKAGES = ("klaycircuits", "torchmil", "pytorch-metric-learning", "metric-learn", "llp-learn")
Result = dict[str, Any]
HOW_TO_READ = """\
A likelihood, or loss, with its gradient, from float32 logits; medians of processor time, unbag and the other in
turns. *Other / unbag* above 1: unbag is faster. *Error*: the largest distance of a posterior from enumeration in
float64 (two classes of 128 members: a recursion; bags of 1,000: the closed form). *Another objective* is no
likelihood of the observation, so that there is nothing to compare but time. Lines marked *ours* are plain
implementations of the obvious. KLay runs without `torch.compile`, which should make it faster. The machine was busy:
figures of one line can be compared, those of two lines differ by some 30 %. How to fetch the peers, and which
packages have nothing comparable, is in `experiments/benchmarks/peers/README.md`.
"""

HOW_FITTED = """\
Fits of the digits of scikit-learn, one draw of 1,347 rows to learn from and 450 to judge by, so that a point or two is
chance. unbag: `AggregateClassifier()`, and with `model="mlp"`, a single network, all else by default. llp-learn: one
layer of 300 units, learning rate 1e-3, 200 epochs, after which its loss was still falling. Most of that gap is
training, not the objective: matched by our own loop, mean proportions of groups of six read these digits as well as the
likelihood does (`unbag demo`). metric-learn: a Mahalanobis distance by ITML, then k-means.
"""


def measure_speed(seconds: float) -> Iterator[Result]:
    """Time a likelihood with its gradient, from float32 logits, in turns with each peer, and compare posteriors."""
    counts, bags = unbag.LabelProportions(), unbag.MultipleInstance()
    pairs, triplets = unbag.PairwiseSimilarity(), unbag.TripletComparison()
    klay_comparisons = partial(adapters.klay_comparisons, k=10)
    shares = {"llp-learn, DLLP": adapters.llp_learn_match, "mean proportions, ours": _mean_proportions}
    largest = {"torchmil, MaxPool": adapters.torchmil_max_pool}
    contrastive = {"pytorch-metric-learning, contrastive": adapters.contrastive}
    margin = {"pytorch-metric-learning, triplet margin": adapters.triplet_margin}
    recursion = {"recursion in log space, ours": _recursion}
    product = {"1 - prod(1 - p), ours": _product}
    for case, aggregate, shape, same, another in (
        (
            "counts, 10 classes, 128 groups of 6",
            counts,
            (128, 6, 10),
            {"KLay, not compiled": adapters.klay_counts},
            shares,
        ),
        (
            "counts, 10 classes, 64 groups of 8",
            counts,
            (64, 8, 10),
            {"KLay, not compiled": adapters.klay_counts},
            shares,
        ),
        ("counts, 2 classes, 64 groups of 128", counts, (64, 128, 2), recursion, shares),
        ("bags, 64 of 6", bags, (64, 6, 2), {"KLay, not compiled": adapters.klay_bags} | product, largest),
        ("bags, 64 of 1,000", bags, (64, 1000, 2), product, largest),
        ("pairs, 10 classes, 256", pairs, (256, 2, 10), {"KLay, not compiled": klay_comparisons}, contrastive),
        ("triplets, 10 classes, 256", triplets, (256, 3, 10), {"KLay, not compiled": klay_comparisons}, margin),
    ):
        for row in _compare(aggregate, shape, same, another, seconds):
            yield {"case": case, **row}


def _compare(
    aggregate: unbag.Aggregate,
    shape: tuple[int, int, int],
    same: dict[str, Callable[..., adapters.Loss]],
    another: dict[str, Callable[..., adapters.Loss]],
    seconds: float,
) -> Iterator[Result]:
    """Compare with losses that are the same likelihood, and with those of another objective."""
    n, size, k = shape
    torch.manual_seed(0)
    logits = torch.randn(n, size, k)
    if isinstance(aggregate, unbag.MultipleInstance):
        logits[..., 1] -= np.log(size) + 0.5  # about as many positive bags as negative ones
    groups = unbag.Groups.from_sizes([size] * n)
    labels = torch.distributions.Categorical(logits=logits).sample().flatten()
    z = aggregate.observe(labels, groups, k)
    truth = _enumerate(aggregate, logits.double(), z)

    def ours() -> Tensor:
        leaf = logits.flatten(0, 1).requires_grad_()
        (-aggregate.log_likelihood(leaf, groups, z).sum()).backward()
        return leaf.softmax(1).detach() - leaf.grad

    def others(loss: adapters.Loss) -> Tensor:
        leaf = logits.clone().requires_grad_()
        loss(leaf).backward()
        return leaf.softmax(2).detach() - leaf.grad

    calls: dict[str, Callable[[], Any]] = {}
    for name, make in (same | another).items():
        try:
            calls[name] = partial(others, make(z, size))
        except ImportError:
            continue
    calls["cross entropy of known labels"] = partial(cross_entropy_with_gradient, logits.flatten(0, 1), labels)
    own_error = float((ours().view_as(truth) - truth).abs().max())
    for name, call in calls.items():
        error = float((call().double() - truth).abs().max()) if name in same else None
        own_ms, peer_ms = alternate(ours, call, seconds, time.process_time)
        times = {"unbag_ms": own_ms, "peer_ms": peer_ms, "ratio": peer_ms / own_ms}
        yield {"peer": name, **times, "unbag_error": own_error, "peer_error": error}


def _enumerate(aggregate: unbag.Aggregate, logits: Tensor, z: Tensor) -> Tensor:
    """Return the posterior by summing over all labels of a group, or, where these are too many, by a recursion."""
    size, k = logits.shape[1:]
    if isinstance(aggregate, unbag.LabelProportions):
        if k > 2:
            return enumerate_counts(logits, z)[1]
        positive = recursion_with_autograd(logits[..., 1] - logits[..., 0], z[:, 1])[1]
        return torch.stack([1 - positive, positive], 2)
    if k**size > 10**4:  # large bags
        odds = logits[..., 1] - logits[..., 0]
        positive = z[:, None] * odds.sigmoid() / -torch.expm1(-softplus(odds).sum(1, keepdim=True))
        return torch.stack([1 - positive, positive], 2)
    vectors = torch.cartesian_prod(*[torch.arange(k)] * size)
    answers = aggregate.observe(vectors.flatten(), unbag.Groups.from_sizes([size] * len(vectors)), k)
    log_joint = logits.log_softmax(2)[:, torch.arange(size), vectors].sum(2)  # (groups, vectors)
    weights = log_joint.masked_fill(answers != z[:, None], -torch.inf).softmax(1)
    return torch.stack([weights @ (vectors == label).double() for label in range(k)], 2)


def _mean_proportions(z: Tensor, size: int) -> adapters.Loss:
    groups = unbag.Groups.from_sizes([size] * len(z))
    return lambda logits: match_proportions(logits.flatten(0, 1), groups.segments, z).sum()


def _recursion(z: Tensor, size: int) -> adapters.Loss:
    def loss(logits: Tensor) -> Tensor:
        odds = logits[..., 1] - logits[..., 0]
        yes, no = torch.nn.functional.logsigmoid(odds), torch.nn.functional.logsigmoid(-odds)
        counted = torch.full((len(odds), size + 1), -1e30)
        counted[:, 0] = 0
        first = counted[:, 1:2]
        for member in range(size):
            one_more = torch.cat([first, counted[:, :-1]], 1) + yes[:, member, None]
            counted = torch.logaddexp(counted + no[:, member, None], one_more)
        return -counted.gather(1, z[:, 1:]).sum()

    return loss


def _product(z: Tensor, size: int) -> adapters.Loss:
    def loss(logits: Tensor) -> Tensor:
        none = logits.softmax(2)[..., 0].prod(1)
        return -torch.where(z == 1, 1 - none, none).log().sum()

    return loss


FITS = ("4", "16", "pairs")
"""What is fitted: counts in groups of 4, of 16, and pairs."""
MODELS = {"unbag, default": "auto", "unbag, a network": "mlp"}


def measure_accuracy(epochs: int | str, chosen: Sequence[str] = FITS) -> Iterator[Result]:
    """Fit the digits of scikit-learn from counts and from pairs, and judge by test rows."""
    images, digits = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(images / 16, digits, test_size=450, random_state=0)
    for size in (int(one) for one in chosen if one != "pairs"):
        case, ids = f"digits, counts in groups of {size}", np.arange(len(X) // size * size) // size
        rows = X[: len(ids)]
        counts = np.stack([np.bincount(y[: len(ids)][ids == group], minlength=10) for group in range(ids[-1] + 1)])
        for name, model in MODELS.items():
            clf = unbag.AggregateClassifier(model=model, epochs=epochs, random_state=0)
            found = clf.fit(rows, unbag.target(ids, counts)).predict(X_test)
            yield {"case": case, "peer": name, "accuracy": float((found == y_test).mean())}
        try:
            found = adapters.fit_dllp(rows, ids, counts, X_test)
        except ImportError:
            continue
        yield {"case": case, "peer": "llp-learn, DLLP", "accuracy": float((found == y_test).mean())}
    if "pairs" not in chosen:
        return
    pairs = np.random.default_rng(0).integers(len(X), size=(1500, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    same, groups = (y[pairs[:, 0]] == y[pairs[:, 1]]).astype(int), unbag.Groups.from_tuples(pairs)
    case = f"digits, {len(pairs):,} pairs, best naming"
    for name, model in MODELS.items():
        clf = unbag.AggregateClassifier(
            "pairwise_similarity", classes=range(10), model=model, epochs=epochs, random_state=0
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that classes are unnamed
            found = clf.fit(X, same, groups=groups).predict(X_test)
        yield {"case": case, "peer": name, "accuracy": _best_naming(found, y_test)}
    try:
        found = adapters.fit_itml(X, pairs, same, X_test, 10)
    except (ImportError, TypeError) as error:  # its calls of scikit-learn fit versions before 1.8 alone
        print(f"metric-learn is left out: {error}")
        return
    yield {"case": case, "peer": "metric-learn, ITML and k-means", "accuracy": _best_naming(found, y_test)}


def _best_naming(found: Any, truth: Any) -> float:
    table = np.zeros((10, 10))
    np.add.at(table, (found, truth), 1)
    return float(table[linear_sum_assignment(-table)].sum() / len(truth))


def installed() -> dict[str, str]:
    """Return the versions of the peers that are here."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            print(f"{name} is not installed: left out")
    return found


def tables(results: Result) -> str:
    """Return both tables in Markdown."""
    lines = ["| case | beside | unbag, ms | other, ms | other / unbag | error of unbag | error of other |"]
    lines.append("|:--|:--|--:|--:|--:|--:|--:|")
    for row in results["speed"]:
        error = "another objective" if row["peer_error"] is None else f"{row['peer_error']:.0e}"
        times = f"{row['unbag_ms']:.3g} | {row['peer_ms']:.3g} | {row['ratio']:.2g}"
        lines.append(f"| {row['case']} | {row['peer']} | {times} | {row['unbag_error']:.0e} | {error} |")
    if results["accuracy"]:
        lines += ["", HOW_FITTED, "| case | method | accuracy on new rows |", "|:--|:--|--:|"]
    lines += [f"| {row['case']} | {row['peer']} | {row['accuracy']:.1%} |" for row in results["accuracy"]]
    return "\n".join(lines)


def render(folder: Path, page: Path) -> None:
    """Write the page from the results that the folder holds."""
    names = ("peers", "engine", "training", "training_gpu")
    peers, engine, training, on_gpu = (
        json.loads((folder / f"{name}.json").read_text(encoding="utf-8")) for name in names
    )
    measured = f"Measured on {peers['date'][:10]} with {_listed(peers['versions'] | peers['peers'])}"
    lines = [
        "# Performance",
        "",
        "Made by `python experiments/benchmarks/peers/run.py --render` from `experiments/benchmarks/*.json` alone.",
        "",
    ]
    lines += [
        "## Beside other packages",
        "",
        f"{measured}; {peers['machine']}, one thread.",
        HOW_TO_READ,
        tables(peers),
    ]
    for title, command, results in (
        ("Likelihoods and posteriors", "engine", engine),
        ("Training on a processor", "training", training),
        ("Training on a GPU", "training", on_gpu),
    ):
        day = f" on {results['date'][:10]}" if "date" in results else ""
        with_ = _listed(results["versions"])
        lines += ["", f"## {title}", "", f"`unbag bench {command}`{day}, with {with_}; {results['machine']}."]
        lines += [
            "",
            "| case | beside | unbag, ms | other, ms | ratio | target | met |",
            "|:--|:--|--:|--:|--:|:--|:--|",
        ]
        lines += [
            f"| {row['case']} | {row['reference']} | {row['unbag_ms']:.3g} | {row['reference_ms']:.3g} | "
            f"{row['ratio']:.2g} | {row['target']} | {'yes' if row['met'] else 'no'} |"
            for row in results["results"]
            if None not in (row["unbag_ms"], row["reference_ms"], row["ratio"])
        ]
    lines += ["", "Why some targets are missed is in `experiments/benchmarks/README.md`.", ""]
    page.write_text("\n".join(lines), encoding="utf-8")


def _listed(found: dict[str, str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in found.items())


def main() -> None:
    """Run what is installed, print it, and keep it where asked."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--json", type=Path, help="also write the results to this file")
    arguments.add_argument("--seconds", type=float, default=1.0, help="for each comparison of speed")
    arguments.add_argument(
        "--accuracy", nargs="*", choices=FITS, help="also fit the digits of scikit-learn, all or some, in minutes"
    )
    arguments.add_argument("--epochs", type=int, help="of unbag's fits, in place of training by progress")
    arguments.add_argument("--render", action="store_true", help="write docs/performance.md; run nothing")
    chosen = arguments.parse_args()
    if chosen.render:
        benchmarks = Path(__file__).parents[1]
        render(benchmarks, benchmarks.parents[1] / "docs" / "performance.md")
        return
    torch.set_num_threads(1)
    made_by = {"date": date(), "versions": versions("scikit-learn"), "peers": installed()}
    results = {**made_by, "machine": platform.machine(), "threads": 1}
    results["speed"] = list(measure_speed(chosen.seconds))
    fits = [] if chosen.accuracy is None else chosen.accuracy or FITS
    results["accuracy"] = list(measure_accuracy(chosen.epochs or "auto", fits)) if fits else []
    print(tables(results))
    if chosen.json:
        chosen.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
