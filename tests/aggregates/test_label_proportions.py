"""Counts per class: every method against enumeration where that reaches, and against each other beyond."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import counts, enumerate_groups
from scipy.optimize import brentq
from scipy.signal import fftconvolve
from scipy.special import expit, logit
from torch import Tensor

import unbag
from unbag import Groups, LabelProportions
from unbag._kernels import poisson_binomial
from unbag._kernels.count_states import weigh_exactly
from unbag._kernels.logspace import A_FEW
from unbag._kernels.tilts import find_tilt, tilted_probs
from unbag.aggregates import label_proportions

NEVER = -math.inf
EXTREMES = [-1e4, -200.0, 200.0, 1e4, NEVER]


def problem(sizes: list[int], k: int, scale: float = 1.0, seed: int = 0) -> tuple[Tensor, Groups, Tensor]:
    """Random logits in float64, and counts of labels that do not follow them."""
    random = torch.Generator().manual_seed(seed)
    groups = Groups.from_sizes(sizes)
    logits = scale * torch.randn(sum(sizes), k, generator=random, dtype=torch.float64)
    labels = torch.randint(k, (sum(sizes),), generator=random)
    return logits, groups, LabelProportions().observe(labels, groups, k)


def likely_problem(sizes: list[int], k: int, scale: float = 1.0, seed: int = 0) -> tuple[Tensor, Groups, Tensor]:
    """The same with labels drawn from the logits."""
    logits, groups, _ = problem(sizes, k, scale, seed)
    random = torch.Generator().manual_seed(seed + 1)
    labels = torch.multinomial(logits.softmax(-1), 1, generator=random).flatten()
    return logits, groups, LabelProportions().observe(labels, groups, k)


def close(found: Any, expected: Any, tolerance: float = 1e-10) -> None:
    """Compare tensors, or likelihoods and posteriors."""
    if isinstance(found, tuple):
        close(found[0], expected[0], tolerance)
        found, expected = found[1], expected[1]
    torch.testing.assert_close(found, expected.to(found.dtype), rtol=tolerance, atol=tolerance, equal_nan=True)


@settings(max_examples=60)
@given(data=st.data())
@pytest.mark.parametrize("most_places", [0, 10], ids=["count states", "places"])
def test_evidence_is_that_of_enumeration(most_places: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(2, 5), "classes")
    sizes = data.draw(st.lists(st.integers(1, 6 if k < 4 else 4), min_size=1, max_size=3), "sizes")
    scale = data.draw(st.sampled_from([0.1, 1.0, 10.0, 50.0]))
    entry = st.floats(-scale, scale) | st.sampled_from(EXTREMES)
    row = st.lists(entry, min_size=k, max_size=k).filter(lambda entries: max(entries) > NEVER)
    rows = data.draw(st.lists(row, min_size=sum(sizes), max_size=sum(sizes)), "logits")
    labels = data.draw(st.lists(st.integers(0, k - 1), min_size=sum(sizes), max_size=sum(sizes)), "labels")
    groups = Groups.from_sizes(sizes)
    z = LabelProportions().observe(labels, groups, k)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(label_proportions, "LARGEST_PERMANENT", most_places)
        found = LabelProportions().evidence(torch.tensor(rows, dtype=torch.float64), groups, z)
    close(found, enumerate_groups(counts(k), torch.tensor(rows, dtype=torch.float64), groups, map(tuple, z.tolist())))


@pytest.mark.parametrize("scale", [1.0, 30.0, 1e4])
def test_methods_agree_where_several_are_exact(scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    logits, groups, z = problem([10] * 8 + [7] * 4 + [3], 4, scale)
    by_places = LabelProportions().evidence(logits, groups, z)
    monkeypatch.setattr(label_proportions, "LARGEST_PERMANENT", 0)
    by_states = LabelProportions().evidence(logits, groups, z)
    assert set(LabelProportions().plan(groups, z).methods) <= {"count_states", "two_classes"}
    close(by_places, by_states, 1e-9)


def test_two_classes_that_occur_among_many_are_exact() -> None:
    logits, groups, _ = problem([300, 40], 6)
    z = torch.tensor([[0, 200, 0, 100, 0, 0], [0, 0, 0, 0, 0, 40]])
    assert LabelProportions().plan(groups, z).methods == ["two_classes", "two_classes"]
    found = LabelProportions().evidence(logits, groups, z)
    expected = label_proportions.infer_weighted_states(
        logits.log_softmax(-1),
        groups.segments,
        torch.tensor([[1, 3], [5, 0]]),
        weigh_exactly(torch.tensor([[200, 100], [40, 0]])),
        (200, 100),
    )
    close(found, expected, 1e-9)
    assert found.posterior[300:, 5].eq(1).all()


@pytest.mark.parametrize("against", [False, True], ids=["likely", "unlikely"])
def test_hundred_thousand_members_of_two_classes(against: bool) -> None:
    size = 100_000
    logits, groups, z = likely_problem([size], 2)
    z = z.flip(1) // 2 * 2 + torch.tensor([[0, size % 2]]) if against else z
    z[0, 1] = size - z[0, 0]
    found = LabelProportions().evidence(logits.float(), groups, z)
    close(found.posterior.double().sum(0), z[0].double(), 1e-7)
    # Blocks of members whose counts are then added up: the same distribution by plain convolution.
    yes = logits.softmax(-1)[:, 1].numpy()
    expected = poisson_binomial_by_convolution(yes, int(z[0, 1]))
    assert math.isclose(float(found.log_likelihood), expected, rel_tol=1e-5)


def poisson_binomial_by_convolution(chances: object, z: int) -> float:
    """Log-probability of z, tilted to where numbers are large, by convolution of halves."""
    odds = logit(np.asarray(chances))
    tilt = brentq(lambda shift: expit(odds + shift).sum() - z, -30, 30)
    parts = [np.array([1 - p, p]) for p in expit(odds + tilt)]
    while len(parts) > 1:
        longer = len(parts[0]) > 64
        join = fftconvolve if longer else np.convolve
        parts = [join(*parts[i : i + 2]) if i + 1 < len(parts) else parts[i] for i in range(0, len(parts), 2)]
    scale = np.logaddexp(0, odds + tilt).sum() - np.logaddexp(0, odds).sum()
    return float(np.log(parts[0][z]) + scale - tilt * z)


@pytest.mark.parametrize(
    ("k", "size", "of_posterior", "of_likelihood"),
    [(2, 64, 5e-5, 0.01), (3, 64, 7e-5, 0.02), (3, 32, 5e-4, 0.04), (5, 24, 1e-3, 0.15), (10, 10, 5e-3, 0.2)],
)
def test_saddle_point_has_the_stated_error(k: int, size: int, of_posterior: float, of_likelihood: float) -> None:
    logits, groups, z = likely_problem([size] * 20, k)
    exact = LabelProportions("exact", max_states=10**6).evidence(logits, groups, z)
    found = LabelProportions("saddle_point").evidence(logits, groups, z)
    assert (found.posterior - exact.posterior).abs().mean() < of_posterior
    assert (found.log_likelihood - exact.log_likelihood).abs().mean() < of_likelihood
    assert (found.posterior - exact.posterior).abs().max() > 1e-12, "the approximation was not what ran"


def test_second_order_correction_pays() -> None:
    logits, groups, z = likely_problem([64] * 20, 3)
    exact = LabelProportions("exact").posterior(logits, groups, z)
    found = LabelProportions("saddle_point").posterior(logits, groups, z)
    scores = logits.log_softmax(-1).view(20, 64, 3).transpose(1, 2)  # (groups, classes, members)
    _, tilted = tilted_probs(scores, find_tilt(scores, None, z.double()).shift)
    first_order = tilted.transpose(1, 2).flatten(0, 1)
    assert (found - exact).abs().mean() < 0.1 * (first_order - exact).abs().mean()


def test_saddle_point_knows_certainty() -> None:
    """A confident and right classifier is certain of its counts; a normal density would say more than certain."""
    labels = torch.arange(5).repeat(20)
    groups = Groups.from_sizes([100])
    logits = 50 * torch.nn.functional.one_hot(labels, 5).double()
    z = LabelProportions().observe(labels, groups, 5)
    found = LabelProportions("saddle_point").evidence(logits, groups, z)
    assert -1e-9 < float(found.log_likelihood) <= 0
    close(found.posterior, torch.nn.functional.one_hot(labels, 5).double(), 1e-9)


@pytest.mark.parametrize("sizes", [[300, 200, 100], [128] * 3], ids=["unequal", "equal"])
def test_saddle_point_adds_up_and_takes_any_sizes(sizes: list[int]) -> None:
    logits, groups, z = problem(sizes, 6, 2.0)
    found = LabelProportions("saddle_point").evidence(logits, groups, z)
    sums = torch.stack([part.sum(0) for part in found.posterior.split(sizes)])
    close(sums, z.double(), 1e-7)
    close(found.posterior.sum(1), torch.ones(sum(sizes)))
    assert found.posterior.min() >= 0
    alone = [
        LabelProportions("saddle_point").log_likelihood(part, Groups.from_sizes([size]), one[None])
        for part, size, one in zip(logits.split(sizes), sizes, z, strict=True)
    ]
    close(found.log_likelihood, torch.cat(alone), 1e-8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("extreme", [200.0, 1e4])
@pytest.mark.parametrize("agree", [True, False], ids=["agree", "against"])
@pytest.mark.parametrize(("k", "size"), [(k, size) for k in (2, 10) for size in (1, 2, 1000, 100_000)])
def test_extremes_are_finite(k: int, size: int, agree: bool, extreme: float, dtype: torch.dtype) -> None:
    labels = torch.arange(size) % k
    groups = Groups.from_sizes([size, max(1, size // 2)])
    both = torch.cat([labels, labels[: max(1, size // 2)]])
    signs = 2.0 * torch.nn.functional.one_hot(both if agree else (both + 1) % k, k) - 1
    logits = (extreme * signs).to(dtype).requires_grad_()
    z = LabelProportions().observe(both if agree else both // 2 % k, groups, k)
    found = LabelProportions().evidence(logits, groups, z)
    found.log_likelihood.sum().backward()
    assert found.log_likelihood.isfinite().all()
    assert found.posterior.isfinite().all()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    sums = torch.stack([part.double().sum(0) for part in found.posterior.split(groups.sizes.tolist())])
    close(sums, z.double(), 1e-4)


def test_plan_says_what_runs() -> None:
    _, groups, _ = problem([4, 40, 40, 40], 3)
    z = [[2, 1, 1], [40, 0, 0], [10, 10, 20], [13, 13, 14]]
    plan = LabelProportions(max_states=2900).plan(groups, z)
    assert plan.methods == ["permanents", "two_classes", "count_states", "saddle_point"]
    assert not plan.exact
    assert str(plan) == (
        "count_states for 1 group, permanents for 1 group, saddle_point for 1 group, two_classes for 1 group; "
        "approximate: saddle_point, with an error of the posterior up to 0.002 on average"
    )
    assert LabelProportions().plan(groups, z).exact
    assert LabelProportions("saddle_point").plan(groups, z).methods == ["saddle_point"] * 4
    assert LabelProportions(max_states=1).plan(groups, z).methods[0] == "saddle_point"
    assert LabelProportions(max_states=12).plan(groups, z).methods[0] == "permanents"


def test_exact_refuses_to_approximate() -> None:
    logits, groups, z = problem([4, 90], 3)
    with pytest.raises(ValueError, match=r"at most max_states=1000 .* not hold for group 1: it has"):
        LabelProportions("exact", max_states=1000).evidence(logits, groups, z)


def test_counts_and_proportions_are_read_alike() -> None:
    logits, groups, z = problem([4, 6], 3)
    whole = LabelProportions().log_likelihood(logits, groups, z)
    proportions = z / groups.sizes[:, None]
    for other in (z.double(), proportions, proportions.float(), (proportions * 1e4).round() / 1e4, z.tolist(), z.int()):
        close(LabelProportions().log_likelihood(logits, groups, other), whole)


@pytest.mark.parametrize("sizes", [[4, 4], [4, 6], [30, 40]])
def test_tables_may_lie_in_memory_as_they_like(sizes: list[int]) -> None:
    logits, groups, z = problem(sizes, 3)
    whole = LabelProportions().evidence(logits, groups, z)
    sideways = LabelProportions().evidence(logits.t().contiguous().t(), groups, z.t().contiguous().t())
    close(sideways, whole)
    every_second = LabelProportions().log_likelihood(
        logits.repeat_interleave(2, 0)[::2], groups, z.double().repeat_interleave(2, 1)[:, ::2]
    )
    close(every_second, whole.log_likelihood)


@pytest.mark.parametrize("k", [A_FEW, A_FEW + 1])
def test_many_classes_lie_in_memory_otherwise(k: int) -> None:
    logits, groups, z = problem([3, 3], k)
    evidence = LabelProportions().evidence(logits, groups, z)
    close(evidence, enumerate_groups(counts(k), logits, groups, map(tuple, z.tolist())))
    log_probs = logits.log_softmax(1)
    for own in (log_probs, log_probs.t().contiguous().t()):
        close(LabelProportions().infer(own, groups.segments, z)[1], evidence.posterior)


def test_impossible_counts_in_large_groups() -> None:
    logits = torch.zeros(40, 3)
    logits[:30, 2] = NEVER
    groups = Groups.from_sizes([20, 20])
    for method in ("auto", "saddle_point"):
        found = LabelProportions(method).evidence(logits, groups, [[10, 4, 6], [10, 9, 1]])
        assert found.log_likelihood[0] == NEVER
        assert found.posterior[:20].isnan().all()
        assert found.log_likelihood[1].isfinite()
        assert found.posterior[20:].isfinite().all()
        with pytest.raises(unbag.ImpossibleObservation, match="group 0"):
            LabelProportions(method).log_likelihood(logits, groups, [[10, 4, 6], [10, 9, 1]], impossible="raise")


@pytest.mark.parametrize("aggregate", [LabelProportions(), unbag.CountOf(1)], ids=str)
def test_gradient_of_a_large_group_keeps_the_digits_of_float32(aggregate: unbag.aggregates.Aggregate) -> None:
    """Posterior and softmax hardly differ there; their difference must not be that of two rounded numbers."""
    logits, groups, z = likely_problem([20_000], 2)
    rounded = logits.float()
    gradients = []
    for leaf in (rounded.double().requires_grad_(), rounded.clone().requires_grad_()):
        aggregate.log_likelihood(leaf, groups, z if isinstance(aggregate, LabelProportions) else z[:, 1]).backward()
        assert leaf.grad is not None
        gradients.append(leaf.grad.double())
    exact, found = gradients
    assert (found - exact).norm() < 2e-7 * exact.norm()


@settings(max_examples=40)
@given(
    st.lists(st.integers(1, 30) | st.just(200), min_size=1, max_size=6),
    st.sampled_from([0.1, 1.0, 10.0, 200.0, 1e4]),
    st.integers(0, 99),
)
def test_two_classes_of_unequal_groups_agree_with_count_states(sizes: list[int], scale: float, seed: int) -> None:
    logits, groups, z = problem(sizes, 2, scale, seed)
    log_probs = logits.log_softmax(-1)
    columns = torch.tensor([[0, 1]]).expand(len(z), -1)
    expected = label_proportions.infer_weighted_states(
        log_probs, groups.segments, columns, weigh_exactly(z), tuple(z.amax(0).tolist())
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(poisson_binomial, "CHUNK", 2 ** (seed % 12))
        found = LabelProportions().evidence(logits, groups, z)
    close(found, expected, 1e-9)


@pytest.mark.parametrize("sizes", [[1, 1, 1], [1, 20, 1, 7]])
def test_the_smooth_likelihood_of_a_single_label_is_exact(sizes: list[int]) -> None:
    logits, groups, z = problem(sizes, 3)
    logits.requires_grad_()
    smooth = LabelProportions().smooth_log_likelihood(logits, groups.segments, z)
    exact = LabelProportions().log_likelihood(logits, groups, z)
    single = torch.tensor(sizes) == 1
    torch.testing.assert_close(smooth[single], exact[single])
    found, expected = (torch.autograd.grad(values[single].sum(), logits)[0] for values in (smooth, exact))
    torch.testing.assert_close(found, expected)
