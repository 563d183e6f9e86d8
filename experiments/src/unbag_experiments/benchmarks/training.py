"""Training steps against plain supervised ones on the same rows and model, and replicas against single models."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

from unbag import Groups
from unbag._kernels.segments import Segments
from unbag.aggregates import Aggregate, LabelProportions, MultipleInstance, PairwiseSimilarity, TripletComparison
from unbag.learners.architectures import MLP, MakeModel
from unbag.training import Observations, Processes, Rows, Settings, train
from unbag_experiments.benchmarks.rows import Result, faster, no_slower
from unbag_experiments.networks import LeNet

Measure = Callable[[], Result]
KINDS: dict[str, tuple[Aggregate, int, int]] = {  # what is observed, members of a group, classes
    "pairs": (PairwiseSimilarity(), 2, 10),
    "triplets": (TripletComparison(), 3, 10),
    "bags of 6": (MultipleInstance(), 6, 2),
    "proportions of 6": (LabelProportions(), 6, 10),
    "proportions of 256": (LabelProportions(), 256, 10),
}


class KnownLabels(Aggregate):
    """All labels of a group: ordinary supervised training, in the same loop."""

    def observe(self, labels: Any, groups: Groups, n_classes: int) -> Tensor:
        """Return the labels of each group's members, (groups, members)."""
        return groups.gather(labels).view(len(groups), -1)

    def check(self, z: Any, groups: Groups, n_classes: int) -> Tensor:
        """Return them as they are."""
        return z

    def capturable(self, size: int, n_classes: int) -> bool:
        """Nothing here asks the device for a number."""
        return True

    def infer(self, log_probs: Tensor, segments: Segments, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log-probability of the labels, and the labels themselves."""
        labels = one_hot(z.view(-1), log_probs.shape[1]).to(log_probs.dtype)
        return (labels * log_probs).sum(1).view(len(segments), -1).sum(1), labels


def run(*, threads: int = 1, quick: bool = False, report: Callable[[str], None] = lambda case: None) -> list[Result]:
    """Time every case; ``quick`` runs each for a moment only. The cases of a GPU run where there is one."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        results = []
        for case, measure in _cases(quick):
            report(case)
            results.append({"case": case, **measure()})
        return results
    finally:
        torch.set_num_threads(before)


def _cases(quick: bool) -> Iterator[tuple[str, Measure]]:
    for kind in ("pairs", "triplets", "bags of 6", "proportions of 6"):
        target = 1.6 if kind.startswith("proportions") else 1.2
        run = partial(_step_on_cpu, kind, target, n_groups=1280 if quick else 6400, n_columns=256)
        yield f"a step of {kind}, MLP 256-300-k, CPU", partial(run, n_runs=1 if quick else 15)
    for n_columns in (20, 64):
        run = partial(_step_on_cpu, "proportions of 256", 2.5, n_groups=128, n_columns=n_columns, batch_size=64)
        case = f"a step of proportions of 256, 64 groups, MLP {n_columns}-300-10, CPU"
        yield case, partial(run, n_runs=1 if quick else 15)
    yield "five replicas, pairs, MLP 64-300-10, CPU", partial(_replicas, "cpu", partial(MLP, 64, 10), 3.0, quick)
    if torch.cuda.is_available():
        for kind in ("pairs", "triplets", "proportions of 6"):
            target = 1.4 if kind.startswith("proportions") else 1.15
            yield f"a step of {kind}, LeNet, GPU", partial(_step_on_gpu, kind, target, quick)
        yield "five replicas, pairs, LeNet, GPU", partial(_replicas, "cuda", partial(LeNet, 10), 2.5, quick)
        yield "captured against plain, pairs, LeNet, GPU", partial(_captured, quick)


def _observed(kind: str, device: str, n_groups: int, shape: tuple[int, ...]) -> tuple[Tensor, Tensor, Observations]:
    """Draw rows, labels and observed groups of them, 45,000 rows as in the paper's images or as many as are needed."""
    aggregate, size, k = KINDS[kind]
    random = torch.Generator().manual_seed(0)
    n_rows = min(45_000, n_groups * size)
    X = torch.randn(n_rows, *shape, generator=random).to(device)
    y = torch.randint(k, (n_rows,), generator=random).to(device)
    groups = Groups.from_tuples(torch.randint(n_rows, (n_groups, size), generator=random).to(device))
    return X, y, Observations(aggregate, groups, aggregate.observe(y, groups, k), k)


def epoch_seconds(
    make: MakeModel,
    X: Rows,
    observed: Observations,
    epochs: int,
    *,
    seeds: int = 1,
    processes: Processes | None = None,
    **how: Any,
) -> float:
    """Return the seconds of an epoch, without the first, which may be captured."""
    settings = Settings(epochs=epochs + 1, **how)
    trained = train(make, X, [observed], settings, seeds=range(seeds), processes=processes)
    return statistics.median(entry["seconds"] for entry in trained.history[1:])


def _step_on_cpu(
    kind: str, target: float, *, n_groups: int, n_columns: int, n_runs: int, batch_size: int = 128
) -> Result:
    k = KINDS[kind][2]
    X, y, observed = _observed(kind, "cpu", n_groups, (n_columns,))
    ours, reference = [], []
    for _ in range(n_runs):  # in turns, so that a busy moment hits both
        ours.append(epoch_seconds(partial(MLP, n_columns, k), X, observed, 1, remember_from=0, batch_size=batch_size))
        reference.append(supervised_epoch(MLP(n_columns, k), X, y, observed.groups, batch_size))
    return no_slower(
        1e3 * statistics.median(ours), 1e3 * statistics.median(reference), "a plain supervised loop, an epoch", target
    )


def supervised_epoch(net: nn.Module, X: Tensor, y: Tensor, groups: Groups, batch_size: int) -> float:
    """Train on the rows of batches of groups with their labels, by hand, and return the seconds."""
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)
    rows = groups.to_tuples()
    order = torch.randperm(len(rows))
    start = time.perf_counter()
    for batch in order.split(batch_size):
        own = rows[batch].flatten()
        loss = cross_entropy(net(X[own]), y[own])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return time.perf_counter() - start


