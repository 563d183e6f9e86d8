"""Wrong answers of yes and no: against enumeration, and what is refused."""

import pytest
import torch

import unbag
from unbag import AtLeast, Groups, MultipleInstance, Noisy, OrdinalRank, PairwiseSimilarity
from unbag.testing import check_aggregate

KINDS = [
    (PairwiseSimilarity(), 3, (2,)),
    (unbag.TripletComparison(), 3, (3,)),
    (OrdinalRank(), 4, (2,)),
    (unbag.OrdinalTriplet(), 3, (3,)),
    (MultipleInstance(), 2, (3, 4)),
    (AtLeast(2), 2, (3,)),
]


@pytest.mark.parametrize("rate", [0.0, 0.2, (0.05, 0.4)])
@pytest.mark.parametrize(("kind", "n_classes", "sizes"), KINDS)
def test_it_passes_the_checks_of_every_aggregate(kind, n_classes, sizes, rate):
    checks = ["observations", "likelihood", "posterior", "gradient", "extremes", "impossible"]
    check_aggregate(Noisy(kind, rate), n_classes=n_classes, sizes=sizes, checks=[*checks, "expectation"])


def test_without_wrong_answers_it_is_what_was_asked():
    logits, pairs = torch.randn(6, 3), Groups.from_tuples([[0, 1], [2, 3], [4, 5]])
    plain = PairwiseSimilarity().evidence(logits, pairs, [1, 0, 1])
    found = Noisy(PairwiseSimilarity(), 0.0).evidence(logits, pairs, [1, 0, 1])
    torch.testing.assert_close(found, plain)


def test_each_answer_may_have_its_own_rate():
    logits, pairs = torch.randn(6, 3), Groups.from_tuples([[0, 1], [2, 3], [4, 5]])
    answers, rates = [1, 0, 1], [0.1, 0.0, 0.5]
    z = torch.tensor([answers, rates]).t()
    found = Noisy(PairwiseSimilarity()).evidence(logits, pairs, z)
    for group, (answer, rate) in enumerate(zip(answers, rates, strict=True)):
        alone = Noisy(PairwiseSimilarity(), rate).evidence(logits, pairs.take(torch.tensor([group])), [answer])
        torch.testing.assert_close(found.log_likelihood[group], alone.log_likelihood[0])
        torch.testing.assert_close(found.posterior[2 * group : 2 * group + 2], alone.posterior)
    assert found.posterior[4:].allclose(logits[4:].softmax(-1))  # a coin tells nothing


def test_the_rate_is_found_from_what_a_model_says():
    random = torch.Generator().manual_seed(0)
    labels = torch.randint(3, (4000,), generator=random)
    logits = 4.0 * torch.nn.functional.one_hot(labels, 3) + torch.randn(4000, 3, generator=random)
    pairs = Groups.from_tuples(torch.randint(4000, (3000, 2), generator=random))
    z = Noisy(PairwiseSimilarity(), 0.15).observe(labels, pairs, 3)
    found = Noisy(PairwiseSimilarity(), 0.4).estimate_rate(2 * logits, pairs, z)
    assert abs(found - 0.15) < 0.02


