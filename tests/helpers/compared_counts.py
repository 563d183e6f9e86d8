"""Random groups with published counts, their posteriors by independent references, and a program that compares them.

``python tests/helpers/compared_counts.py --groups 200`` prints a table and appends a line for each group to
``$OUT/counts.jsonl``. Only groups that are approximated are compared, about seven of ten. The reference of a group is
the first of these that is possible:

complete
    the sum over all count vectors but those of negligible probability (1e-9 of the states after each member), which
    needs no approximation where few members are uncertain;
exact
    the sum over all count vectors;
sampler
    a Gibbs sampler of pairs of members with annealed chains, where its standard error is at most 0.02;
probable
    the sum over the most probable count vectors, in two orders of members and classes, which share their method with
    the code that is tested.
"""

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
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
PATHS = 2**13
"""Count vectors that a sum over probable ones keeps."""
MAX_STANDARD_ERROR = 0.02
"""Above it the sampler has not converged."""
CHAINS, SWEEPS, FIRST_SWEEPS, COOLING = 48, 48, 12, 1.5
"""Chains of the sampler, sweeps that count and those before, and the ratio of the temperatures of two sweeps."""
OUTSIDE = 1e8
"""Loss of log-probability for each member by which a count is outside of its bounds."""
TOGETHER = 384
"""Groups that the sampler computes together."""


class Case(NamedTuple):
    """A group of the model or of other labels, and statements about its counts."""

    seed: int
    logits: Tensor  # (m, k)
    labels: Tensor  # (m,), with which the statements agree
    z: Tensor  # (1, k, 6)
    kind: str

    @property
    def log_weights(self) -> Tensor:
        """Log-weights of counts, (k, counts)."""
        groups = Groups.from_sizes([len(self.logits)])
        z = PublishedCounts().check(self.z, groups, self.logits.shape[1])
        return log_weight(z[0, :, None], torch.arange(len(self.logits) + 1))


class Comparison(NamedTuple):
    """The largest difference of a posterior from its reference."""

    seed: int
    reference: str
    kind: str
    error: float
    standard_error: float
    log_likelihood_error: float  # NaN if the reference has no likelihood
    is_possible: bool  # expected counts are in the bounds, the log-likelihood of intervals is at most 0
    seconds: float


Reference = tuple[str, Tensor, Tensor, float]
"""Its name, the posterior with standard errors, (m, k), and the log-likelihood."""


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
    return Case(seed, logits, labels, z[None], kind)


def compare(seed: int, max_states: int = 2**18) -> Comparison | None:
    """Compare the posterior of a random group with its reference; None if it is not approximated."""
    return next(compare_cases([seed], torch.device("cpu"), max_states), None)


def compare_cases(
    seeds: Sequence[int], device: torch.device, max_states: int, end: float = float("inf")
) -> Iterator[Comparison]:
    """Compare the posteriors of random groups with their references, without those that are not approximated.

    No group is begun after a time; groups that need the sampler are computed before it, too.
    """
    aggregate, sampled = PublishedCounts(), []
    for case in map(draw_case, seeds):
        if time.time() > end - 0.1 * len(sampled):
            break
        groups = Groups.from_sizes([len(case.logits)])
        if aggregate.plan(groups, case.z).methods != ["normal"]:
            continue
        start = time.process_time()
        found = aggregate.evidence(case.logits, groups, case.z)
        found = found.posterior, float(found.log_likelihood), time.process_time() - start
        if (reference := sum_exactly(case, device, max_states)) is not None:
            yield _compare(case, found, reference)
        else:
            sampled.append((case, found))
    sampled.sort(key=lambda pair: pair[0].logits.shape)
    for first in range(0, len(sampled), TOGETHER):
        part = sampled[first : first + TOGETHER]
        for (case, found), (mean, error) in zip(part, sample_pairs([case for case, _ in part], device), strict=True):
            reference = "sampler", mean, error, float("nan")
            yield _compare(
                case, found, reference if float(error.max()) <= MAX_STANDARD_ERROR else sum_probable(case, device)
            )


def _compare(case: Case, found: tuple[Tensor, float, float], reference: Reference) -> Comparison:
    (posterior, log_likelihood, seconds), (name, expected, standard_error, expected_log_likelihood) = found, reference
    z = PublishedCounts().check(case.z, Groups.from_sizes([len(case.logits)]), case.logits.shape[1])
    worst, sums = int(((posterior - expected).abs() - 4 * standard_error).argmax()), posterior.sum(0)
    inside = bool(((sums >= z[0, :, LOW] - 2e-3) & (sums <= z[0, :, HIGH] + 2e-3)).all())
    return Comparison(
        case.seed, name, case.kind,
        error=float((posterior - expected).abs().flatten()[worst]),
        standard_error=float(standard_error.flatten()[worst]),
        log_likelihood_error=log_likelihood - expected_log_likelihood,
        is_possible=inside and log_likelihood <= float(case.log_weights.amax(1).sum()) + 1e-9,
        seconds=seconds,
    )  # fmt: skip


