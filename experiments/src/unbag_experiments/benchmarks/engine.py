"""Likelihood and posterior together, in float32, against plain references."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from unbag import Groups
from unbag.aggregates import (
    Aggregate,
    FromFold,
    LabelProportions,
    MultipleInstance,
    OrdinalRank,
    OrdinalTriplet,
    PairwiseSimilarity,
    PublishedCounts,
    TripletComparison,
)
from unbag.noise import Gaussian, Laplace
from unbag.published import noisy, rounded, unknown
from unbag_experiments.benchmarks.references import (
    cross_entropy_with_gradient,
    enumerate_counts,
    enumerate_counts_in_batches,
    recursion_with_autograd,
)
from unbag_experiments.benchmarks.rows import Result, faster, no_slower, row
from unbag_experiments.benchmarks.timing import alternate

Enumerate = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def run(*, threads: int = 1, quick: bool = False, report: Callable[[str], None] = lambda case: None) -> list[Result]:
    """Time every case; ``quick`` runs each for a moment only."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    try:
        results = []
        for case, measure in _cases():
            report(case)
            results.append({"case": case, **measure(0.02 if quick else 3.0)})
        return results
    finally:
        torch.set_num_threads(before)


def _cases() -> Iterator[tuple[str, Callable[[float], Result]]]:
    plain = partial(
        _against_enumeration, how=enumerate_counts, name="enumeration of distinct label vectors, cached tables"
    )
    batched = partial(
        _against_enumeration, how=enumerate_counts_in_batches, name="the same, groups of like counts side by side"
    )
    yield "proportions, 10 classes, 128 groups of 6", partial(plain, shape=(128, 6), target=12.0)
    yield "proportions, 10 classes, 64 groups of 8", partial(plain, shape=(64, 8), target=20.0)
    yield "the same 128 groups of 6, batched reference", partial(batched, shape=(128, 6), target=1.0)
    yield "proportions, 2 classes, 64 groups of 1,024", _against_recursion
    yield "proportions, 2 classes, one group of 100,000", _one_large_group
    # How many times a cross entropy exact sums may take grows with what they add up, not with the rows.
    for k, n_groups, size, target in (
        (10, 64, 16, 140.0),
        (100, 64, 16, 500.0),
        (10, 32, 64, 14.0),
        (10, 16, 128, 11.0),
    ):
        how = "exact" if size == 16 else "saddle point"
        run = partial(_against_cross_entropy, LabelProportions(), size, k, n_groups=n_groups, target=target)
        yield f"proportions, {k} classes, {n_groups} groups of {size} ({how})", run
    yield "proportions, 10 classes, 64 groups of 256 (saddle point)", _saddle_point
    for what, publish in _published().items():
        yield f"the same 64 groups of 1,024, {what}", partial(_against_counts, publish, 64, 1024, 2)
        yield f"the same 128 groups of 6, {what}", partial(_against_counts, publish, 128, 6, 10)
    yield "pairs, 10 classes, 128", partial(_against_cross_entropy, PairwiseSimilarity(), 2, 10)
    yield "triplets, 10 classes, 128", partial(_against_cross_entropy, TripletComparison(), 3, 10)
    yield "ordinal ranks, 10 classes, 128", partial(_against_cross_entropy, OrdinalRank(), 2, 10)
    yield "ordinal triplets, 10 classes, 128", partial(_against_cross_entropy, OrdinalTriplet(), 3, 10)
    yield "bags of 6, 128", partial(_against_cross_entropy, MultipleInstance(), 6, 2)
    yield "bags of 1,000, 128", partial(_against_cross_entropy, MultipleInstance(), 1000, 2)
    yield "a fold: the count of one class, 64 groups of 64", _fold_against_counts


def _problem(aggregate: Aggregate, n_groups: int, size: int, k: int) -> tuple[Tensor, Groups, Tensor, Tensor]:
    """Draw logits, and observations that agree with them."""
    groups = Groups.from_sizes([size] * n_groups)
    logits = torch.randn(n_groups * size, k)
    labels = torch.distributions.Categorical(logits=logits).sample()
    return logits, groups, labels, aggregate.observe(labels, groups, k)


def _against_enumeration(seconds: float, *, how: Enumerate, name: str, shape: tuple[int, int], target: float) -> Result:
    n_groups, size = shape
    aggregate = LabelProportions()
    logits, groups, _, z = _problem(aggregate, n_groups, size, 10)
    ours, reference = alternate(
        lambda: aggregate.evidence(logits, groups, z), lambda: how(logits.view(n_groups, size, 10), z), seconds
    )
    return faster(ours, reference, name, target)


def _against_recursion(seconds: float) -> Result:
    aggregate = LabelProportions()
    logits, groups, _, z = _problem(aggregate, 64, 1024, 2)
    odds = (logits[:, 1] - logits[:, 0]).view(64, 1024)
    ours, reference = alternate(
        lambda: aggregate.evidence(logits, groups, z), lambda: recursion_with_autograd(odds, z[:, 1]), seconds
    )
    return faster(ours, reference, "log-space recursion differentiated by autograd", 10.0)


