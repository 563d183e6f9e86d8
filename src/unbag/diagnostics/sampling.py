"""Signs that groups were selected by their observation, or that a model does not use some classes."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from unbag._utils.findings import Finding
from unbag._utils.problems import list_some
from unbag.aggregates import Aggregate
from unbag.aggregates.observations import Observations
from unbag.data.groups import Groups
from unbag.data.weights import is_uniform_sampling
from unbag.diagnostics.registry import Context, register_check
from unbag.learners.constant import fit_null_model

MAX_ERRORS, MAX_POSSIBLE_ERRORS = 4.0, 6.0  # standard errors of frequencies that are unlikely, and impossible
# Classes are of similar size if at least this share of them would be as good in their place if all were equal: the
# inverse of the sum of squared shares, over the number of classes. Sizes by Zipf's law are.
SIMILAR_SIZE, N_DISTRIBUTIONS = 0.5, 300
MIN_ODDS_RATIO = 2.0  # odds of an observation that differ by less may come from a model that is a little off
UNUSED = 0.05  # a class with less than this part of its share of the rows is not used
MAX_ROWS = 10_000

ADVICE = (
    "if groups were selected by their observation, pass sampling= with the rates at which those with each observation "
    "were kept, or the share of 1 among random ones; sampling={0: 1, 1: 1} says that they were not"
)


def find_unlikely_answers(s: Observations) -> Iterator[Finding]:
    """Yield a finding if observations are more or less frequent than in groups of random rows."""
    if not _compares_rows(s):
        return
    share, n = _share_of_positive(s)
    plausible = _expect_of_random(s.aggregate, _draw_distributions(s.n_classes))
    likely = min(max(share, float(plausible.min())), float(plausible.max()))
    nearest = float(_expect_of_random(s.aggregate, fit_null_model([s])[0][None])[0])
    impossible = _count_errors(share, nearest, n) > MAX_POSSIBLE_ERRORS
    if impossible or _count_errors(share, likely, n) > MAX_ERRORS:
        bound = f", and those from any classes whatever {'at least' if share < nearest else 'at most'} {nearest:.1%}"
        yield Finding(
            "unlikely_answers",
            f"{_describe_share(s, share)}, where rows drawn at random from {s.n_classes} classes of similar size would "
            f"have {float(plausible[0]):.1%}{bound if impossible else ''}; {ADVICE}",
            fatal=impossible and 0 < share < 1,  # if all observations are the same, no rate could undo it
        )


@register_check("fit")
def check_unexpected_answers(context: Context) -> Iterator[Finding]:
    """Yield a finding if a model expects another share of observations in groups of random rows than was observed."""
    sample = context.sample_log_probs
    for number, s in enumerate(context.sets):
        if sample is None or not _compares_rows(s) or is_uniform_sampling(context.sampling_of(number)):
            continue
        random = torch.Generator().manual_seed(0)
        tuples = torch.stack([torch.randperm(len(sample), generator=random) for _ in range(int(s.aggregate.size or 0))])
        drawn = Groups.from_tuples(tuples.T)
        expected = float(s.aggregate.expect(sample[drawn.members], drawn).mean())
        share, n = _share_of_positive(s)
        odds = share * (1 - expected), expected * (1 - share)
        if _count_errors(share, expected, n) > MAX_ERRORS and max(odds) > MIN_ODDS_RATIO * min(odds):
            yield Finding(
                "unexpected_answers",
                f"{_describe_share(s, share)}, where the model expects it of {expected:.1%} of those whose rows are "
                f"drawn at random; {ADVICE}",
            )


@register_check("fit")
def check_unused_classes(context: Context) -> Iterator[Finding]:
    """Yield the classes that a model hardly expects of any row, if only comparisons show how frequent they are."""
    sample, k = context.sample_log_probs, len(context.classes)
    if sample is None or not all(map(_compares_rows, context.sets)):
        return
    used = sample.exp().mean(0)
    due = torch.full((k,), 1 / k, dtype=torch.float64) if context.class_shares is None else context.class_shares
    unused = (used < UNUSED * due).nonzero().flatten().tolist()
    if unused:
        rarest = int((used / due).argmin())
        known = "of classes of similar size" if context.class_shares is None else "known"
        yield Finding(
            "unused_classes",
            f"the model uses {k - len(unused)} of {k} classes: it expects "
            f"{list_some((context.classes[n] for n in unused), form=str)} of hardly any row (class "
            f"{context.classes[rarest]} of {used[rarest]:.2%}, where the share {known} is {due[rarest]:.1%}); "
            "pass class_shares= or a few labelled rows; or groups were selected by their observation, which sampling= "
            "undoes",
        )


def choose_rows(sets: Sequence[Observations]) -> Tensor:
    """Return random rows of groups, whose predictions the checks of a fit receive."""
    rows = torch.cat([s.groups.members for s in sets]).unique()
    return rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))[:MAX_ROWS].to(rows.device)]


def _describe_share(s: Observations, share: float) -> str:
    return f"{share:.1%} of {len(s.groups):,} {s.aggregate.wording.groups} have the observation 1"


def _compares_rows(s: Observations) -> bool:
    """Return whether observations are yes or no about a fixed number of rows."""
    return s.aggregate.size is not None and s.z.ndim == 1 and s.aggregate.is_binary(s.groups, s.n_classes)


def _share_of_positive(s: Observations) -> tuple[float, float]:
    """Return the weighted share of the observation 1, and the number of independent observations behind it.

    Groups with common rows are not independent: there are as many as one of their places has different rows.
    """
    weights, n = s.weights, len(s.groups)
    share = float(weights @ s.z.double() / weights.sum())
    different = [len(place.unique()) for place in s.groups.members.view(n, -1).unbind(1)]
    return share, min(float(weights.sum() ** 2 / weights.square().sum()), *different)


def _count_errors(share: float, expected: float, n: float) -> float:
    """Return the number of standard errors between a share among n and the expected one."""
    variance = max(share * (1 - share), expected * (1 - expected)) / n
    return 0.0 if share == expected else abs(share - expected) / max(variance, 1e-300) ** 0.5


def _expect_of_random(aggregate: Aggregate, shares: Tensor) -> Tensor:
    """Return the probability of the observation 1 if rows are of classes with these shares, ``(distributions, k)``."""
    size = int(aggregate.size or 0)
    groups = Groups.from_sizes([size] * len(shares))
    return aggregate.expect(shares.clamp_min(1e-12).log().repeat_interleave(size, 0), groups)


def _draw_distributions(n_classes: int) -> Tensor:
    """Return shares of classes of similar size, all the same first: ``(distributions, k)``."""
    random = torch.Generator().manual_seed(0)
    spread = torch.linspace(0, 4, N_DISTRIBUTIONS, dtype=torch.float64)[:, None]
    shares = (spread * torch.randn(N_DISTRIBUTIONS, n_classes, generator=random, dtype=torch.float64)).softmax(1)
    return shares[shares.square().sum(1) * n_classes * SIMILAR_SIZE <= 1 + 1e-9]