def sum_exactly(case: Case, device: torch.device, max_states: int) -> Reference | None:
    """Sum over all count vectors that are not negligible, or over all, if these are few enough."""
    if (summed := _sum_paths(case, None, device, max_sampled=0.0)) is not None:
        return "complete", summed[0], torch.zeros_like(summed[0]), summed[1]
    exact, groups = PublishedCounts("exact", max(max_states, 1)), Groups.from_sizes([len(case.logits)])
    try:
        exact.check(case.z, groups, case.logits.shape[1])
    except ValueError:
        return None
    result = exact.evidence(case.logits, groups, case.z)
    return "exact", result.posterior, torch.zeros_like(result.posterior), float(result.log_likelihood)


def sum_probable(case: Case, device: torch.device) -> Reference:
    """Sum over probable count vectors in two orders of members and classes."""
    random = torch.Generator().manual_seed(case.seed)
    runs = [_sum_paths(case, random, device, max_sampled=2.0) for _ in range(2)]
    (first, log_likelihood), (second, _) = (run for run in runs if run is not None)
    return "probable", (first + second) / 2, (first - second).abs().max().expand_as(first) / 2, log_likelihood


def _sum_paths(
    case: Case, random: torch.Generator | None, device: torch.device, max_sampled: float
) -> tuple[Tensor, float] | None:
    """Sum over at most ``PATHS`` count vectors, with members and classes in a random order if a generator is given."""
    log_probs, log_weights = case.logits.log_softmax(1), case.log_weights
    sizes = log_probs.shape
    members, classes = (torch.randperm(n, generator=random) if random else torch.arange(n) for n in sizes)
    shuffled, weights = log_probs[members][:, classes], log_weights[classes]
    tilt = find_weighted_tilt(shuffled, Segments.from_sizes([len(members)]), weights[None])[0]
    run = sum_paths(shuffled.to(device), weights.to(device), tilt.to(device), PATHS, max_sampled)
    if run is None:
        return None
    posterior = torch.empty_like(log_probs)
    posterior[members[:, None], classes] = run.posterior.cpu()
    return posterior, float(run.log_total)


