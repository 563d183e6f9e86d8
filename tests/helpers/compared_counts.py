"""Random groups with published counts, their posteriors by independent references, and a program that compares them.

``python tests/helpers/compared_counts.py --groups 20000 --processes 16`` prints a table. The reference is the exact sum
where the number of count vectors permits. Beyond that it is the sum over the 2^13 most probable count vectors, in two
orders of members and classes, if a sample represents at most half of the probability; else a Gibbs sampler of pairs of
members, or the former where this does not converge.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Iterator
from itertools import count, islice
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from unbag import Groups, PublishedCounts, noise, published
from unbag._kernels.count_paths import sum_paths
from unbag._kernels.segments import Segments
from unbag._kernels.tilts import find_weighted_tilt
from unbag.published import HIGH, LOW, log_weight

TOLERANCE = 0.05
"""Largest error of a posterior."""
LOGIT_SCALES = (0.3, 1.0, 3.0, 10.0, 100.0, 1e4)
NOISE_SCALES = (0.3, 0.5, 1.0, 2.0, 5.0)
PATHS, MAX_SAMPLED = 2**13, 0.5
"""Number of probable count vectors, and the share of them that a sample may represent."""
MAX_STANDARD_ERROR = 0.02
"""Above it the sampler has not converged."""
CHAINS, SWEEPS, FIRST_SWEEPS = 64, 60, 20


class Case(NamedTuple):
    """A group of the model or of other labels, and statements about its counts."""

    logits: Tensor  # (m, k)
    labels: Tensor  # (m,), with which the statements agree
    z: Tensor  # (1, k, 6)
    kind: str


class Comparison(NamedTuple):
    """The largest difference of a posterior from its reference."""

    seed: int
    reference: str
    kind: str
    error: float
    standard_error: float
    log_likelihood_error: float  # NaN without an exact reference
    is_possible: bool  # expected counts are in the bounds, the log-likelihood of intervals is at most 0
    seconds: float


def draw_case(seed: int) -> Case:
    """Draw a group of 3 to 20 classes and 10 to 300 members, whose model may contradict its counts."""
    random = np.random.default_rng(seed)
    k, m = int(random.integers(3, 21)), int(10 * 30 ** random.random())
    scale = random.choice(LOGIT_SCALES)
    logits = torch.from_numpy(scale * (random.normal(size=(m, k)) + random.integers(2) * random.normal(size=k)))
    chances = logits.softmax(1).numpy() if random.random() < 2 / 3 else np.tile(random.dirichlet(np.ones(k)), (m, 1))
    labels = torch.tensor([random.choice(k, p=row) for row in chances])
    counts = torch.bincount(labels, minlength=k).double()
    generator = torch.Generator().manual_seed(seed)

    def add_noise(kind: noise.Noise) -> Tensor:
        return published.noisy(counts + kind.sample((k,), generator), kind)

    def round_to(multiple: int) -> Tensor:
        return published.rounded((counts / multiple).round() * multiple, multiple)

    kind = str(random.choice([*noise.KINDS, "rounded", "suppressed", "share", "mixed"]))
    multiple = int(random.choice([3, 5, 10]))
    if kind in noise.KINDS:
        z = add_noise(noise.KINDS[kind](random.choice(NOISE_SCALES)))
    elif kind == "rounded":
        z = round_to(multiple)
    elif kind == "suppressed":
        z = torch.where((counts < multiple)[:, None], published.between(0, multiple - 1), published.exact(counts))
    elif kind == "share":
        z = published.rounded_share((counts / m).mul(100).round() / 100, float(m), 0.01)
    else:
        options = [published.exact(counts), add_noise(noise.Laplace(1.0)), round_to(3), published.unknown(k)]
        z = torch.stack(options)[random.integers(4, size=k), torch.arange(k)]
    return Case(logits, labels, z[None], kind)


def compare(seed: int, max_states: int = 2**18) -> Comparison | None:
    """Compare the posterior of a random group with its reference; None if its counts are exact or not approximated."""
    case, aggregate = draw_case(seed), PublishedCounts()
    groups = Groups.from_sizes([len(case.logits)])
    if aggregate.plan(groups, case.z).methods != ["normal"]:
        return None
    start = time.process_time()
    found = aggregate.evidence(case.logits, groups, case.z)
    seconds = time.process_time() - start
    z = aggregate.check(case.z, groups, case.logits.shape[1])
    log_weights = log_weight(z[:, :, None], torch.arange(len(case.logits) + 1))[0]  # (k, counts)
    reference, expected, standard_error, log_likelihood = _refer(case, z, groups, seed, max_states)
    excess = (found.posterior - expected).abs() - 4 * standard_error
    worst = int(excess.argmax())
    sums = found.posterior.sum(0)
    inside = bool(((sums >= z[0, :, LOW] - 2e-3) & (sums <= z[0, :, HIGH] + 2e-3)).all())
    total = float(found.log_likelihood)
    return Comparison(
        seed, reference, case.kind,
        error=float((found.posterior - expected).abs().flatten()[worst]),
        standard_error=float(standard_error.flatten()[worst]),
        log_likelihood_error=total - log_likelihood,
        is_possible=inside and total <= float(log_weights.amax(1).sum()) + 1e-9,
        seconds=seconds,
    )  # fmt: skip


def _refer(case: Case, z: Tensor, groups: Groups, seed: int, max_states: int) -> tuple[str, Tensor, Tensor, float]:
    """Return the name of the reference, its posterior with standard errors, and its log-likelihood."""
    exact = PublishedCounts("exact", max_states)
    try:
        exact.check(z, groups, z.shape[1])
    except ValueError:
        pass
    else:
        result = exact.evidence(case.logits, groups, z)
        return "exact", result.posterior, torch.zeros_like(result.posterior), float(result.log_likelihood)
    log_probs = case.logits.log_softmax(1)
    log_weights = log_weight(z[:, :, None], torch.arange(len(log_probs) + 1))[0]  # (k, counts)
    if (summed := _sum_probable(log_probs, log_weights, seed, MAX_SAMPLED)) is not None:
        return "probable", *summed
    posterior, standard_error = sample_pairs(log_probs, log_weights, case.labels, seed)
    if float(standard_error.max()) <= MAX_STANDARD_ERROR:
        return "sampler", posterior, standard_error, float("nan")
    summed = _sum_probable(log_probs, log_weights, seed, 2.0)
    assert summed is not None
    return "probable", *summed


def _sum_probable(
    log_probs: Tensor, log_weights: Tensor, seed: int, max_sampled: float
) -> tuple[Tensor, Tensor, float] | None:
    """Sum over probable count vectors in two orders of members and classes."""
    random = torch.Generator().manual_seed(seed)
    runs = []
    for _ in range(2):
        members, classes = (torch.randperm(n, generator=random) for n in log_probs.shape)
        shuffled, weights = log_probs[members][:, classes], log_weights[classes]
        tilt = find_weighted_tilt(shuffled, Segments.from_sizes([len(members)]), weights[None])[0]
        if (run := sum_paths(shuffled, weights, tilt, PATHS, max_sampled)) is None:
            return None
        posterior = torch.empty_like(log_probs)
        posterior[members[:, None], classes] = run.posterior
        runs.append((posterior, float(run.log_total)))
    (first, log_likelihood), (second, _) = runs
    return (first + second) / 2, (first - second).abs().max().expand_as(first) / 2, log_likelihood


def sample_pairs(log_probs: Tensor, log_weights: Tensor, labels: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Estimate the posterior by Gibbs sampling of two members at a time, and return its standard error.

    Chains start from possible counts of random members. Probabilities are averaged, not labels.
    """
    random, (m, k) = np.random.default_rng(seed), log_probs.shape
    scores = log_probs.numpy()
    weights = np.pad(log_weights.numpy(), ((0, 0), (0, 2)), constant_values=-np.inf)
    chains, classes = np.arange(CHAINS), np.arange(k)
    label = random.permuted(np.tile(labels.numpy(), (CHAINS, 1)), axis=1)
    counts = np.tile(np.bincount(labels.numpy(), minlength=k), (CHAINS, 1))
    sums = np.zeros((CHAINS, m, k))
    for sweep in range(FIRST_SWEEPS + SWEEPS):
        for i, j in np.resize(random.permutation(m), (m // 2 + m % 2, 2)):
            if i == j:
                continue
            for member in (i, j):
                counts[chains, label[:, member]] -= 1
            none, once, twice = (weights[classes, counts + n] for n in range(3))  # (chains, k)
            impossible = np.isneginf(none)
            none = np.where(impossible, 0.0, none)
            joint = (once - none)[:, :, None] + (once - none)[:, None, :]
            joint[:, classes, classes] = twice - none
            # A count that is too small as it is needs one of the two members.
            needed = impossible.sum(1)[:, None, None] - (impossible[:, :, None] | impossible[:, None, :])
            needed -= (impossible[:, :, None] & impossible[:, None, :]) * (1 - np.eye(k, dtype=int))
            joint = np.where(needed > 0, -np.inf, joint) + scores[i][:, None] + scores[j]
            joint = np.exp(joint - joint.max((1, 2), keepdims=True))
            joint /= joint.sum((1, 2), keepdims=True)
            if sweep >= FIRST_SWEEPS:
                sums[:, i] += joint.sum(2)
                sums[:, j] += joint.sum(1)
            flat = joint.reshape(CHAINS, -1).cumsum(1)
            drawn = (flat < random.random((CHAINS, 1)) * flat[:, -1:]).sum(1)
            for member, new in ((i, drawn // k), (j, drawn % k)):
                label[:, member] = new
                counts[chains, new] += 1
    means = torch.from_numpy(sums / sums.sum(2, keepdims=True))
    return means.mean(0), means.std(0) / CHAINS**0.5


def main() -> None:
    """Compare groups and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--max-states", type=int, default=2**18, help="count vectors of an exact reference")
    options = parser.parse_args()
    with multiprocessing.get_context("spawn").Pool(options.processes, torch.set_num_threads, (1,)) as pool:
        work = ((seed, options.max_states) for seed in count(options.seed))
        print_table(list(islice(_run(pool, work), options.groups)))
        pool.terminate()


def _compare(arguments: tuple[int, int]) -> Comparison | None:
    return compare(*arguments)


def _run(pool: multiprocessing.pool.Pool, work: Iterator[tuple[int, int]]) -> Iterator[Comparison]:
    while True:  # in parts, because the work has no end
        yield from filter(None, pool.imap_unordered(_compare, list(islice(work, 400)), chunksize=4))


def print_table(results: list[Comparison]) -> None:
    """Print a row per reference and kind of statements, and the groups that are beyond the tolerance."""
    print("reference  statements         groups  beyond  largest error  beyond 4 s.e.  log-lik. error  impossible  s")
    for reference in ("exact", "probable", "sampler"):
        for kind in ("all", *sorted({r.kind for r in results})):
            rows = [r for r in results if r.reference == reference and kind in ("all", r.kind)]
            if rows:
                excess = [r.error - 4 * r.standard_error for r in rows]
                print(
                    f"{reference:10} {kind:18} {len(rows):6} {sum(e > TOLERANCE for e in excess):7} "
                    f"{max(r.error for r in rows):14.4f} {max(excess):14.4f} "
                    f"{np.mean([abs(r.log_likelihood_error) for r in rows]):15.4f} "
                    f"{sum(not r.is_possible for r in rows):11} {sum(r.seconds for r in rows) / len(rows):.3f}"
                )
    for r in results:
        if r.error - 4 * r.standard_error > TOLERANCE or not r.is_possible:
            print(r)


if __name__ == "__main__":
    main()
