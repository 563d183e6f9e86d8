"""Published counts: every method against enumeration where that reaches, and against each other beyond."""

import math
from typing import Any

import pytest
import torch
from compared_counts import TOLERANCE, compare
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

import unbag
from unbag import Groups, LabelProportions, PublishedCounts, noise, published
from unbag._kernels import count_messages
from unbag._kernels.count_paths import sum_paths
from unbag._kernels.tilts import find_weighted_tilt
from unbag.aggregates import published_counts
from unbag.published import HIGH, LOW, NOISE, SCALE, VALUE, log_weight
from unbag.testing import check_aggregate

NEVER = -math.inf
SCALES = [1e-3, 0.3, 2.0, 30.0, 1e6]


def enumerate_group(logits: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """Likelihood and posterior of one group, by all label vectors."""
    m, k = logits.shape
    labels = torch.cartesian_prod(*[torch.arange(k)] * m).view(-1, m)
    counts = torch.nn.functional.one_hot(labels, k).sum(1)
    joint = logits.log_softmax(-1)[torch.arange(m), labels].sum(1) + log_weight(z, counts).sum(1)
    total = joint.logsumexp(0)
    shares = (joint - total).exp()
    return total, torch.einsum("v,vmk->mk", shares, torch.nn.functional.one_hot(labels, k).double())


def close(found: Any, expected: Any, tolerance: float = 1e-10) -> None:
    """Compare tensors, or likelihoods and posteriors."""
    if isinstance(found, tuple):
        close(found[0], expected[0], tolerance)
        found, expected = found[1], expected[1]
    torch.testing.assert_close(found, expected.to(found.dtype), rtol=tolerance, atol=tolerance, equal_nan=True)


def problem(n: int, m: int, k: int, scale: float = 1.0, seed: int = 0) -> tuple[Tensor, Groups, Tensor]:
    random = torch.Generator().manual_seed(seed)
    groups = Groups.from_sizes([m] * n)
    logits = scale * torch.randn(n * m, k, generator=random, dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(-1), 1, generator=random).flatten()
    return logits, groups, LabelProportions().observe(labels, groups, k)


@st.composite
def statements(draw: st.DrawFn, count: int, size: int) -> Tensor:
    kind = draw(st.sampled_from(["exact", "between", "unknown", *noise.KINDS]))
    if kind == "exact":
        return published.exact(count)
    if kind == "unknown":
        return published.unknown()
    if kind == "between":
        return published.between(draw(st.integers(-2, count)), draw(st.integers(count, size + 2)))
    made = noise.KINDS[kind](draw(st.sampled_from(SCALES)))
    value = count + float(made.sample((), torch.Generator().manual_seed(draw(st.integers(0, 99)))))
    return published.noisy(value, made)


@settings(max_examples=80)
@given(data=st.data())
@pytest.mark.parametrize("how", ["auto", "states"])
def test_evidence_is_that_of_enumeration(how: str, data: st.DataObject) -> None:
    k = data.draw(st.integers(2, 4), "classes")
    sizes = data.draw(st.lists(st.integers(1, 6 if k < 4 else 5), min_size=1, max_size=3), "sizes")
    scale = data.draw(st.sampled_from([0.1, 1.0, 10.0, 200.0, 1e4]))
    random = torch.Generator().manual_seed(data.draw(st.integers(0, 10**6), "seed"))
    logits = scale * torch.randn(sum(sizes), k, generator=random, dtype=torch.float64)
    labels = torch.randint(k, (sum(sizes),), generator=random)
    groups = Groups.from_sizes(sizes)
    counts = LabelProportions().observe(labels, groups, k)
    z = torch.stack([
        torch.stack([data.draw(statements(int(count), size)) for count in row])
        for row, size in zip(counts, sizes, strict=True)
    ])  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        if how == "states":  # never sets of members
            patch.setattr(published_counts, "MOST_IN_SETS", 0)
        found = PublishedCounts().evidence(logits, groups, z)
    totals, posteriors = zip(*map(enumerate_group, logits.split(sizes), z), strict=True)
    close(found.log_likelihood, torch.stack(totals))
    close(found.posterior, torch.cat(posteriors), 1e-8)


@pytest.mark.parametrize(("k", "m"), [(2, 200), (3, 5), (3, 30), (5, 60)])
def test_exact_statements_give_the_numbers_of_exact_counts(k: int, m: int) -> None:
    logits, groups, counts = problem(6, m, k)
    expected = LabelProportions().evidence(logits.float(), groups, counts)
    others = published.exact(counts)
    others[:, 0] = published.unknown()  # which follows from the others
    for z in (published.exact(counts), counts, others):
        found = PublishedCounts().evidence(logits.float(), groups, z)
        assert torch.equal(found.log_likelihood, expected.log_likelihood)
        assert torch.equal(found.posterior, expected.posterior)


@pytest.mark.parametrize("kind", list(noise.KINDS.values()))
@pytest.mark.parametrize(("k", "m"), [(2, 50), (3, 7), (4, 12)])
def test_noise_that_goes_to_zero_leaves_exact_counts(k: int, m: int, kind: type[noise.Noise]) -> None:
    logits, groups, counts = problem(4, m, k)
    made = kind(1e-3)
    found = PublishedCounts().evidence(logits, groups, published.noisy(counts, made))
    expected = LabelProportions().evidence(logits, groups, counts)
    close(found.log_likelihood - k * made.log_prob(0.0), expected.log_likelihood, 1e-9)
    close(found.posterior, expected.posterior, 1e-9)


def test_what_is_unknown_changes_nothing() -> None:
    for k, m in ((2, 300), (3, 6), (3, 20), (10, 6)):
        logits, groups, _ = problem(3, m, k, 3.0)
        for z in (published.unknown(3, k), published.noisy(torch.zeros(3, k), noise.Gaussian(1e9))):
            found = PublishedCounts().evidence(logits, groups, z)
            close(found.posterior, logits.softmax(-1), 1e-8)
        close(PublishedCounts().log_likelihood(logits, groups, published.unknown(3, k)), torch.zeros(3), 1e-9)


@pytest.mark.parametrize("size", [1, 40, 3000])
@pytest.mark.parametrize("scale", [0.1, 1.0, 20.0, 1e4])
def test_two_classes_are_the_sum_over_all_counts(size: int, scale: float) -> None:
    logits, groups, counts = problem(2, size, 2, scale)
    counts[1] = counts[1].flip(0)  # against the model
    z = published.noisy(counts + 0.7, noise.Gaussian([[1.0, 5.0]]))
    z[0, 0] = published.noisy(counts[0, 0] + 1.5, noise.Laplace(2))
    z[0, 1] = published.rounded(counts[0, 1] // 5 * 5, 5)
    found = PublishedCounts().evidence(logits, groups, z)
    every = torch.arange(size + 1)
    for group in range(2):
        rows = slice(group * size, (group + 1) * size)
        near = every[(every - counts[group, 1]).abs() <= 40]
        pairs = torch.stack([size - near, near], 1)
        alone = Groups.from_sizes([size] * len(pairs))
        exact = LabelProportions().evidence(logits[rows].repeat(len(pairs), 1), alone, pairs)
        weights = exact.log_likelihood + log_weight(z[group], pairs).sum(1)
        close(found.log_likelihood[group], weights.logsumexp(0), 1e-9)
        posterior = torch.einsum("c,cmk->mk", weights.softmax(0), exact.posterior.view(-1, size, 2))
        close(found.posterior[rows], posterior, 1e-7)


def test_ten_thousand_members_of_two_classes() -> None:
    logits, groups, counts = problem(1, 10_000, 2)
    found = PublishedCounts().evidence(logits, groups, published.between([[0, 0]], [[10_000, int(counts[0, 1]) - 700]]))
    exact = LabelProportions().log_likelihood(logits, groups, counts + torch.tensor([[700, -700]]))
    assert exact < found.log_likelihood < exact + 3  # a far tail falls off fast
    assert counts[0, 1] - 710 < found.posterior[:, 1].sum() < counts[0, 1] - 699


@pytest.mark.parametrize("k", [2, 3, 10])
@pytest.mark.parametrize("extreme", [200.0, 1e4])
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("size", [1, 6, 1000])
def test_extremes_are_finite(k: int, extreme: float, scale: float, size: int) -> None:
    labels = torch.arange(size) % k
    groups = Groups.from_sizes([size] * 3)
    signs = 2.0 * torch.nn.functional.one_hot(labels.repeat(3), k) - 1
    logits = (extreme * signs).requires_grad_()
    counts = LabelProportions().observe(torch.cat([labels, (labels + 1) % k, labels // 2]), groups, k)
    z = published.noisy(counts + scale * torch.randn(3, k).double(), noise.Gaussian(scale))
    z[1] = published.noisy(counts[1] + scale / 3, noise.Laplace(scale))
    z[2] = published.between(counts[2], counts[2] + 3)
    found = PublishedCounts().evidence(logits, groups, z)
    found.log_likelihood.sum().backward()
    assert found.log_likelihood.isfinite().all()
    assert found.posterior.isfinite().all()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize(
    ("aggregate", "n_classes", "sizes"),
    [
        (PublishedCounts(), 3, (3, 2)),
        (PublishedCounts(noise="laplace:1.5"), 2, (4, 3)),
        (PublishedCounts(noise="geometric:2"), 4, (3,)),
        (PublishedCounts(noise=noise.DiscreteGaussian(1)), 3, (3, 2)),
        (PublishedCounts(noise="laplace:0.01", seed=1), 2, (3,)),
        (PublishedCounts(rounded_to=3), 3, (4,)),
        (PublishedCounts(suppressed_below=2), 2, (5, 3)),
    ],
)
def test_it_passes_the_checks_of_every_aggregate(
    aggregate: PublishedCounts, n_classes: int, sizes: tuple[int, ...]
) -> None:
    check_aggregate(aggregate, n_classes=n_classes, sizes=sizes)


@pytest.mark.parametrize(("k", "m"), [(2, 5), (3, 4)])
def test_missing_members_are_members_with_the_shares_as_probabilities(k: int, m: int) -> None:
    logits, groups, _ = problem(2, m, k)
    shares = torch.tensor([0.5, 0.2, 0.3][:k], dtype=torch.float64)
    shares /= shares.sum()
    members = torch.tensor([2, 0])
    plain = torch.stack([published.exact([m + 2, *[0] * (k - 1)]), published.noisy([1.5] * k, noise.Laplace(2))])
    found = PublishedCounts().evidence(logits, groups, published.with_missing(plain, members, shares))
    own = torch.cat([logits[:m], shares.log().expand(2, k), logits[m:]])
    expected = PublishedCounts().evidence(own, Groups.from_sizes([m + 2, m]), plain)
    close(found.log_likelihood, expected.log_likelihood)
    close(found.posterior, torch.cat([expected.posterior[:m], expected.posterior[m + 2 :]]))


def test_the_normal_approximation_takes_any_sizes() -> None:
    sizes = [30, 50, 12]
    logits = torch.randn(sum(sizes), 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    z = published.noisy(torch.tensor(sizes)[:, None] * torch.tensor([0.1, 0.2, 0.3, 0.4]), noise.Laplace(2))
    together = PublishedCounts("normal").evidence(logits, Groups.from_sizes(sizes), z)
    for part, size, one, posterior, log_likelihood in zip(
        logits.split(sizes), sizes, z, together.posterior.split(sizes), together.log_likelihood, strict=True
    ):
        alone = PublishedCounts("normal").evidence(part, Groups.from_sizes([size]), one[None])
        close(log_likelihood, alone.log_likelihood[0], 1e-5)
        close(posterior, alone.posterior, 1e-5)


def test_plan_says_what_runs_and_exact_refuses_to_approximate() -> None:
    groups = Groups.from_sizes([4, 4, 12, 100])
    z = published.unknown(4, 6)
    z[0] = published.exact([2, 1, 1, 0, 0, 0])
    plan = PublishedCounts().plan(groups, z)
    assert plan.methods == ["permanents", "subsets", "count_states", "normal"]
    assert not plan.exact
    assert str(plan) == (
        "count_states for 1 group, normal for 1 group, permanents for 1 group, subsets for 1 group; approximate: normal"
    )
    assert PublishedCounts().plan(groups, published.unknown(4, 2)).methods == ["two_classes"] * 4
    with pytest.raises(ValueError, match=r"does not hold for group 3: it has .* allow the approximation"):
        PublishedCounts("exact").check(z, groups, 6)


def _stated(place: int, value: float) -> Tensor:
    z = published.noisy([[2.0, 2.0], [2.0, 2.0]], noise.Geometric(1))
    z[1, 1, place] = value
    return z


@pytest.mark.parametrize(
    ("z", "message"),
    [
        (published.between([[0, 0], [0, 7]]), "possible in a group of its size; if it counts members that have no row"),
        (published.between([[0, 0], [3, 3]]), "lower bounds must not add up to more than the size"),
        (published.between([[0, 0], [0, 0]], [[9, 9], [1, 2]]), "upper bounds must add up to at least the size"),
        (published.between([[0, 0], [0, 0.2]], [[9, 9], [9, 0.7]]), "bounds must include a whole number"),
        (_stated(0, 5), "possible in a group of its size"),
        (_stated(0, math.nan), "must not contain NaN"),
        (_stated(SCALE, -1), "the scale of noise must be a positive number"),
        (_stated(VALUE, math.inf), "published values must be finite"),
        (_stated(VALUE, 1.5), "must be whole"),
        (_stated(NOISE, 9), "noise must be one of"),
        (_stated(5, -1), "missing members must be 0 or more"),
        (_stated(5, 0.5), "missing members must add up to a whole number"),
        (_stated(1, -1), "lower bound must not exceed the upper bound"),
        (torch.zeros(2, 2, 3), "must be statements of unbag.published"),
    ],
)
def test_impossible_statements_are_refused_with_their_group(z: Tensor, message: str) -> None:
    groups = Groups.from_ids(["a", "a", "a", "a", "b", "b", "b", "b"])
    with pytest.raises(ValueError, match=message) as caught:
        PublishedCounts().check(z, groups, 2)
    if z.shape[2] == 6:
        assert "this does not hold for group 1 (id 'b'): group 1 (id 'b') has 4 members" in str(caught.value)


def test_logits_can_rule_statements_out() -> None:
    logits = torch.zeros(12, 3)
    logits[:, 2] = NEVER
    z = published.between([[0, 0, 1], [0, 0, 0]])
    found = PublishedCounts().evidence(logits, Groups.from_sizes([6, 6]), z)
    assert found.log_likelihood.tolist() == [NEVER, 0.0]
    with pytest.raises(unbag.ImpossibleObservation, match="group 0"):
        PublishedCounts().evidence(logits, Groups.from_sizes([6, 6]), z, impossible="raise")


def test_it_works_as_z_of_the_estimator(tmp_path) -> None:
    random = torch.Generator().manual_seed(0)
    labels = torch.randint(2, (240,), generator=random)
    X = (torch.randn(240, 3, generator=random) + 2 * labels[:, None]).numpy()
    ids = [f"g{row // 8}" for row in range(240)]
    groups = Groups.from_ids(ids)
    aggregate = PublishedCounts(noise="laplace:1")
    z = aggregate.observe(labels[torch.arange(240)], groups, 2)
    clf = unbag.AggregateClassifier(aggregate, "linear", validation=unbag.CrossFitting(2), random_state=0)
    clf.fit(X, unbag.target(ids, z))
    assert clf.score(X, labels.numpy()) > 0.9
    again = unbag.AggregateClassifier(aggregate, "linear", validation=unbag.CrossFitting(2), random_state=0)
    again.fit(X, {one: z[place].numpy() for place, one in enumerate(groups.ids)}, groups=groups)
    assert (again.predict_proba(X) == clf.predict_proba(X)).all()
    clf.save(tmp_path / "model")
    loaded = unbag.load(tmp_path / "model")
    assert repr(loaded.aggregate) == repr(aggregate)
    assert loaded.disaggregate(X, z, groups=groups).shape == (240, 2)


def test_training_takes_less_care_and_comes_out_alike():
    rng = torch.Generator().manual_seed(0)
    groups = Groups.from_sizes([30, 200, 150])
    logits = torch.randn(380, 3, generator=rng, dtype=torch.float64)
    counts = LabelProportions().observe(torch.randint(0, 3, (380,), generator=rng), groups, 3)
    z = published.rounded((counts / 5).round() * 5, 5)
    careful = PublishedCounts()
    quick = careful.for_training()
    assert (careful.max_states, quick.max_states) == (2**17, 2**12)
    expected, found = careful.evidence(logits, groups, z), quick.evidence(logits, groups, z)
    torch.testing.assert_close(found.log_likelihood, expected.log_likelihood, atol=0.06, rtol=0)
    torch.testing.assert_close(found.posterior, expected.posterior, atol=5e-3, rtol=0)
    assert PublishedCounts("exact").for_training().max_states == 2**17


def contradicting(k: int, m: int, scale: float, seed: int) -> tuple[Tensor, Groups, Tensor]:
    """Return confident logits and the counts of labels that have nothing to do with them."""
    random = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(m, k, generator=random, dtype=torch.float64)
    counts = torch.bincount(torch.randint(0, k, (m,), generator=random), minlength=k)
    return logits, Groups.from_sizes([m]), counts[None]


@pytest.mark.parametrize("how", ["rounded", "suppressed", "laplace:1", "gaussian:3", "geometric:1"])
@pytest.mark.parametrize("scale", [3.0, 100.0, 1e4])
@pytest.mark.parametrize("model_is_correct", [True, False])
def test_approximations_are_near_the_exact_sum(how: str, scale: float, model_is_correct: bool) -> None:
    for seed, (k, m) in enumerate([(3, 60), (4, 24), (5, 16)]):
        logits, groups, counts = problem(1, m, k, scale, seed) if model_is_correct else contradicting(k, m, scale, seed)
        if how == "rounded":
            z = published.rounded((counts / 5).round() * 5, 5)
        elif how == "suppressed":
            z = torch.where((counts < 5)[..., None], published.between(0, 4), published.exact(counts))
        else:
            kind = noise.read_noise(how)
            z = published.noisy(counts + kind.sample((1, k), torch.Generator().manual_seed(seed)), kind)
        exact, found = (PublishedCounts(method).evidence(logits, groups, z) for method in ("exact", "normal"))
        assert (found.posterior - exact.posterior).abs().max() < 0.05
        z = PublishedCounts().check(z, groups, k)
        assert found.log_likelihood <= log_weight(z[:, :, None], torch.arange(m + 1)).amax(2).sum() + 1e-9
        expected = found.posterior.sum(0)
        assert bool((expected >= z[0, :, LOW] - 2e-3).all() and (expected <= z[0, :, HIGH] + 2e-3).all())


def test_counts_that_contradict_the_model_have_a_possible_likelihood() -> None:
    logits, groups, counts = contradicting(6, 24, 10.0, 12)
    found = PublishedCounts().log_likelihood(logits, groups, published.rounded((counts / 5).round() * 5, 5))
    assert float(found) == pytest.approx(-8.889, abs=0.5)


def test_twenty_classes_with_little_noise_have_a_result() -> None:
    random = torch.Generator().manual_seed(0)
    groups, k = Groups.from_sizes([50] * 60), 20
    logits = torch.randn(3000, k, generator=random)
    labels = torch.multinomial(logits.softmax(1), 1, generator=random)[:, 0]
    kind = noise.Gaussian(0.5)
    counts = LabelProportions().observe(labels, groups, k)
    z = published.noisy(counts + kind.sample(tuple(counts.shape), random), kind)
    assert bool(PublishedCounts().log_likelihood(logits, groups, z).isfinite().all())


def test_a_group_that_contradicts_the_model_does_not_change_others() -> None:
    logits, groups, counts = problem(3, 40, 6, 2.0)
    odd, _, wrong = contradicting(6, 40, 1e4, 1)
    z, odd_z = (published.rounded((c / 5).round() * 5, 5) for c in (counts, wrong))
    alone = PublishedCounts().evidence(logits, groups, z)
    both = PublishedCounts().evidence(torch.cat([logits, odd]), Groups.from_sizes([40] * 4), torch.cat([z, odd_z]))
    close(both.posterior[:120], alone.posterior, 1e-4)
    close(both.log_likelihood[:3], alone.log_likelihood, 1e-4)


@settings(max_examples=30)
@given(m=st.integers(2, 7), scale=st.sampled_from([0.5, 3.0]), seed=st.integers(0, 10**6))
def test_messages_are_exact_where_one_class_is_published(m: int, scale: float, seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    log_probs = (scale * torch.randn(m, 3, generator=random, dtype=torch.float64)).log_softmax(1)
    kind = noise.Laplace(1.0)
    z = published.unknown(1, 3)
    z[0, 0] = published.noisy(torch.randint(0, m + 1, (), generator=random), kind)
    segments = Groups.from_sizes([m]).segments
    weights = log_weight(z[:, :, None], torch.arange(m + 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(count_messages, "TOLERANCE", 1e-9)
        tilt = find_weighted_tilt(log_probs, segments, weights)
        total, posterior, residual = count_messages.infer_counts_by_messages(log_probs, segments, weights, tilt)
    assert residual < 1e-8
    close((total[0], posterior), enumerate_group(log_probs, z[0]), 1e-7)


@settings(max_examples=60)
@given(m=st.integers(1, 7), k=st.integers(2, 4), scale=st.sampled_from([0.5, 3.0, 50.0, 1e4]), data=st.data())
def test_sum_over_probable_counts_is_that_of_enumeration(m: int, k: int, scale: float, data: st.DataObject) -> None:
    random = torch.Generator().manual_seed(data.draw(st.integers(0, 10**6), "seed"))
    log_probs = (scale * torch.randn(m, k, generator=random, dtype=torch.float64)).log_softmax(1)
    counts = torch.bincount(torch.randint(k, (m,), generator=random), minlength=k)
    z = PublishedCounts().check(
        torch.stack([data.draw(statements(int(count), m)) for count in counts])[None], Groups.from_sizes([m]), k
    )
    weights = log_weight(z[:, :, None], torch.arange(m + 1))
    tilt = find_weighted_tilt(log_probs, Groups.from_sizes([m]).segments, weights)
    found = sum_paths(log_probs, weights[0], tilt[0], 2**12, 0.0)
    assert found is not None
    close((found.log_total, found.posterior), enumerate_group(log_probs, z[0]), 1e-5)


@pytest.mark.parametrize("k", [3, 10])
def test_sum_over_a_sample_of_counts_has_no_bias(k: int) -> None:
    logits, groups, counts = problem(1, 24, k, 1.0)
    z = PublishedCounts().check(published.noisy(counts, noise.Laplace(2.0)), groups, k)
    weights = log_weight(z[:, :, None], torch.arange(25))
    tilt = find_weighted_tilt(logits.log_softmax(1), groups.segments, weights)
    full, sampled = (
        sum_paths(logits.log_softmax(1), weights[0], tilt[0], n, 1.0) for n in (2**15, 2**11 if k == 10 else 40)
    )
    assert full is not None
    assert sampled is not None
    assert 0 < sampled.sampled <= 1
    assert abs(float(full.log_total - sampled.log_total)) < 0.1
    assert (full.posterior - sampled.posterior).abs().mean() < 0.02
    assert sum_paths(logits.log_softmax(1), weights[0], tilt[0], 40, sampled.sampled / 2) is None


@settings(max_examples=5)
@given(seed=st.integers(0, 10**6))
def test_posteriors_of_random_groups_are_near_the_reference(seed: int) -> None:
    result = compare(seed)
    assume(result is not None)
    assert result.is_possible
    assert result.error - 4 * result.standard_error < TOLERANCE