def _step_on_gpu(kind: str, target: float, quick: bool) -> Result:
    n_groups = 12_800 if quick else 64_000
    X, y, observed = _observed(kind, "cuda", n_groups, (1, 28, 28))
    known = Observations(KnownLabels(), observed.groups, KnownLabels().observe(y, observed.groups, 10), 10)
    ours = epoch_seconds(partial(LeNet, 10), X, observed, 3, remember_from=0)
    reference = epoch_seconds(partial(LeNet, 10), X, known, 3)
    return no_slower(1e3 * ours, 1e3 * reference, "known labels in the same captured loop, an epoch", target)


def _replicas(device: str, make: MakeModel, target: float, quick: bool) -> Result:
    on_gpu = device == "cuda"
    n_groups = (12_800 if quick else 64_000) if on_gpu else (1280 if quick else 6400)
    X, _, observed = _observed("pairs", device, n_groups, (1, 28, 28) if on_gpu else (64,))
    five = epoch_seconds(make, X, observed, 3, seeds=5, remember_from=0)
    one = epoch_seconds(make, X, observed, 3, remember_from=0)
    return no_slower(1e3 * five, 1e3 * one, "one replica, an epoch", target)


def _captured(quick: bool) -> Result:
    X, _, observed = _observed("pairs", "cuda", 12_800 if quick else 64_000, (1, 28, 28))
    captured = epoch_seconds(partial(LeNet, 10), X, observed, 3, remember_from=0)
    plain = epoch_seconds(partial(LeNet, 10), X, observed, 1, remember_from=0, capture=False)
    return faster(1e3 * captured, 1e3 * plain, "a plain loop, an epoch", 10.0)
