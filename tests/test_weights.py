import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from problems_of_groups import blobs, fast
from training_problems import assert_close, assert_identical, drawn, network, observe, pairs_problem, table

import unbag
from unbag import Groups, LabelProportions, NegativeLogLikelihood, PairwiseSimilarity, UnbiasedRisk
from unbag.learners.constant import fit_null_model
from unbag.training import Observations, Settings, held_out_likelihood, train

K = 3
RISKS = [
    lambda: UnbiasedRisk(LabelProportions()),
    lambda: UnbiasedRisk(LabelProportions(), loss="mae"),
    lambda: NegativeLogLikelihood(LabelProportions()),
]


def weighted(seen: Observations, weights: object) -> Observations:
    return Observations(seen.aggregate, seen.groups, seen.z, seen.n_classes, seen.weight, weights)


def repeated(seen: Observations, times: torch.Tensor) -> Observations:
    """Return each group as many times as its weight says."""
    return seen.take(torch.repeat_interleave(torch.arange(len(seen.groups)), times))


def unequal(labels: torch.Tensor, sizes: list[int], k: int = K) -> Observations:
    return observe("LabelProportions", labels[: sum(sizes)], Groups.from_sizes(sizes), k)


# Risks


@settings(max_examples=25)
@given(st.lists(st.integers(0, 3), min_size=3, max_size=3).filter(any), st.integers(0, 100), st.sampled_from(RISKS))
def test_a_weight_of_two_is_the_group_twice(times, seed, make_risk):
    risk, sizes = make_risk(), torch.tensor([2, 1, 3])
    labels = torch.randint(K, (6,), generator=torch.Generator().manual_seed(seed))
    seen = unequal(labels, sizes.tolist())
    again = repeated(seen, torch.tensor(times))
    logits = torch.randn(6, K, generator=torch.Generator().manual_seed(seed), dtype=torch.float64, requires_grad=True)
    expected = risk(logits, again.groups, again.z)
    (slope,) = torch.autograd.grad(expected, logits)
    of_rows = torch.repeat_interleave(torch.tensor(times), sizes)
    for weights in ({"group_weights": times}, {"sample_weight": of_rows}):
        found = risk(logits, seen.groups, seen.z, **weights)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(torch.autograd.grad(found, logits)[0], slope)


@pytest.mark.parametrize("loss", ["cross_entropy", "mae"])
def test_weights_of_rows_multiply_the_terms_of_members(loss):
    groups, z = Groups.from_tuples([[0, 1], [1, 2]]), [1, 0]
    logits = torch.randn(3, K, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    losses = {"cross_entropy": -logits.log_softmax(1), "mae": 2 - 2 * logits.softmax(1)}[loss]
    terms = (PairwiseSimilarity().posterior(logits, groups, z) * losses[groups.members]).sum(1).view(2, 2)
    w = torch.tensor([[0.5, 2.0], [2.0, 0.0]], dtype=torch.float64)  # of rows 0, 1, 2 as members
    risk = UnbiasedRisk(PairwiseSimilarity(), loss=loss)
    found = risk(logits, groups, z, sample_weight=[0.5, 2.0, 0.0])
    torch.testing.assert_close(found, (w * terms).sum() / w.sum())
    both = risk(logits, groups, z, sample_weight=[0.5, 2.0, 0.0], group_weights=[3, 1])
    own = torch.tensor([[3.0], [1.0]], dtype=torch.float64) * w
    torch.testing.assert_close(both, (own * terms).sum() / own.sum())
    torch.testing.assert_close(
        risk(logits, groups, z, sample_weight=[4, 4, 4]), risk(logits, groups, z), msg="equal weights change nothing"
    )


@pytest.mark.parametrize("make_risk", [RISKS[0], RISKS[2]])
def test_rows_without_weight_make_a_group_that_does_not_count(make_risk):
    logits = torch.tensor([[0.0, -np.inf], [0.0, -np.inf], [0.3, 0.7]], requires_grad=True)  # rules group 0 out
    groups = Groups.from_sizes([2, 1])
    value = make_risk()(logits, groups, [[0, 2], [0, 1]], sample_weight=[0, 0, 5])
    value.backward()
    torch.testing.assert_close(value.detach(), -logits.detach()[2].log_softmax(0)[1])
    assert (logits.grad[:2] == 0).all()


def test_a_likelihood_has_no_weights_of_rows_inside_a_group():
    groups = Groups.from_ids(["b", "a", "b"])
    with pytest.raises(
        ValueError, match=r"equal in all rows .* but it is not in group 1 \(id 'b'\): group 1 has 1 and 2;"
    ):
        NegativeLogLikelihood(LabelProportions())(torch.zeros(3, 2), groups, [[1, 0], [1, 1]], sample_weight=[1, 1, 2])


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        ([1.0], ValueError, r"sample_weight must have one entry per row, shape \(3,\); got shape \(1,\)"),
        (
            [1.0, -2, 3],
            ValueError,
            r"sample_weight must be finite and not negative; this does not hold for row 1: .*\[1\] is -2.0",
        ),
        (["a", "b", "c"], TypeError, "sample_weight cannot be made into a tensor"),
        ([0, 0, 0], ValueError, "must not all be zero for reduction='mean'.*nor may sample_weight"),
    ],
)
def test_wrong_weights_of_rows(value, error, message):
    for risk in (UnbiasedRisk(PairwiseSimilarity()), NegativeLogLikelihood(PairwiseSimilarity())):
        with pytest.raises(error, match=message):
            risk(torch.zeros(3, 2), Groups.from_tuples([[0, 1], [1, 2]]), [1, 0], sample_weight=value)


