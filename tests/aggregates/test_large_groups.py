"""Many members, inferred piece by piece: the same as at once, with tables of a bounded size."""

import re

import pytest
import torch

import unbag
from unbag import Groups, LabelProportions
from unbag._kernels import poisson_binomial
from unbag.aggregates import base
from unbag.training import Observations

SIZES = [3, 1, 9, 2, 2, 2, 4]


def logits_of(n, k, scale=3.0):
    return scale * torch.randn(n, k, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def problem(name):
    """Return an aggregate, logits, groups and what it sees of them; the groups are not in the order of the rows."""
    k = 2 if name == "MultipleInstance" else 3
    aggregate = getattr(unbag, name)()
    random = torch.Generator().manual_seed(1)
    if aggregate.size is None:
        n = sum(SIZES)
        groups = Groups.from_offsets(Groups.from_sizes(SIZES).offsets, torch.randperm(n, generator=random))
    else:
        n = 20
        groups = Groups.from_tuples(torch.randint(n, (11, aggregate.size), generator=random))
    return aggregate, logits_of(n, k), groups, aggregate.observe(torch.randint(k, (n,), generator=random), groups, k)


class Subclass(LabelProportions):
    """A kind of somebody else."""


NAMES = ["LabelProportions", "MultipleInstance", "PairwiseSimilarity", "TripletComparison", "OrdinalRank"]
NAMES += ["OrdinalTriplet", "Majority"]


@pytest.mark.parametrize("name", NAMES)
def test_runs_of_groups_say_the_same_as_all_together(name, monkeypatch):
    aggregate, logits, groups, z = problem(name)
    expected = aggregate.evidence(logits, groups, z)
    monkeypatch.setattr(base, "MOST_MEMBERSHIPS", 5)
    found = aggregate.evidence(logits, groups, z)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_an_impossible_group_in_a_run_touches_no_other(monkeypatch):
    monkeypatch.setattr(base, "MOST_MEMBERSHIPS", 4)
    groups = Groups.from_sizes([2, 2, 2, 2])
    logits = torch.zeros(8, 2)
    logits[4:6, 0] = -torch.inf
    evidence = LabelProportions().evidence(logits, groups, [[1, 1]] * 4)
    assert evidence.log_likelihood.isneginf().tolist() == [False, False, True, False]
    assert evidence.posterior.isnan().any(1).tolist() == [False] * 4 + [True] * 2 + [False] * 2


def test_errors_name_groups_as_the_caller_does(monkeypatch):
    monkeypatch.setattr(base, "MOST_MEMBERSHIPS", 30)
    z = [[10, 10, 10], [0, 15, 15], [10, 10, 10], [10, 10, 10]]
    z[0] = z[2] = [30, 0, 0]
    exact = LabelProportions("exact", max_states=100)
    for groups, name in (
        (Groups.from_sizes([30] * 4), "3"),
        (Groups.from_ids([*"a" * 30, *"b" * 30, *"c" * 30, *"d" * 30]), "3 (id 'd')"),
    ):
        with pytest.raises(ValueError, match=re.escape(f"this does not hold for group {name}: it has")):
            exact.log_likelihood(logits_of(120, 3), groups, z)


@pytest.mark.parametrize("scale", [0.1, 3.0, 100.0])
@pytest.mark.parametrize("sizes", [[400], [3, 400, 2, 500, 500, 1], [600, 600]])
def test_blocks_of_members_say_the_same_as_all_together(sizes, scale, monkeypatch):
    groups = Groups.from_sizes(sizes)
    logits = logits_of(sum(sizes), 2, scale)
    labels = (torch.rand(sum(sizes), generator=torch.Generator().manual_seed(2)) < 0.3).long()
    z = LabelProportions().observe(labels, groups, 2)
    expected = LabelProportions().evidence(logits, groups, z)
    monkeypatch.setattr(poisson_binomial, "CHUNK", 1000)
    largest = []
    product = poisson_binomial._product
    monkeypatch.setattr(poisson_binomial, "_product", lambda table: largest.append(table.numel()) or product(table))
    found = LabelProportions().evidence(logits, groups, z)
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-11)
    assert max(largest) <= 1000


# ---------------------------------------------------------------------------------------------- cheaper to learn by


def observed(sizes, aggregate):
    groups, k = Groups.from_sizes(sizes), 3
    counts = aggregate.observe(torch.arange(sum(sizes)) % k, groups, k)
    return Observations(aggregate, groups, counts, k, weight=0.3, group_weights=[1.0, 2.0][: len(sizes)])


@pytest.mark.parametrize(
    ("sizes", "aggregate", "exact"),
    [
        ([10, 27], LabelProportions(), True),  # 10 ** 3 count vectors of the larger one, no more than are allowed
        ([10, 48], LabelProportions(), False),
        ([10, 48], LabelProportions("exact"), True),
        ([10, 48], LabelProportions(max_states=2**9), False),
        ([10, 48], Subclass(), False),
    ],
    ids=["small", "large", "exact", "less allowed", "subclass"],
)
def test_large_groups_are_learned_by_the_saddle_point(sizes, aggregate, exact):
    seen = observed(sizes, aggregate)
    learned = seen.for_training()
    own = learned.aggregate
    assert (type(own), own.method) == (type(aggregate), aggregate.method)
    assert own.max_states == (aggregate.max_states if aggregate.method == "exact" else min(aggregate.max_states, 2**10))
    assert own.plan(seen.groups, seen.z).exact is exact
    assert (learned.weight, learned.groups, learned.n_classes) == (0.3, seen.groups, 3)
    for one, other in ((learned.z, seen.z), (learned.checked, seen.checked), (learned.weights, seen.weights)):
        assert torch.equal(one, other)
    assert seen.aggregate is aggregate
    logits = logits_of(sum(sizes), 3)
    likelihoods = [one.evidence(logits).log_likelihood for one in (seen, learned)]
    same = (likelihoods[0] == likelihoods[1]).tolist()
    assert same == [True, exact or aggregate.max_states < 2**10]
    torch.testing.assert_close(likelihoods[1], likelihoods[0], rtol=0.01, atol=0)
