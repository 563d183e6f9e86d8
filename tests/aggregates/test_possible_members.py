"""Rows that may be members of a group: against enumeration of who was counted, and what is refused."""

import pytest
import torch

import unbag
from unbag import Groups, LabelProportions, PossibleMembers, noise, published
from unbag.testing import check_aggregate


@pytest.mark.parametrize(("n_classes", "sizes"), [(2, (3, 4)), (3, (3,))])
def test_it_passes_the_checks_of_every_aggregate(n_classes, sizes):
    checks = ("observations", "likelihood", "posterior", "gradient", "extremes")
    check_aggregate(PossibleMembers(chance=0.7), n_classes=n_classes, sizes=sizes, checks=checks)


@pytest.mark.parametrize("stated", [published.exact([[1, 1]]), published.noisy([[1.3, 0.4]], noise.Laplace(1.0))])
def test_chances_of_their_own_are_summed_over(stated):
    aggregate, groups = PossibleMembers(), Groups.from_sizes([4])
    logits = torch.randn(4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    z = aggregate.with_chances(stated, groups, [0.9, 0.2, 0.5, 1.0])
    every = torch.cartesian_prod(*[torch.arange(2)] * 4)
    prior = logits.log_softmax(1)[torch.arange(4), every].sum(1)
    joint = prior + torch.cat([aggregate.log_prob_given_labels(one, groups, z, 2) for one in every])
    found = aggregate.evidence(logits, groups, z)
    torch.testing.assert_close(found.log_likelihood[0], joint.logsumexp(0))
    expected = ((joint - joint.logsumexp(0)).exp()[:, None] * every).sum(0)
    torch.testing.assert_close(found.posterior[:, 1], expected)


def test_members_that_are_certain_are_counted_as_ever():
    aggregate, groups = PossibleMembers(), Groups.from_sizes([3, 2])
    logits, counts = torch.randn(5, 3), [[1, 2, 0], [0, 1, 1]]
    found = aggregate.evidence(logits, groups, aggregate.with_chances(counts, groups, torch.ones(5)))
    plain = LabelProportions().evidence(logits, groups, counts)
    torch.testing.assert_close(found.log_likelihood, plain.log_likelihood)
    torch.testing.assert_close(found.posterior, plain.posterior)


def test_a_classifier_learns_from_possible_members_and_is_saved(tmp_path):
    random = torch.Generator().manual_seed(0)
    X = torch.randn(400, 2, generator=random)
    aggregate, groups = PossibleMembers(chance=0.8), Groups.from_sizes([4] * 100)
    z = aggregate.observe((X[:, 0] > 0).long(), groups, 2)
    settings = {"n_classes": 2, "random_state": 0}
    clf = unbag.AggregateClassifier(aggregate, "linear", **settings).fit(X.numpy(), z, groups=groups)
    assert clf.score(X.numpy(), (X[:, 0] > 0).long().numpy()) > 0.9
    clf.save(tmp_path / "model")
    assert repr(unbag.load(tmp_path / "model").aggregate_) == repr(aggregate)


def test_what_is_refused():
    aggregate, groups = PossibleMembers(), Groups.from_sizes([2, 1])
    with pytest.raises(ValueError, match="one number for each of 3 memberships"):
        aggregate.with_chances([[1, 0], [1, 0]], groups, [0.5, 0.5])
    with pytest.raises(ValueError, match=r"probabilities, from 0 to 1; this does not hold for group 1: got 1\.5"):
        aggregate.check(aggregate.with_chances([[1, 0], [1, 0]], groups, [0.5, 0.5, 1.5]), groups, 2)
    with pytest.raises(ValueError, match="possible in a group of its size"):
        aggregate.check(aggregate.with_chances([[1, 0], [3, 0]], groups, [0.5, 0.5, 0.5]), groups, 2)
    with pytest.raises(ValueError, match="a result of with_chances"):
        aggregate.check([[1, 0], [1, 0]], groups, 2)
    with pytest.raises(ValueError, match="chance must be a number above 0"):
        PossibleMembers(chance=0.0)
