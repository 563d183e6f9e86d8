"""Ten traps, each with made-up data that must be caught by a sentence with a number, and clean twins that must not."""

import itertools
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from findings import kinds, look_at, the, warned
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression
from table_files import call

from unbag import (
    AggregateClassifier,
    CrossFitting,
    Groups,
    LabelProportions,
    MultipleInstance,
    PairwiseSimilarity,
    PublishedCounts,
    noise,
    published,
)
from unbag.diagnostics import Context, run_checks
from unbag.diagnostics.fitted import Deviations, bound_exponents, compute_deviations, find_improbable_groups
from unbag.diagnostics.shift import Moments, describe_features, find_shift
from unbag.training import Observations

SEEDS = range(10)


def made(seed, *, n_groups=60, size=20, columns=4, k=2, apart=1.0, common=0.0):
    """Rows whose groups differ in their features, and members with something in common that no feature shows."""
    rng = np.random.default_rng(seed)
    ids = np.arange(n_groups * size) // size
    X = rng.normal(size=(len(ids), columns)) + apart * rng.normal(size=(n_groups, columns))[ids]
    shared = common * rng.normal(size=n_groups)[ids]
    logits = np.stack([np.zeros(len(ids)), *(1.5 * X[:, j % columns] + shared for j in range(k - 1))], 1)
    y = (logits + rng.gumbel(size=logits.shape)).argmax(1)
    return X, y, Groups.from_ids(ids)


def counts_of(y, groups, k=2):
    return LabelProportions().observe(y, groups, k)


def false_alarms(kind, find):
    """Return how often clean twins are caught."""
    return sum(kind in kinds(find(seed)) for seed in SEEDS)


# Before a fit, by rows; what is found in observations is tested in test_diagnosis.py.


def test_fewer_groups_than_the_model_needs():
    X, y, groups = made(0, n_groups=20, columns=30)
    message = the("few_groups", look_at(X, y, groups)).message
    assert "20 groups can be compared in 19 ways, fewer than the 30 columns" in message
    assert false_alarms("few_groups", lambda seed: look_at(*made(seed))) == 0
    X[:, 5:] = 1  # constant columns need no weight
    assert kinds(look_at(X, y, groups)) == ["constant_columns"]


def test_a_model_that_has_learned_noise_is_worse_than_a_constant():
    rng = np.random.default_rng(0)
    X, context = made(0)[0], left_out(0)
    random = torch.from_numpy(X @ rng.normal(size=(4, 2)) * 3).log_softmax(1)
    message = the("worse_than_constant", examine(replace(context, log_probs=[random], fold_log_probs=[[]]))).message
    assert "60 held-out groups are explained worse than by a constant prediction" in message


