"""An aggregate that asks another one: both see one row per membership, whatever rows the caller has."""

import pytest
import torch

import unbag
from unbag import Groups
from unbag.aggregates.base import Aggregate


class ByLikelihood(Aggregate):
    """Hands on to another aggregate, whose likelihood it differentiates."""

    def __init__(self, inner):
        self.inner, self.size = inner, inner.size

    def observe(self, labels, groups, n_classes):
        return self.inner.observe(labels, groups, n_classes)

    def check(self, z, groups, n_classes):
        return self.inner.check(z, groups, n_classes)

    def log_prob(self, log_probs, segments, z):
        return self.inner.log_prob(log_probs, segments, z)


class ByInference(ByLikelihood):
    """Hands on to the inference of another aggregate."""

    def infer(self, log_probs, segments, z):
        return self.inner.infer(log_probs, segments, z)


INNER = [unbag.PairwiseSimilarity(), unbag.MultipleInstance(), unbag.LabelProportions(), unbag.Majority()]


@pytest.mark.parametrize("outer", [ByLikelihood, ByInference])
@pytest.mark.parametrize("inner", INNER, ids=repr)
def test_a_wrapper_says_what_it_wraps(inner, outer):
    random = torch.Generator().manual_seed(0)
    size = inner.size or 3
    groups = Groups.from_tuples(torch.randint(7, (5, size), generator=random))  # rows repeat, in no order
    logits = torch.randn(7, 2, generator=random, dtype=torch.float64, requires_grad=True)
    z = inner.observe(torch.randint(2, (7,), generator=random), groups, 2)
    expected, found = inner.evidence(logits, groups, z), outer(inner).evidence(logits, groups, z)
    torch.testing.assert_close(found, expected)
    for evidence in (expected, found):
        evidence.log_likelihood.sum().backward()
    assert logits.grad is not None
    once = torch.autograd.grad(inner.log_likelihood(logits, groups, z).sum(), logits)[0]
    torch.testing.assert_close(logits.grad, 2 * once)


@pytest.mark.parametrize("loss", ["cross_entropy", "gce"])
def test_local_groups_have_the_risk_and_gradient_of_the_whole_table(loss):
    random = torch.Generator().manual_seed(0)
    model, X = torch.nn.Linear(2, 3).double(), torch.randn(40, 2, generator=random, dtype=torch.float64)
    groups = Groups.from_offsets([0, 2, 5, 6], [31, 4, 4, 17, 9, 31])
    counts = unbag.LabelProportions().observe(torch.randint(3, (40,), generator=random), groups, 3)
    risk = unbag.UnbiasedRisk(unbag.LabelProportions(), loss=loss)
    rows, local = groups.local()
    assert rows.tolist() == [4, 9, 17, 31]
    whole, part = risk(model(X), groups, counts), risk(model(X[rows]), local, counts)
    torch.testing.assert_close(part, whole)
    torch.testing.assert_close(torch.autograd.grad(part, model.weight), torch.autograd.grad(whole, model.weight))


def test_local_groups_keep_their_names():
    groups = Groups.from_ids(["b", "a", "b", "c"]).take(torch.tensor([1, 2]))
    rows, local = groups.local()
    assert (rows.tolist(), local.ids, local.n_rows) == ([0, 2, 3], ["b", "c"], 3)