@pytest.mark.parametrize(("aggregate", "k", "sizes"), KINDS[:5], ids=lambda one: type(one).__name__)
def test_a_rate_that_is_learned_has_the_gradient_of_the_likelihood(aggregate, k, sizes):
    groups = Groups.from_sizes(sizes * 4)
    logits = torch.randn(int(groups.sizes.sum()), k, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    logits[0] = torch.tensor([1e4, *[0.0] * (k - 1)])
    z = torch.arange(len(groups)) % 2
    loss = unbag.NoisyLikelihood(aggregate, 0.2)

    def value(log_odds, rows):
        """Return the mean negative log-likelihood by its definition."""
        yes = aggregate.log_likelihood(rows, groups, torch.ones_like(z)).exp()
        rate = torch.as_tensor(log_odds).sigmoid() / 2
        right = torch.where(z == 1, yes, 1 - yes)
        return -((1 - rate) * right + rate * (1 - right)).log().mean()

    plain = logits.clone().requires_grad_()
    found, expected = loss(plain, groups, z), value(loss.log_odds.detach(), logits)
    torch.testing.assert_close(found, expected)
    found.backward()
    step = 1e-5
    slope = (value(loss.log_odds.detach() + step, logits) - value(loss.log_odds.detach() - step, logits)) / (2 * step)
    torch.testing.assert_close(loss.log_odds.grad, slope, rtol=1e-6, atol=1e-9)
    change = torch.zeros_like(logits)
    change[1, 0] = step
    more, less = (value(loss.log_odds.detach(), rows) for rows in (logits + change, logits - change))
    slope = (more - less) / (2 * step)
    torch.testing.assert_close(plain.grad[1, 0], slope, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize(("aggregate", "k", "size"), [(PairwiseSimilarity(), 2, 2), (MultipleInstance(), 2, 3)])
def test_a_rate_is_learned_together_with_a_model(aggregate, k, size):
    random = torch.Generator().manual_seed(0)
    X = torch.randn(300, 2, generator=random)
    labels = (X[:, 0] > 0.3).long()
    groups = Groups.from_tuples(torch.randint(300, (1500, size), generator=random))
    z = Noisy(aggregate, 0.2).observe(labels, groups, k)
    torch.manual_seed(0)
    model, loss = torch.nn.Linear(2, k), unbag.NoisyLikelihood(aggregate, 0.05)
    optimiser = torch.optim.Adam([*model.parameters(), *loss.parameters()], lr=0.1)
    for _ in range(100):
        optimiser.zero_grad()
        loss(model(X), groups, z).backward()
        optimiser.step()
    assert abs(loss.rate - 0.2) < 0.03


@pytest.mark.parametrize("rate", [0.0, 0.5, (0.1, 0.2), float("nan")])
def test_a_rate_to_learn_begins_between_zero_and_a_half(rate):
    with pytest.raises(ValueError, match=r"between 0 and 0\.5, got"):
        unbag.NoisyLikelihood(PairwiseSimilarity(), rate)


@pytest.mark.parametrize("rate", [-0.1, 1.0, float("nan"), (0.1,), (0.1, 2.0)])
def test_a_rate_is_a_probability(rate):
    with pytest.raises(ValueError, match="rate must be a number of at least 0 and less than 1"):
        Noisy(PairwiseSimilarity(), rate)


def test_what_has_no_yes_and_no_is_refused():
    for wrong in (unbag.LabelProportions(), "pairwise_similarity", Noisy(PairwiseSimilarity())):
        with pytest.raises(ValueError, match="aggregate must be a binary kind"):
            Noisy(wrong)
    pairs = Groups.from_tuples([[0, 1], [1, 2]])
    with pytest.raises(ValueError, match=r"less than 1; this does not hold for group 1: z\[1\] is \[1.0, 1.5\]"):
        Noisy(PairwiseSimilarity()).check([[1.0, 0.1], [1.0, 1.5]], pairs, 2)
    with pytest.raises(ValueError, match="answer and rate; got shape"):
        Noisy(PairwiseSimilarity()).check(torch.zeros(2, 3), pairs, 2)


def test_the_rate_that_is_found_is_where_the_enumerated_likelihood_is_largest():
    groups = Groups.from_sizes([3] * 40)
    logits = torch.randn(120, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    z = torch.arange(40) % 3 // 2
    yes = 1 - torch.tensor([float((1 - logits[3 * n : 3 * n + 3].softmax(1)[:, 1]).prod()) for n in range(40)])
    right = torch.where(z == 1, yes, 1 - yes)
    found = Noisy(MultipleInstance()).estimate_rate(logits, groups, z)
    slope = ((1 - 2 * right) / ((1 - found) * right + found * (1 - right))).mean()  # of the mean log-likelihood
    assert 0.05 < found < 0.95
    assert abs(float(slope)) < 1e-6


KNOWN = 0.2


@pytest.fixture(scope="module")
def fitted():
    """Return a classifier that has found how many answers are wrong, of pairs and bags together, and its inputs."""
    random = torch.Generator().manual_seed(0)
    X = torch.randn(300, 2, generator=random)
    labels = (X[:, 0] > 0.3).long()
    kinds = [(PairwiseSimilarity(), 2, 0.3), (OrdinalRank(), 2, KNOWN)]
    groups = [Groups.from_tuples(torch.randint(300, (600, m), generator=random), n_rows=300) for _, m, _ in kinds]
    z = [Noisy(kind, rate).observe(labels, own, 2) for (kind, _, rate), own in zip(kinds, groups, strict=True)]
    aggregates = [Noisy(kinds[0][0], "fit"), Noisy(kinds[1][0], KNOWN)]
    settings = {"n_classes": 2, "validation": unbag.CrossFitting(3), "random_state": 0}
    clf = unbag.AggregateClassifier(aggregates, "linear", **settings)
    return clf.fit(X.numpy(), z, groups=groups), X.numpy(), z, groups, labels.numpy()


def test_the_estimator_finds_a_rate_that_nobody_knows(fitted):
    clf, X, _, _, labels = fitted
    assert clf.error_rates_ == [pytest.approx(0.3, abs=0.05), None]
    assert clf.aggregate_[0].rate == clf.error_rates_[0]
    assert clf.aggregate_[1].rate == KNOWN
    assert clf.aggregate[0].rate == "fit"  # as it was given
    assert clf.score(X, labels) > 0.95


def test_a_rate_that_was_found_is_saved_and_used(fitted, tmp_path):
    clf, X, z, groups, _ = fitted
    clf.save(tmp_path / "model")
    loaded = unbag.load(tmp_path / "model")
    assert repr(loaded.aggregate_) == repr(clf.aggregate_)
    log_probs = torch.from_numpy(clf.predict_log_proba(X))
    known = Noisy(PairwiseSimilarity(), clf.error_rates_[0])
    expected = known.posterior(log_probs, groups[0], z[0]).numpy()
    assert loaded.disaggregate(X, z, groups)[0] == pytest.approx(expected)
    chance = known.log_likelihood(log_probs, groups[0], torch.ones(600, dtype=torch.int64)).exp().numpy()
    assert loaded.predict_groups(X, groups)[0] == pytest.approx(chance)


def test_a_rate_is_found_from_answers_that_can_be_left_out():
    X, pairs = torch.randn(4, 2).numpy(), Groups.from_tuples([[0, 1], [1, 2], [2, 3]])
    clf = unbag.AggregateClassifier(Noisy(PairwiseSimilarity(), "fit"), "linear", n_classes=2)
    with pytest.raises(ValueError, match='rate="fit" needs at least 4 observations'):
        clf.fit(X, [1, 0, 1], groups=pairs)
    with pytest.raises(ValueError, match="an error rate for each answer"):
        Noisy(PairwiseSimilarity(), "fit").check([[1.0, 0.1]] * 3, pairs, 2)


def test_a_rate_is_found_if_each_answer_is_held_out():
    """A single part of few pairs that share rows holds out few of them with both of their rows."""
    X = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
    rows = torch.stack([torch.arange(60).roll(shift) for shift in (0, 7, 23)], 1)
    pairs = Groups.from_tuples(torch.cat([rows[:, :2], rows[:, 1:]]))
    z = PairwiseSimilarity().observe(X[:, 0] > 0, pairs, 2)
    clf = unbag.AggregateClassifier(Noisy(PairwiseSimilarity(), "fit"), "linear", method="uum", n_classes=2)
    clf.set_params(training=unbag.NetworkTraining(epochs=2), random_state=0)
    with pytest.raises(ValueError, match=r"all of whose rows are held out; got [0-3] of 120; pass validation="):
        clf.fit(X.numpy(), z, groups=pairs)
    clf.set_params(validation=unbag.CrossFitting(n_folds=4)).fit(X.numpy(), z, groups=pairs)
    assert 0 < clf.error_rates_[0] < 0.5