def copied(X, groups, share=0.3, seed=0):
    """Give some rows of later groups the values of rows of the first ones."""
    rng, X = np.random.default_rng(seed), X.copy()
    which = rng.choice(np.arange(len(X) // 2, len(X)), int(share * len(X) / 2), replace=False)
    X[which] = X[rng.choice(len(X) // 2, len(which))]
    return X


def test_the_id_of_the_group_among_the_features():
    X, y, groups = made(0)
    X[:, 2] = np.random.default_rng(0).permutation(60)[groups.segment.numpy()]
    message = the("group_column", look_at(X, y, groups)).message
    assert message.startswith("column 2 of X: it has one value in each of 60 groups")
    assert false_alarms("group_column", lambda seed: look_at(*made(seed))) == 0

    def of_groups(seed):  # it describes groups, several of which are alike
        X, y, groups = made(seed)
        X[:, 2] = np.random.default_rng(seed).integers(0, 5, 60)[groups.segment.numpy()]
        return look_at(X, y, groups)

    assert false_alarms("group_column", of_groups) == 0


@pytest.mark.parametrize(
    ("aggregate", "size", "code"),
    [
        (LabelProportions(), 20, lambda y: 7 - 3 * y),
        (MultipleInstance(), 4, lambda y: y),
        (MultipleInstance(), 4, lambda y: 5 - y),
        (PairwiseSimilarity(), 2, lambda y: y + 3),
    ],
)
def test_the_label_among_the_features(aggregate, size, code):
    X, y, groups = made(0, size=size)
    X[:, 1] = code(y)
    message = the("answer_column", look_at(X, y, groups, aggregate=aggregate)).message
    assert "column 1 of X holds the observed labels" in message
    assert "as chance does" in message

    def nearly(seed):
        X, y, groups = made(seed, size=size)
        X[:, 1] = code(np.where(np.random.default_rng(seed).random(len(y)) < 0.2, 1 - y, y))
        return look_at(X, y, groups, aggregate=aggregate)

    assert false_alarms("answer_column", nearly) == 0


# After a fit.


def left_out(seed, change=lambda counts: counts, *, n_folds=4, k=2, rows=0.2, aggregate=None, **how):
    """Return groups, each held out by one of several models that were fitted to labels of a few rows."""
    X, y, groups = made(seed, k=k, **how)
    rng, ids = np.random.default_rng(seed), groups.segment.numpy()
    folds = rng.permutation(len(groups)) % n_folds
    said = []
    for fold in range(n_folds):
        used = np.flatnonzero(folds[ids] != fold)
        used = rng.choice(used, int(rows * len(used)), replace=False)
        model = LogisticRegression(C=100).fit(X[used], y[used])
        said.append(torch.from_numpy(model.predict_log_proba(X)))
    seen = Observations(aggregate or LabelProportions(), groups, change(counts_of(y, groups, k)), k)
    log_probs = torch.stack(said)[torch.from_numpy(folds[ids]), torch.arange(len(X))]
    return Context([seen], list(range(k)), log_probs=[log_probs], fold_log_probs=[said])


def examine(context):
    return run_checks("fit", context)


def test_dependence_inside_groups():
    found = [
        finding for seed in SEEDS for finding in examine(left_out(seed, common=2)) if "counts vary" in finding.message
    ]
    assert kinds(found) == ["overdispersion"] * len(SEEDS)
    scatter = [float(re.search(r"counts vary ([\d.]+) ± ", one.message)[1]) for one in found]
    assert min(scatter) > 2


def to_multiples_of_five(counts):
    return published.rounded((counts / 5).round() * 5, 5)


def with_noise(counts):
    how = noise.Geometric(0.5)
    return published.noisy(counts + how.sample(tuple(counts.shape), torch.Generator().manual_seed(0)), how)


@pytest.mark.parametrize("publish", [published.exact, to_multiples_of_five, with_noise])
def test_dependence_inside_groups_whose_counts_were_published(publish):
    def find(seed, common):
        return examine(left_out(seed, publish, common=common, aggregate=PublishedCounts()))

    found = [find(seed, 2) for seed in range(4)]
    assert [kinds(findings) for findings in found] == [["overdispersion"]] * 4
    assert re.search(r"held-out counts vary at least [1-9](\.\d)? ± ", found[0][0].message)
    assert [kinds(find(seed, 0)) for seed in range(4)] == [[]] * 4


def test_wrong_counts_are_named():
    def change(counts):
        return counts.index_copy(0, torch.tensor([7, 15]), counts[[7, 15]].flip(1))

    caught, named = 0, Counter()
    for seed in SEEDS:
        one = left_out(seed, change, size=50)
        findings = [finding for finding in examine(one) if finding.kind == "suspicious_groups"]
        groups = re.findall(r"group (\d+) has", findings[0].message) if findings else []
        named.update(groups)
        # Proportions near one half change little when they are turned round.
        far = (one.sets[0].checked[[7, 15], 0] - 25).abs() > 12
        caught += all(str(group) in groups for group, is_far in zip((7, 15), far, strict=True) if is_far)
    assert caught == len(SEEDS)
    assert named.keys() == {"7", "15"}


@pytest.mark.parametrize(
    "how",
    [{}, {"k": 3}, {"apart": 0}, {"size": 2, "n_groups": 300}, {"size": 200, "n_groups": 20}, {"rows": 0.05}],
    ids=str,
)
def test_clean_groups_are_hardly_ever_suspected(how):
    found = Counter(kind for seed in SEEDS for kind in kinds(examine(left_out(seed, **how))))
    assert found.total() == 0


@given(st.data())
def test_deviations_and_bounds_are_those_of_all_labels(data):
    size, k = data.draw(st.integers(1, 4)), data.draw(st.integers(2, 3))
    logits = data.draw(st.lists(st.floats(-4, 4), min_size=size * k, max_size=size * k))
    log_probs = torch.tensor(logits, dtype=torch.float64).view(size, k).log_softmax(1)
    labels = torch.tensor(list(itertools.product(range(k), repeat=size)))
    chance = log_probs[torch.arange(size), labels].sum(1).exp()
    counts = torch.nn.functional.one_hot(labels, k).sum(1)
    groups = Groups.from_sizes([size] * len(counts))
    seen = Observations(LabelProportions(), groups, counts, k)
    found = compute_deviations(seen, log_probs.repeat(len(counts), 1), [])
    zero = torch.zeros(k, dtype=torch.float64)
    torch.testing.assert_close(chance @ found.difference, zero, rtol=0, atol=1e-9)
    torch.testing.assert_close(chance @ found.difference.square(), found.variance[0])
    torch.testing.assert_close(float(chance @ found.ratio), 1.0)
    bounds = (-bound_exponents(found, groups.sizes)).exp()
    for difference, bound in zip(found.difference, bounds, strict=True):
        beyond = (found.difference * difference.sign() >= difference.abs() - 1e-9).double()
        assert bool((chance @ beyond <= bound + 1e-9).all())


@pytest.mark.parametrize("publish", [to_multiples_of_five, with_noise])
def test_the_variation_that_publication_adds_is_expected(publish):
    rng = torch.Generator().manual_seed(0)
    log_probs = torch.randn(2000, 20, 3, generator=rng, dtype=torch.float64).mul(0.5).log_softmax(2)
    labels = torch.distributions.Categorical(logits=log_probs).sample()
    groups = Groups.from_sizes([20] * 2000)
    seen = Observations(PublishedCounts(), groups, publish(counts_of(labels.flatten(), groups, 3)), 3)
    found = compute_deviations(seen, log_probs.flatten(0, 1), [])
    dispersion, error = found.dispersion(found.added.isfinite().all(1))
    assert error < 0.05
    assert abs(dispersion - 1) < 4 * error


def test_a_fit_warns_of_what_held_out_groups_show():
    X, y, groups = made(0, common=3, size=10)
    clf = AggregateClassifier(model="linear", random_state=0)
    assert "held-out counts vary" in warned(clf, X, counts_of(y, groups), groups=groups)
    assert "overdispersion" in kinds(clf.diagnosis_)
    X, y, groups = made(0, n_groups=400, size=10)  # with 60 groups, the estimated accuracy would be rough
    assert warned(clf, X, counts_of(y, groups), groups=groups) == ""
    assert clf.diagnosis_ == []


def test_a_fit_that_the_time_limit_ended_is_reported():
    X, y, groups = made(0, size=5)
    clf = AggregateClassifier(model="linear", time_limit=1e-6, random_state=0)
    assert "training ended at the limit of 1e-06 seconds" in warned(clf, X, counts_of(y, groups), groups=groups)
    assert "short_time" in kinds(clf.diagnosis_)


# New rows.


def test_groups_shifted_against_new_rows():
    X, _, groups = made(0)
    known = describe_features(X, [groups])
    new = made(1)[0]
    new[:, 3] += 3
    (found,) = find_shift(known, Moments.of(new), list("abcd"))
    assert found.message.startswith("the mean of 1 of 4 columns differs between these 1,200 rows and those of fit")
    assert re.search(r"d by \+2\.\d \(\d+ standard errors\)", found.message)
    # New groups have other means, by chance, and fewer or more rows.
    for n_groups, apart, seed in itertools.product((60, 5), (0, 1), SEEDS):
        X, _, groups = made(seed, apart=apart)
        new = made(100 + seed, apart=apart, n_groups=n_groups)[0]
        assert [*find_shift(describe_features(X, [groups]), Moments.of(new))] == []


# On the command line.


def say(*arguments):
    """Return what a command prints, without line breaks."""
    return " ".join(call(*arguments).output.split())


def test_commands_tell_of_copies_and_shift(tmp_path):
    X, y, groups = made(0, size=5)
    X = copied(X, groups)
    ids = groups.segment.tolist()
    counts = counts_of(y, groups).tolist()
    people, wards = tmp_path / "people.csv", tmp_path / "wards.csv"
    rows = [f"{g},{','.join(map(repr, row))}" for g, row in zip(ids, X.tolist(), strict=True)]
    people.write_text("\n".join(["ward,a,b,c,d", *rows]) + "\n")
    wards.write_text("\n".join(["ward,ill,well", *(f"{g},{a},{b}" for g, (a, b) in enumerate(counts))]) + "\n")
    (tmp_path / "new.csv").write_text("a,b,c,d\n" + "".join(f"{n % 7 + 20},1,1,1\n" for n in range(50)))
    said = say("check", people, wards)
    assert "of 300 rows" in said
    run = tmp_path / "run"
    said = say("fit", people, wards, "--out", run, "--model", "linear")
    assert "have an exact copy in another group" in said
    said = say("predict", run, tmp_path / "new.csv", "--out", tmp_path / "out.csv")
    assert "columns differs between these 50 rows and those of fit" in said


# Bad input and bad luck.


def test_one_group():
    X, y, groups = made(0, n_groups=1)
    with pytest.raises(ValueError, match="there is only 1 group, of 20 rows"):
        AggregateClassifier(model="linear").fit(X, counts_of(y, groups), groups=groups)


def test_constant_columns():
    X, y, groups = made(0, size=5)
    X[:, 1:3] = 7
    clf = AggregateClassifier(model="linear", validation=CrossFitting(2), random_state=0)
    warned(clf, X, counts_of(y, groups), groups=groups)
    assert np.isfinite(clf.predict_proba(X)).all()
    X[:] = 7
    with pytest.raises(ValueError, match="all 4 columns of X are the same in every row"):
        clf.fit(X, counts_of(y, groups), groups=groups)


def test_missing_columns():
    X, y, groups = made(0, size=5)
    X[:, 1] = np.nan
    clf = AggregateClassifier(model="linear", validation=CrossFitting(2), random_state=0)
    said = warned(clf, X, counts_of(y, groups), groups=groups)
    assert "column 1 of X: no value in any row of the groups, so that nothing can be learned from it" in said
    assert np.isfinite(clf.predict_proba(X)).all()
    with pytest.raises(ValueError, match="X, column b: the column has no values at all; leave it out"):
        AggregateClassifier().fit(pd.DataFrame(X, columns=list("abcd")), counts_of(y, groups), groups=groups)


def test_a_hundred_thousand_columns():
    X, y, groups = made(0, n_groups=10, size=4, columns=100_000)
    X = X.astype(np.float32)
    clf = AggregateClassifier(random_state=0)
    said = warned(clf, X, counts_of(y, groups), groups=groups)
    assert "10 groups can be compared in 9 ways, fewer than the 100,000 columns" in said
    assert [candidate["model"] for candidate in clf.candidates_] == ["linear"]
    assert np.isfinite(clf.predict_proba(X)).all()


def test_two_hundred_classes():
    X, _, groups = made(0, n_groups=60, size=4)
    y = np.arange(240) % 200
    clf = AggregateClassifier(model="linear", n_classes=200, validation=CrossFitting(2), random_state=0)
    said = warned(clf, X, counts_of(y, groups, 200), groups=groups)
    assert "of 60 groups vary in 49 of the 199 directions that 200 classes need" in said
    assert clf.predict_proba(X).shape == (240, 200)


@pytest.mark.parametrize(("share", "named"), [(0.9, False), (1.1, True)])
def test_groups_are_named_that_differ_more_than_the_others_do(share, named):
    """Counts that vary four times as much as those of independent members raise the bound by this factor."""
    n, size = 400, 10_000
    groups = Groups.from_sizes([size] * n)
    seen = Observations(LabelProportions(), groups, [[size // 2, size // 2]] * n, 2)
    variance = torch.full((n, 2), size / 4, dtype=torch.float64)
    normal = torch.from_numpy(norm.ppf((np.arange(n) + 0.5) / n))
    difference = 2 * torch.stack([normal, -normal], 1) * variance.sqrt()
    limit = (4 * np.log(2 * 2 * n / 0.01) * size / 2) ** 0.5  # where Hoeffding's bound has this exponent
    difference[7] = share * limit * torch.tensor([1.0, -1.0])
    zeros = torch.zeros_like(variance)
    found = find_improbable_groups(seen, Deviations(difference, variance, zeros, zeros))
    assert found.nonzero().flatten().tolist() == [7] * named


def test_moments_add_up():
    X = np.random.default_rng(0).normal(size=(50, 3))
    X[3:9, 1] = np.nan
    X[:20, 2] = np.nan
    parts, whole = Moments.of(X[:20]) + Moments.of(X[20:]), Moments.of(X)
    np.testing.assert_array_equal(whole.n, [50, 44, 30])
    for found in (parts, whole):
        np.testing.assert_allclose(found.mean, np.nanmean(X, 0))
        np.testing.assert_allclose(found.variance, np.nanvar(X, 0))