# Training

FULL_BATCH = {"epochs": 6, "batch_size": 10_000, "learning_rate": 0.05}
PHASES = {
    "likelihood": Settings(warm_up=6, **FULL_BATCH),
    "current": Settings(**FULL_BATCH),
    "remembered": Settings(warm_up=2, remember_from=2, **FULL_BATCH),
    "mae": Settings(warm_up=1, loss="mae", **FULL_BATCH),
}


def problems():
    X, labels = table(15, K)
    times = torch.randint(0, 4, (12,), generator=torch.Generator().manual_seed(3))
    return X, times, {
        "pairs": observe("PairwiseSimilarity", labels, drawn(15, 12, 2), K),
        "unequal": unequal(labels, [1, 2, 1, 1, 2, 1, 1, 1, 1, 1, 1, 2]),
    }  # fmt: skip


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("kind", ["pairs", "unequal"])
def test_training_with_weights_is_training_with_repeated_groups(phase, kind):
    X, times, seen = problems()
    fits = [
        train(lambda: network(K), X, [one], PHASES[phase], seeds=[0, 1], score=held_out_likelihood(X, [one]))
        for one in (weighted(seen[kind], times), repeated(seen[kind], times))
    ]
    for model, same in zip(fits[0].models, fits[1].models, strict=True):
        assert_close(model, same, 1e-4)
    for entry, same in zip(fits[0].history, fits[1].history, strict=True):
        assert entry["loss"] == pytest.approx(same["loss"], rel=1e-4)
        assert entry["score"] == pytest.approx(same["score"], rel=1e-4)
    small = Settings(epochs=3, warm_up=1, remember_from=2, batch_size=5)
    runs = [train(lambda: network(K), X, [one], small) for one in (seen[kind], weighted(seen[kind], [0.25] * 12))]
    assert_identical(*runs)  # equal weights change nothing to the last bit


def test_a_group_of_weight_zero_is_as_if_it_were_not_there():
    X, _, seen = problems()
    weights = torch.ones(12).index_fill_(0, torch.tensor([2, 7]), 0)
    small = Settings(epochs=3, batch_size=4)
    assert_identical(
        train(lambda: network(K), X, [weighted(seen["pairs"], weights)], small),
        train(lambda: network(K), X, [seen["pairs"].take(weights > 0)], small),
    )


