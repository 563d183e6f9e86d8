"""The saddle point at any logits: it adds up to the counts, knows what is possible, and says how far it is off."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from unbag import Groups, LabelProportions
from unbag._kernels import blocks, tilts
from unbag._kernels.blocks import can_be_assigned
from unbag.aggregates.count_methods import ERROR_TIMES_SIZE

NEVER = -math.inf
APPROXIMATE = LabelProportions("saddle_point")


def confident_and_wrong(size: int, k: int, logit: float) -> Tensor:
    """Logits with one class far above the others, which is not the one that was counted."""
    random = torch.Generator().manual_seed(0)
    logits = torch.randn(size, k, generator=random, dtype=torch.float64)
    logits[torch.arange(size), torch.randint(k, (size,), generator=random)] += logit
    return logits


def sums(posterior: Tensor, groups: Groups) -> Tensor:
    return torch.stack([part.double().sum(0) for part in posterior.split(groups.sizes.tolist())])


@pytest.mark.parametrize("logit", [2e3, 1e4])
@pytest.mark.parametrize("ruled_out", [False, True])
def test_confident_and_wrong_logits_add_up_to_the_counts(logit: float, ruled_out: bool) -> None:
    logits = confident_and_wrong(400, 20, logit)
    if ruled_out:
        logits[3, 7] = NEVER
    groups, z = Groups.from_sizes([400]), torch.tensor([[381] + [1] * 19])
    found = LabelProportions().evidence(logits, groups, z)
    assert LabelProportions().plan(groups, z).methods == ["saddle_point"]
    assert found.log_likelihood.isfinite().all()
    torch.testing.assert_close(sums(found.posterior, groups), z.double(), rtol=0, atol=4e-7)


@st.composite
def large_groups(draw: st.DrawFn) -> tuple[Tensor, Groups, Tensor]:
    k = draw(st.integers(2, 12))
    sizes = draw(st.lists(st.integers(1, 120), min_size=1, max_size=4))
    random = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    logits = draw(st.sampled_from([0.1, 1.0, 30.0, 1e3, 1e4])) * torch.randn(
        sum(sizes), k, generator=random, dtype=torch.float64
    )
    kind = draw(st.sampled_from(["normal", "signs", "levels"]))
    if kind == "signs":
        logits = 1e4 * logits.sign()
    elif kind == "levels":
        logits = 1e4 * (logits / logits.abs().max()).round()
    logits = logits.clamp(-1e4, 1e4)
    labels = torch.randint(draw(st.integers(1, k)), (sum(sizes),), generator=random)
    ruled_out = torch.rand(logits.shape, generator=random) < draw(st.sampled_from([0.0, 0.01, 0.5]))
    ruled_out[torch.arange(len(labels)), labels] = False  # so that the counts can be made
    groups = Groups.from_sizes(sizes)
    return logits.masked_fill(ruled_out, NEVER), groups, LabelProportions().observe(labels, groups, k)


@settings(max_examples=60)
@given(large_groups())
def test_class_sums_are_the_counts_at_any_logits(problem: tuple[Tensor, Groups, Tensor]) -> None:
    logits, groups, z = problem
    found = APPROXIMATE.evidence(logits, groups, z)
    assert found.log_likelihood.isfinite().all()
    off = (sums(found.posterior, groups) - z).abs().amax(1) / groups.sizes
    assert off.max() < 1e-6
    torch.testing.assert_close(found.posterior.sum(1), torch.ones(len(logits), dtype=torch.float64))


@settings(max_examples=100)
@given(st.data())
def test_what_is_possible_is_told_by_enumeration(data: st.DataObject) -> None:
    k, size = data.draw(st.integers(2, 4)), data.draw(st.integers(1, 5))
    allowed = torch.tensor(
        data.draw(st.lists(st.lists(st.booleans(), min_size=k, max_size=k), min_size=size, max_size=size))
    )
    labels = data.draw(st.lists(st.integers(0, k - 1), min_size=size, max_size=size))
    z = torch.bincount(torch.tensor(labels), minlength=k)
    expected = any(
        all(allowed[member, label] for member, label in enumerate(vector))
        and torch.bincount(torch.tensor(vector), minlength=k).equal(z)
        for vector in product(range(k), repeat=size)
    )
    scores = torch.zeros(k, size).masked_fill(~allowed.t(), NEVER)[None]
    padded = torch.cat([scores, torch.full((1, k, 1), NEVER)], 2)
    weights = torch.cat([torch.ones(1, size), torch.zeros(1, 1)], 1)
    assert can_be_assigned(scores, None, z[None]).tolist() == [expected]
    assert can_be_assigned(padded, weights, z[None]).tolist() == [expected]


@pytest.mark.parametrize("scale", [3e3, 1e4])
def test_likelihood_of_certain_members_is_that_of_the_best_assignment(scale: float) -> None:
    logits = scale * torch.randn(80, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    counts = np.array([30, 20, 10, 10, 5, 5])
    found = APPROXIMATE.evidence(logits, Groups.from_sizes([80]), torch.tensor(counts)[None])
    log_probs, classes = logits.log_softmax(1).numpy(), np.repeat(np.arange(6), counts)
    members, places = linear_sum_assignment(-log_probs[:, classes])
    best = log_probs[members, classes[places]].sum()
    assert abs(found.log_likelihood.item() - best) < 1, f"few others are as likely as the best, of {best:.0f}"
    assert found.posterior[members, classes[places]].mean() > 0.99


@pytest.mark.parametrize("z", [[1] * 17, [1] * 12 + [2] * 3, [40] + [1] * 11], ids=["17 of 17", "15 of 18", "12 of 51"])
def test_many_classes_in_few_members_are_exact(z: list[int]) -> None:
    plan = LabelProportions().plan(Groups.from_sizes([sum(z)]), [z])
    assert plan.exact
    assert plan.expected_error.tolist() == [0]


def test_plan_says_the_error_that_was_measured() -> None:
    groups = Groups.from_sizes([160, 4])
    plan = LabelProportions().plan(groups, [[40] * 4, [1] * 4])
    assert plan.expected_error.tolist() == pytest.approx([ERROR_TIMES_SIZE / 160, 0])
    assert "error of the posterior up to 0.0005 on average" in str(plan)


def test_what_does_not_converge_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tilts, "FEW_STEPS", 1)
    monkeypatch.setattr(tilts, "MANY_STEPS", 1)
    groups = Groups.from_ids(["small"] * 4 + ["sure"] * 400)
    logits = torch.cat([torch.zeros(4, 20).double(), confident_and_wrong(400, 20, 1e4)])
    z = torch.tensor([[4] + [0] * 19, [381] + [1] * 19])
    message = r"the likelihood of group 1 \(id 'sure'\) could not be computed: .*did not converge"
    with pytest.raises(ArithmeticError, match=message):
        LabelProportions().log_likelihood(logits, groups, z)


def test_blocks_and_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    random = torch.Generator().manual_seed(0)
    groups = Groups.from_sizes([40, 45, 300, 47, 41])
    logits = 3 * torch.randn(groups.n_rows, 5, generator=random, dtype=torch.float64)
    z = LabelProportions().observe(torch.randint(5, (groups.n_rows,), generator=random), groups, 5)
    whole = APPROXIMATE.evidence(logits, groups, z)
    monkeypatch.setattr(tilts, "CHUNK", 64)
    monkeypatch.setattr(blocks, "BLOCK", 500)
    pieces = APPROXIMATE.evidence(logits, groups, z)
    torch.testing.assert_close(pieces.log_likelihood, whole.log_likelihood)
    torch.testing.assert_close(pieces.posterior, whole.posterior, rtol=0, atol=1e-8)