def _one_large_group(seconds: float) -> Result:
    aggregate = LabelProportions()
    logits, groups, labels, z = _problem(aggregate, 1, 100_000, 2)
    ours, reference = alternate(
        lambda: aggregate.evidence(logits, groups, z), lambda: cross_entropy_with_gradient(logits, labels), seconds
    )
    error = float((aggregate.posterior(logits, groups, z).double().sum(0) - z[0]).abs().max())
    extra = _extra_memory()
    return row(
        ours,
        reference,
        "cross entropy with its gradient",
        ours / reference,
        target="under 1 GiB extra, posterior sums to z within 1e-4",
        met=(extra is None or extra < 1.0) and error < 1e-4,
        note=f"{'unknown' if extra is None else f'{extra:.2f} GiB'} extra, posterior sums to z within {error:.1e}",
    )


def _extra_memory() -> float | None:
    """GiB by which one evidence of a group of 100,000 raises the memory of a fresh process, sampled; None off Linux."""
    if not Path("/proc/self/statm").exists():
        return None
    script = (
        "import threading, torch, unbag\n"
        "torch.set_num_threads(1)\n"
        "logits, groups = torch.randn(100_000, 2), unbag.Groups.from_sizes([100_000])\n"
        "resident = lambda: int(open('/proc/self/statm').read().split()[1]) * 4096\n"
        "unbag.LabelProportions().evidence(logits[:64], unbag.Groups.from_sizes([64]), [[30, 34]])\n"
        "seen, done = [resident()], threading.Event()\n"
        "def watch():\n"
        "    while not done.wait(0.0005): seen.append(resident())\n"
        "watcher = threading.Thread(target=watch); watcher.start()\n"
        "unbag.LabelProportions().evidence(logits, groups, [[40_000, 60_000]])\n"
        "done.set(); watcher.join()\n"
        "print(max(seen) - seen[0])\n"
    )
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    return int(printed) / 2**30


def _saddle_point(seconds: float) -> Result:
    aggregate = LabelProportions(method="saddle_point")
    logits, groups, labels, z = _problem(aggregate, 64, 256, 10)
    ours, reference = alternate(
        lambda: aggregate.evidence(logits, groups, z), lambda: cross_entropy_with_gradient(logits, labels), seconds
    )
    result = no_slower(ours, reference, "cross entropy with its gradient", 40.0)
    errors = ", ".join(
        f"{_saddle_point_error(k, m):.0e} at k={k}, m={m}" for k, m in ((2, 64), (3, 64), (5, 24), (10, 12))
    )
    return {**result, "note": f"mean error of the posterior against exact: {errors}"}


def _saddle_point_error(k: int, size: int) -> float:
    exact, approximate = LabelProportions(method="exact", max_states=10**6), LabelProportions(method="saddle_point")
    logits, groups, _, z = _problem(exact, 16, size, k)
    error = exact.posterior(logits.double(), groups, z) - approximate.posterior(logits.double(), groups, z)
    return float(error.abs().mean())


def _published() -> dict[str, Callable[[Tensor], Tensor]]:
    laplace, normal = Laplace(5.0), Gaussian(5.0)
    return {
        "Laplace noise": lambda counts: noisy(counts + laplace.sample(tuple(counts.shape)), laplace),
        "normal noise": lambda counts: noisy(counts + normal.sample(tuple(counts.shape)), normal),
        "rounded to 5": lambda counts: rounded((counts / 5).round() * 5, to=5),
        "unknown": lambda counts: unknown(*counts.shape),
    }


def _against_counts(publish: Callable[[Tensor], Tensor], n_groups: int, size: int, k: int, seconds: float) -> Result:
    counted, aggregate = LabelProportions(), PublishedCounts()
    logits, groups, _, z = _problem(counted, n_groups, size, k)
    published = publish(z)
    ours, reference = alternate(
        lambda: aggregate.evidence(logits, groups, published), lambda: counted.evidence(logits, groups, z), seconds
    )
    return no_slower(ours, reference, "exact counts of the same groups", 10.0)


def _against_cross_entropy(
    aggregate: Aggregate, size: int, k: int, seconds: float, *, n_groups: int = 128, target: float = 6.0
) -> Result:
    logits, groups, labels, z = _problem(aggregate, n_groups, size, k)
    ours, reference = alternate(
        lambda: aggregate.evidence(logits, groups, z), lambda: cross_entropy_with_gradient(logits, labels), seconds
    )
    return no_slower(ours, reference, "cross entropy with its gradient", target)


def _fold_against_counts(seconds: float) -> Result:
    dedicated = LabelProportions()
    fold = FromFold(0, lambda count, label: count + (label == 1), lambda count: count)
    logits, groups, _, z = _problem(dedicated, 64, 64, 2)
    ours, reference = alternate(
        lambda: fold.evidence(logits, groups, z[:, 1]), lambda: dedicated.evidence(logits, groups, z), seconds
    )
    return no_slower(ours, reference, "the dedicated count kernel", 5.0)