def sample_pairs(cases: Sequence[Case], device: torch.device) -> list[tuple[Tensor, Tensor]]:
    """Estimate the posteriors of groups by Gibbs sampling of two members at a time, and return their standard errors.

    Chains start from the labels of random members at a high temperature. Probabilities are averaged, not labels. All
    groups are sampled together; the last members of smaller groups do not exist.
    """
    n, m, k = len(cases), max(len(c.logits) for c in cases), max(c.logits.shape[1] for c in cases)
    random = torch.Generator(device).manual_seed(cases[0].seed)
    scores = torch.full((n, m, k), -OUTSIDE, dtype=torch.float64)
    weights = torch.zeros(n, k, m + 3, dtype=torch.float64)
    labels = torch.zeros(n, CHAINS, m, dtype=torch.int64)
    for number, case in enumerate(cases):
        size, n_classes = case.logits.shape
        scores[number, :size, :n_classes] = case.logits.log_softmax(1)
        weights[number, :n_classes] = _extend(case.log_weights, m + 3)
        order = torch.rand(CHAINS, size, generator=torch.Generator().manual_seed(case.seed)).argsort(1)
        labels[number, :, :size] = case.labels[order]
    sizes = torch.tensor([len(case.logits) for case in cases])
    counts = torch.nn.functional.one_hot(labels, k).mul_((torch.arange(m) < sizes[:, None])[:, None, :, None]).sum(2)
    scores, weights, labels, counts, sizes = (t.to(device) for t in (scores, weights, labels, counts, sizes))
    finite = scores.masked_fill(scores <= -OUTSIDE, 0.0)
    temperature = (-finite.amin((1, 2)) / 4).clamp_min(1.0)
    sums, groups = torch.zeros(n, CHAINS, m, k, dtype=torch.float64, device=device), torch.arange(n, device=device)
    classes, remaining = torch.arange(k, device=device), SWEEPS + FIRST_SWEEPS
    while remaining:
        hot = bool((temperature > 1).any())
        # Members in random order, those that do not exist last.
        key = torch.rand(n, m, generator=random, device=device)
        order = key.add_(torch.arange(m, device=device) >= sizes[:, None]).argsort(1)
        pairs = torch.cat([order, order[:, :1]], 1) if m % 2 else order
        for i, j in zip(pairs[:, ::2].T, pairs[:, 1::2].T, strict=True):
            exists = (i < sizes) & (j < sizes) & (i != j)
            old = torch.stack([labels[groups, :, i], labels[groups, :, j]], 2)  # (groups, chains, 2)
            rest = counts.scatter_add(2, old, -exists.long()[:, None, None].expand_as(old))
            none, once, twice = (weights.gather(2, (rest + more).transpose(1, 2)).transpose(1, 2) for more in range(3))
            of_i, of_j = (scores[groups, member] / temperature[:, None] for member in (i, j))  # (groups, k)
            joint = (of_i[:, None] + once - none)[..., None] + (of_j[:, None] + once - none)[:, :, None]
            joint[..., classes, classes] += twice - 2 * once + none
            flat = joint.flatten(2)
            flat = flat.sub_(flat.amax(2, keepdim=True)).exp_()
            flat /= flat.sum(2, keepdim=True)
            if not hot and remaining <= SWEEPS:
                probs = flat.view(n, CHAINS, k, k) * exists[:, None, None, None]
                sums[groups, :, i] += probs.sum(3)
                sums[groups, :, j] += probs.sum(2)
            drawn = torch.rand(n, CHAINS, 1, generator=random, device=device, dtype=torch.float64)
            number = torch.searchsorted(flat.cumsum(2), drawn)[..., 0].clamp_max(k * k - 1)
            new = torch.where(exists[:, None, None], torch.stack([number // k, number % k], 2), old)
            labels[groups, :, i], labels[groups, :, j] = new[..., 0], new[..., 1]
            counts = rest.scatter_add(2, new, exists.long()[:, None, None].expand_as(new))
        temperature = (temperature / COOLING).clamp_min(1.0)
        remaining -= not hot
    means = sums.div_(sums.sum(3, keepdim=True).clamp_min(1e-300)).cpu()
    results = []
    for number, case in enumerate(cases):
        chains = means[number, :, : len(case.logits), : case.logits.shape[1]]
        results.append((chains.mean(0), chains.std(0) / CHAINS**0.5))
    return results


def _extend(log_weights: Tensor, length: int) -> Tensor:
    """Return log-weights for more counts, which fall by ``OUTSIDE`` with each step away from the possible counts."""
    k, n = log_weights.shape
    possible = torch.nn.functional.pad(log_weights, (0, length - n), value=-torch.inf) > -torch.inf
    first, last = possible.int().argmax(1), length - 1 - possible.flip(1).int().argmax(1)
    counts = torch.arange(length)
    inside = counts.expand(k, -1).clamp(first[:, None], last[:, None])
    return log_weights.gather(1, inside) - OUTSIDE * (counts - inside).abs()


def main() -> None:
    """Compare groups and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=200, help="random groups, of which some are not approximated")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--device", default="cpu", help="where references are computed")
    parser.add_argument("--max-states", type=int, default=2**18, help="count vectors of an exact reference")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no further groups are begun after these")
    options = parser.parse_args()
    size = 1024 if options.groups > 10_000 else 32
    seeds = range(options.seed, options.seed + options.groups)
    work = [seeds[first : first + size] for first in range(0, len(seeds), size)]
    run = partial(
        _run, device=options.device, max_states=options.max_states, end=time.time() + options.seconds,
        file=Path(os.environ.get("OUT", ".")) / "counts.jsonl",
    )  # fmt: skip
    with multiprocessing.get_context("spawn").Pool(options.processes, torch.set_num_threads, (1,)) as pool:
        print_table([result for part in pool.imap_unordered(run, work) for result in part])


def _run(seeds: Sequence[int], device: str, max_states: int, end: float, file: Path) -> list[Comparison]:
    """Compare groups until a time, and append a line for each to a file."""
    results = []
    with file.open("a", buffering=1) as lines:
        for result in compare_cases(seeds, torch.device(device), max_states, end):
            results.append(result)
            lines.write(json.dumps(result._asdict()) + "\n")
    return results


def print_table(results: list[Comparison]) -> None:
    """Print a row per reference and kind of statements, and the groups that are beyond the tolerance."""
    print("reference  statements         groups  beyond  largest error  beyond 4 s.e.  log-lik. error  impossible  s")
    for reference in ("complete", "exact", "sampler", "probable"):
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