def test_in_small_batches_a_group_counts_by_its_weight_among_all():
    """Without a step, the mean loss of an epoch is the weighted mean over the set, whatever the batches."""
    X, times, seen = problems()
    for one in seen.values():
        given = weighted(one, times)
        still = Settings(epochs=1, warm_up=1, batch_size=3, learning_rate=1e-30)
        of_epoch = train(lambda: network(K), X, [given], still)
        n_steps = -(-int((times > 0).sum()) // 3)
        if int((times > 0).sum()) % n_steps == 0:  # batches of one size
            logits = of_epoch.models[0](X).detach()
            expected = -given.mean(given.evidence(logits).log_likelihood)
            assert of_epoch.history[0]["loss"][0] == pytest.approx(expected.item(), rel=1e-5)


def test_weights_are_taken_split_and_moved_with_the_groups():
    _, seen = pairs_problem(n_groups=40)
    weights = torch.arange(40.0)
    one = weighted(seen, weights)
    assert one.take(torch.tensor([3, 5])).weights.tolist() == [3.0, 5.0]
    assert one.to("meta").group_weights.device.type == "meta"
    kept, held_out = one.split(0.25, torch.Generator().manual_seed(0))
    assert len(held_out.groups) == 10
    assert sorted([*kept.weights.tolist(), *held_out.weights.tolist()]) == list(range(1, 40)), "0 is on neither side"
    with pytest.raises(ValueError, match="group_weights must not all be zero: no group would be left"):
        weighted(seen, torch.zeros(40))
    with pytest.raises(ValueError, match="group_weights must have one entry per group"):
        weighted(seen, [1.0])


def test_scores_and_the_best_constant_go_by_weight():
    X, times, seen = problems()
    model = network(K)
    predict = lambda rows: model(rows).detach()[None]  # noqa: E731
    for one in seen.values():
        given, again = weighted(one, times), repeated(one, times)
        torch.testing.assert_close(held_out_likelihood(X, [given])(predict), held_out_likelihood(X, [again])(predict))
        np.testing.assert_allclose(fit_null_model([given])[0], fit_null_model([again])[0], atol=1e-4)


# The estimator

SMALL = {
    **fast(epochs=15, learning_rate=0.05, batch_size=10_000),
    "model": "linear",
    "scaling": "none",
    "validation": unbag.CrossFitting(None, validation_fraction=0),
}


def grouped(n: int = 30) -> tuple[np.ndarray, np.ndarray, Groups, np.ndarray]:
    X, labels = blobs(n=3 * n, k=2)
    groups = Groups.from_sizes([3] * n)
    return X, LabelProportions().observe(labels, groups, 2).numpy(), groups, labels


def test_the_estimator_takes_weights_of_groups_and_of_rows():
    X, z, groups, _ = grouped()
    times = np.random.default_rng(0).integers(0, 4, 30)
    again = groups.take(torch.from_numpy(np.repeat(np.arange(30), times)))
    with pytest.warns(unbag.UnbagWarning, match="the groups contain"):
        expected = unbag.AggregateClassifier(**SMALL).fit(X, np.repeat(z, times, 0), again)
    by_group = unbag.AggregateClassifier(**SMALL).fit(X, z, groups, group_weights=times)
    by_row = unbag.AggregateClassifier(**SMALL).fit(
        X, unbag.target(np.repeat(np.arange(30), 3), z), sample_weight=np.repeat(times, 3)
    )
    for one in (by_group, by_row):
        np.testing.assert_allclose(one.predict_proba(X), expected.predict_proba(X), atol=1e-4)
        assert one.candidates_[0]["score"] == pytest.approx(expected.candidates_[0]["score"], abs=1e-4)
    score = expected.score(X, np.repeat(z, times, 0), groups=again)
    assert expected.score(X, z, groups=groups, group_weights=times) == pytest.approx(score)
    assert expected.score(X, z, groups=groups, sample_weight=np.repeat(times, 3)) == pytest.approx(score)


def test_weights_of_plain_labels_are_those_of_rows():
    X, _, _, labels = grouped()
    times = np.random.default_rng(0).integers(0, 4, 90)
    found = unbag.AggregateClassifier(**SMALL).fit(X, labels, sample_weight=times)
    expected = unbag.AggregateClassifier(**SMALL).fit(np.repeat(X, times, 0), np.repeat(labels, times))
    np.testing.assert_allclose(found.predict_proba(X), expected.predict_proba(X), atol=1e-4)


def test_each_of_several_sets_has_weights_of_its_own():
    X, z, groups, labels = grouped()
    times = np.random.default_rng(0).integers(1, 3, 30)
    few = Groups.from_tuples(np.arange(6)[:, None])
    kinds = ["label_proportions", "label_proportions"]
    found = unbag.AggregateClassifier(kinds, **SMALL).fit(
        X, [z, labels[:6]], [groups, few], group_weights=[times, None]
    )
    again = groups.take(torch.from_numpy(np.repeat(np.arange(30), times)))
    expected = unbag.AggregateClassifier(kinds, **SMALL).fit(X, [np.repeat(z, times, 0), labels[:6]], [again, few])
    np.testing.assert_allclose(found.predict_proba(X), expected.predict_proba(X), atol=1e-4)
    with pytest.raises(ValueError, match="group_weights must be a list with an entry for each; got ndarray"):
        unbag.AggregateClassifier(kinds, **SMALL).fit(X, [z, labels[:6]], [groups, few], group_weights=times)


def test_held_out_groups_are_chosen_among_those_that_count():
    X, z, groups, _ = grouped()
    settings = SMALL | {"validation": unbag.CrossFitting(None, validation_fraction=0.2)}
    few = unbag.AggregateClassifier(**settings).fit(X, z, groups, group_weights=np.arange(30) % 2)
    assert few.folds_ == [[-1] * 30], "fifteen groups count, too few to split"
    weights = np.arange(30) > 3
    clf = unbag.AggregateClassifier(**settings).fit(X, z, groups, group_weights=weights)
    assert 0 in clf.folds_[0]
    assert not any(fold == 0 for fold, weight in zip(clf.folds_[0], weights, strict=True) if not weight)


def test_weights_that_the_estimator_refuses():
    X, z, groups, _ = grouped()
    with pytest.raises(
        ValueError, match=r"sample_weight must be equal in all rows .* it is not in group 0: .* 1 and 2"
    ):
        unbag.AggregateClassifier(**SMALL).fit(X, z, groups, sample_weight=[1, 2, 1] + [1] * 87)
    with pytest.raises(ValueError, match="must not all be zero: no group would be left to learn from"):
        unbag.AggregateClassifier(**SMALL).fit(X, z, groups, group_weights=np.zeros(30))
