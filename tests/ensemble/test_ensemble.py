"""Jobs, mixtures and the estimate of accuracy, with learners whose paths are known."""

import os
import re
import signal
import time
import warnings
from dataclasses import dataclass, field
from io import StringIO
from itertools import product

import numpy as np
import pytest
import torch
from known_paths import Path, Scaled, make_problem
from rich.console import Console

from unbag import AggregateClassifier, CrossFitting, Groups, LabelProportions, PairwiseSimilarity
from unbag._utils.findings import UnbagWarning
from unbag.aggregates.registry import find_aggregate
from unbag.data.labels import Categorical
from unbag.ensemble import (
    HeldOut,
    Progress,
    Schedule,
    accuracy,
    estimate_accuracy,
    fit_candidates,
    fit_ensemble,
    fit_mixture,
)
from unbag.learners import Problem
from unbag.training import Observations


def test_a_path_ends_when_its_held_out_score_stops_improving_and_all_folds_take_the_best_step_together():
    problem, _ = make_problem(200)
    learner = Path("ridge", (0.1, 1.0, 3.0, 40.0, 50.0, 60.0, 70.0))
    (candidate,) = fit_candidates(problem, Schedule(((learner,),), patience=2))
    assert candidate.step == 2
    assert {model.factor for model in candidate.models} == {3.0}
    assert candidate.n_steps == 5  # two steps after the best one
    scores = [entry["score"] for entry in candidate.history]
    assert scores.index(max(scores)) == 2


def test_steps_are_scored_at_the_best_of_some_temperatures():
    problem, _ = make_problem(200)  # the right factor is 3
    learner = Path("confident", (1.5, 60.0))
    for sharpness, step in (((1.0,), 0), ((0.05, 1.0), 1)):
        (candidate,) = fit_candidates(problem, Schedule(((learner,),), sharpness=sharpness))
        assert candidate.step == step


def test_out_of_fold_outputs_are_those_of_the_model_that_did_not_see_the_row():
    problem, _ = make_problem(12)

    @dataclass(frozen=True)
    class Seen(Path):
        def path(self, problem, start, seed):
            seen = problem.rows
            yield Constant(seen)

    @dataclass(frozen=True)
    class Constant:
        seen: torch.Tensor

        def outputs(self, X):
            known = (X[:, None] == everything[self.seen][None]).all(2).any(1)
            return torch.stack([known.float(), torch.zeros(len(X))], 1)

    everything = problem.X
    (candidate,) = fit_candidates(problem, Schedule(((Seen("seen", ()),),)))
    assert candidate.out_of_fold.shape == (48, 2)
    assert not candidate.out_of_fold.any()  # no row was predicted by a model that had seen it


def test_an_unpromising_learner_runs_on_the_first_fold_only():
    problem, _ = make_problem(60)
    good, bad = Path("good", (3.0,)), Path("bad", (-3.0,))
    pruned = fit_candidates(problem, Schedule(((good, bad),), min_relative_gain=0.7))
    assert [c.name for c in pruned] == ["good"]
    everything = fit_candidates(problem, Schedule(((good, bad),), min_relative_gain=0.0))
    assert [c.name for c in everything] == ["good", "bad"]


def test_a_bar_shows_the_number_of_jobs_from_the_beginning():
    console = Console(file=StringIO(), force_terminal=True)
    fit_candidates(
        make_problem(60)[0], Schedule(((Path("ridge", (3.0,)),),), progress=Progress(shown=True, console=console))
    )
    assert re.findall(r"job (\d+ of \w+)", console.file.getvalue())[0] == "1 of 4"


def test_learners_without_any_model_are_an_error():
    with pytest.raises(ValueError, match="too few rows to fit trees; collect more rows, or choose model='linear'"):
        fit_candidates(make_problem(60)[0], Schedule(((Path("trees", ()),),)))


def test_later_stages_start_from_earlier_models_weighted_by_their_held_out_likelihood():
    problem, _ = make_problem(60)
    starts = []

    @dataclass(frozen=True)
    class Recorder(Path):
        def path(self, problem, start, seed):
            starts.append((problem.X, start))
            yield Scaled(1.0)

    schedule = Schedule(((Path("weak", (0.5,)), Path("strong", (3.0,))), (Recorder("next", ()),)))
    fit_candidates(problem, schedule)
    assert len(starts) == 4
    for X, start in starts:
        nearest, weak = ((start.softmax(1) - (factor * X).softmax(1)).abs().max() for factor in (3.0, 0.5))
        assert 0 < nearest < 0.01 < weak


@pytest.mark.parametrize("n_jobs", [2, 3])
def test_the_result_does_not_depend_on_the_number_of_jobs(n_jobs):
    problem, _ = make_problem(40)
    stages = ((Path("a", (0.5, 1, 2)), Path("b", (4, 3))), (Path("c", (2.5, 2)),))
    one = fit_ensemble(problem, Schedule(stages, n_jobs=1))
    several = fit_ensemble(problem, Schedule(stages, n_jobs=n_jobs))
    assert torch.equal(one.out_of_fold, several.out_of_fold)
    assert torch.equal(one.weights, several.weights)


@dataclass
class Clock:
    """A clock that learners move on."""

    now: float = 0.0

    def __call__(self):
        return self.now


@dataclass(frozen=True)
class Slow(Path):
    """A learner whose steps take a second of a clock."""

    clock: Clock = field(default_factory=Clock)

    def prepare(self, problem, seed):
        return self

    def path(self, problem, start, seed):
        for factor in self.factors:
            self.clock.now += 1
            yield Scaled(factor)


@pytest.mark.parametrize(
    ("deadline", "expected"),
    [
        (100.0, {"first": 4, "second": 4}),  # all: 5 and 2 seconds for each fold
        (21.0, {"first": 4}),  # no fold of the second learner would end in time
        (6.0, {"first": 4}),  # each fold has a share of the time
        (2.5, {"first": 3}),  # the first folds alone
        (0.0, {"first": 1}),  # at least one step
    ],
)
def test_a_deadline_ends_paths_and_keeps_what_is_ready(deadline, expected):
    problem, _ = make_problem(60)
    clock = Clock()
    stages = ((Slow("first", (0.5, 1.0, 2.0, 3.0, 3.0), clock=clock),), (Slow("second", (2.0, 3.0), clock=clock),))
    candidates = fit_candidates(problem, Schedule(stages, deadline=deadline, clock=clock, min_relative_gain=0))
    assert {c.name: len(c.models) for c in candidates} == expected
    assert clock.now <= deadline + 1  # the step that was begun


def test_a_result_of_some_folds_predicts_only_their_groups():
    problem, _ = make_problem(60)
    clock = Clock()
    schedule = Schedule(((Slow("only", (2.0,), clock=clock),),), deadline=2.5, clock=clock)
    mixture = fit_ensemble(problem, schedule)
    folds = schedule.assign_folds(problem, mixture.n_folds)
    assert mixture.n_folds == 3
    assert torch.equal(folds >= 0, mixture.out_of_fold.isfinite().all(1))


def test_an_interrupt_keeps_finished_candidates():
    problem, _ = make_problem(40)

    @dataclass(frozen=True)
    class Interrupted(Path):
        def path(self, problem, start, seed):
            raise KeyboardInterrupt
            yield

    stages = ((Path("first", (3.0,)),), (Interrupted("second", ()),))
    assert [c.name for c in fit_candidates(problem, Schedule(stages))] == ["first"]
    with pytest.raises(KeyboardInterrupt):
        fit_candidates(problem, Schedule(stages[1:]))


@pytest.fixture
def interruptible():
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)  # background processes may ignore interrupts
    yield
    signal.signal(signal.SIGINT, usual)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_from_the_keyboard_ends_jobs_with_their_step():
    problem, _ = make_problem(40)

    @dataclass(frozen=True)
    class Slow(Path):
        def path(self, problem, start, seed):
            yield Scaled(1.0)
            os.kill(os.getpid(), signal.SIGINT)
            while problem.watch.seconds_left() > 0:
                time.sleep(0.01)
            yield Scaled(2.0)
            raise AssertionError

    (candidate,) = fit_candidates(problem, Schedule(((Slow("slow", ()),), (Path("never", (3.0,)),))))
    assert (candidate.name, candidate.step, candidate.models[0].factor) == ("slow", 1, 2.0)


def test_without_held_out_groups_a_path_has_a_fixed_length():
    problem, _ = make_problem(1)
    learner = Path("only", (0.5, 1.0, 2.0, 4.0))
    mixture = fit_ensemble(problem, Schedule(((learner,),), n_folds=0, blind_steps=3))
    assert mixture.candidates[0].models[0].factor == 2.0
    assert not mixture.out_of_fold.isfinite().any()


def test_a_mixture_prefers_the_better_candidate_and_corrects_its_temperature():
    problem, _ = make_problem(4500, sharpness=2.0)
    candidates = fit_candidates(
        problem, Schedule(((Path("sharp", (8.0,)), Path("wrong", (-1.0,))),), min_relative_gain=0)
    )
    mixture = fit_mixture(candidates, problem)
    assert [c.name for c in mixture.candidates] == ["sharp"]
    assert float(mixture.weights[0]) == pytest.approx(1, abs=1e-6)
    assert float(mixture.sharpness[0]) == pytest.approx(0.25, abs=0.06)
    torch.testing.assert_close(mixture.log_probs(problem.X), mixture.out_of_fold)


def test_few_groups_hardly_prefer_a_candidate():
    problem, _ = make_problem(12)
    learners = Path("right", (3.0,)), Path("nearly", (2.5,))
    mixture = fit_mixture(fit_candidates(problem, Schedule((learners,), min_relative_gain=0)), problem)
    assert [c.name for c in mixture.candidates] == ["right", "nearly"]
    assert float(mixture.weights.min()) > 0.4


def test_the_search_for_a_mixture_ends_when_time_is_up():
    problem, _ = make_problem(100)
    candidates = fit_candidates(
        problem, Schedule(((Path("sharp", (8.0,)), Path("flat", (0.1,))),), min_relative_gain=0)
    )
    early, late = fit_mixture(candidates, problem, lambda: True), fit_mixture(candidates, problem)
    assert early.score < late.score


def test_models_with_exchanged_classes_are_aligned_before_they_are_averaged():
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(80, 2, generator=generator)
    groups = Groups.from_sizes([2] * 40)
    z = PairwiseSimilarity().observe(X.argmax(1), groups, 2)
    problem = Problem.create(X, [Observations(PairwiseSimilarity(), groups, z, 2)], Categorical(2))

    @dataclass(frozen=True)
    class Unnamed(Path):
        def path(self, problem, start, seed):
            yield Scaled(3.0 if seed % 2 else -3.0)

    def align(first, second):
        order = np.arange(2)
        return order if float((first * second).sum()) > float((first * second[:, [1, 0]]).sum()) else order[::-1].copy()

    (candidate,) = fit_candidates(problem, Schedule(((Unnamed("unnamed", ()),),)), align)
    agreement = (candidate.outputs(X).argmax(1) == X.argmax(1)).float().mean()
    assert float(agreement) in (0.0, 1.0)
    assert len({tuple(order) for order in candidate.orders}) == 2


def test_the_estimate_is_the_posterior_probability_of_the_predicted_label_by_enumeration(monkeypatch):
    monkeypatch.setattr(accuracy, "LOG_SHARPNESS", np.zeros(1))
    problem, _ = make_problem(12, size=3)
    log_probs = torch.randn(36, 2, generator=torch.Generator().manual_seed(1)).log_softmax(1).double()
    total = 0.0
    for g in range(12):
        rows = range(3 * g, 3 * g + 3)
        weight = {}
        for labels in product(range(2), repeat=3):
            if sum(labels) == int(problem.sets[0].z[g, 1]):
                weight[labels] = float(sum(log_probs[r, y] for r, y in zip(rows, labels, strict=True)).exp())
        for place, row in enumerate(rows):
            predicted = int(log_probs[row].argmax())
            total += sum(w for y, w in weight.items() if y[place] == predicted) / sum(weight.values())
    estimate = estimate_accuracy(HeldOut.gather(problem, log_probs, [log_probs], torch.zeros(36).long()))
    assert estimate.value == pytest.approx(total / 36, abs=1e-9)
    assert estimate.low < estimate.value < estimate.high


def test_an_estimate_corrects_the_temperature_and_adds_what_the_mean_of_models_gains():
    problem, labels = make_problem(400, size=16, sharpness=2.0)
    X, generator = problem.X, torch.Generator().manual_seed(2)
    noisy = [(4 * (X + 0.5 * torch.randn(X.shape, generator=generator))).log_softmax(1) for _ in range(4)]
    folds = torch.arange(6400) // 16 % 4
    out_of_fold = torch.stack(noisy)[folds, torch.arange(6400)]
    estimate = estimate_accuracy(HeldOut.gather(problem, out_of_fold, noisy, folds))
    alone = np.mean([(n.argmax(1) == labels).double().mean().item() for n in noisy])
    together = (torch.stack(noisy).exp().mean(0).argmax(1) == labels).double().mean().item()
    assert together - alone > 0.02
    assert abs(estimate.value - together) < 0.015
    assert estimate.low < together < estimate.high
    confidence = out_of_fold.amax(1).exp().mean().item()
    assert confidence - alone > 0.05


def test_the_gain_of_the_mean_is_extrapolated_from_one_model_less():
    """Each row is a group of one with the label 0, so that every probability of being right is 0 or 1."""
    rows = torch.arange(720)
    seen = Observations(LabelProportions(), Groups.from_sizes([1] * 720), torch.tensor([[1, 0]] * 720), 2)
    problem = Problem.create(torch.zeros(720, 2), [seen], Categorical(2))
    folds, place = rows // 24 % 3, rows % 24
    chances = torch.full((3, 720), 0.9)
    for fold in range(3):  # each model is wrong in 4 of 24 rows, the mean of the two others in 2
        chances[fold, (place < 9) & (place % 3 == fold)] = 0.4
        chances[fold, place == 9 + fold] = 0.05
    by_fold = [*torch.stack([chances, 1 - chances], 2).log()]
    out_of_fold = torch.stack(by_fold)[folds, rows]
    estimate = estimate_accuracy(HeldOut.gather(problem, out_of_fold, by_fold, folds))
    assert estimate.value == pytest.approx(20 / 24 + 2 / 24 * (1 - 1 / 3) / (1 - 1 / 2), abs=1e-3)


def test_observing_groups_twice_makes_no_interval_narrower():
    problem, _ = make_problem(40, size=16)
    (s,) = problem.sets
    twice = s.take(torch.arange(40).repeat(2))
    halves = []
    for sets, folds in (((s,), torch.arange(640) // 16 % 4), ((twice,), torch.arange(1280) // 16 % 40 % 4)):
        observed = Problem.create(problem.X, sets, problem.labels)
        log_probs = (3.0 * problem.X).log_softmax(1)
        held_out = HeldOut.gather(observed, log_probs[observed.members], [log_probs] * 4, folds)
        estimate = estimate_accuracy(held_out)
        halves.append(estimate.high - estimate.low)
    assert halves[1] > 0.83 * halves[0]  # of which the uncertainty of the temperature is a part


def test_groups_of_similar_rows_have_an_estimate_for_new_groups_too():
    generator = torch.Generator().manual_seed(3)
    of_groups = torch.randint(0, 2, (30,), generator=generator)
    groups = Groups.from_sizes([60] * 30)
    labels = of_groups.repeat_interleave(60)
    z = LabelProportions().observe(labels, groups, 2)
    problem = Problem.create(torch.zeros(1800, 1), [Observations(LabelProportions(), groups, z, 2)], Categorical(2))
    seen = (torch.nn.functional.one_hot(labels, 2) * 0.9 + 0.05).log()
    folds = torch.arange(1800) // 60 % 5
    wrong = torch.isin(torch.arange(30), torch.randperm(30, generator=generator)[:9]).repeat_interleave(60)
    out_of_fold = torch.where(wrong[:, None], seen.flip(1), seen)
    estimate = estimate_accuracy(HeldOut.gather(problem, out_of_fold, [seen] * 5, folds))
    assert estimate.new_groups.value == pytest.approx(0.7, abs=0.01)
    assert estimate.value > 0.9
    assert estimate.low < 0.98


def test_no_accuracy_is_estimated_from_few_groups():
    problem, _ = make_problem(10)
    log_probs = torch.zeros(40, 2).log_softmax(1)
    assert estimate_accuracy(HeldOut.gather(problem, log_probs, [log_probs], torch.arange(40) // 40)) is None


def test_rows_that_were_seen_in_other_groups_do_not_count_in_the_estimate(monkeypatch):
    monkeypatch.setattr(accuracy, "LOG_SHARPNESS", np.zeros(1))
    X = torch.zeros(40, 2)
    labels = torch.zeros(40, dtype=torch.int64)
    pairs = Groups.from_tuples([[row, row + 20] for row in range(20)] + [[row, row + 1] for row in range(5)])
    z = PairwiseSimilarity().observe(labels, pairs, 2)
    problem = Problem.create(X, [Observations(PairwiseSimilarity(), pairs, z, 2)], Categorical(2))
    folds = torch.cat([torch.zeros(40), torch.ones(10)]).long()
    log_probs = torch.tensor([[0.9, 0.1]]).log().repeat(50, 1)
    seen = problem.members < 6
    log_probs[seen] = torch.tensor([0.5, 0.5]).log()
    by_fold = [torch.tensor([[0.9, 0.1]]).log().repeat(40, 1)] * 2
    estimate = estimate_accuracy(HeldOut.gather(problem, log_probs, by_fold, folds))
    certain = 0.9 * 0.9 / (0.9 * 0.9 + 0.1 * 0.1)
    new = estimate.new_groups or estimate
    assert new.value == pytest.approx((6 * 0.9 + 28 * certain) / 34, abs=1e-6)


def test_a_mixture_is_calibrated_to_an_accuracy():
    problem, _ = make_problem(60)
    mixture = fit_ensemble(problem, Schedule(((Path("only", (3.0,)),),)))
    for accuracy_of_rows in (0.8, 0.88):
        calibrated = mixture.calibrate(problem.X, accuracy_of_rows)
        assert calibrated.log_probs(problem.X).amax(1).exp().mean().item() == pytest.approx(accuracy_of_rows, abs=0.002)
        assert torch.equal(calibrated.fold_log_probs(problem.X, 0), mixture.fold_log_probs(problem.X, 0))


def test_a_start_is_no_candidate_but_later_learners_begin_with_it():
    problem, _ = make_problem(60)
    begun = []

    @dataclass(frozen=True)
    class Recorder(Path):
        def path(self, problem, start, seed):
            begun.append(torch.allclose(start.softmax(1), (3.0 * problem.X).softmax(1)))
            yield Scaled(2.0)

    schedule = Schedule(((Recorder("only", ()),),), starts=(Path("start", (3.0,)),))
    assert [c.name for c in fit_candidates(problem, schedule)] == ["only"]
    assert begun == [True] * 4


def test_small_improvements_do_not_keep_a_path_going():
    problem, _ = make_problem(200)
    factors = (0.1, 1.0, 2.0, 2.001, 2.002, 2.003, 2.004)
    (every,) = fit_candidates(problem, Schedule(((Path("slow", factors),),)))
    (some,) = fit_candidates(problem, Schedule(((Path("slow", factors),),), min_step_gain=0.01))
    assert (every.n_steps, some.n_steps) == (7, 5)


@pytest.mark.parametrize("kind", ["counts", "pairs", "bags"])
def test_a_fit_of_the_default_is_the_same_with_any_number_of_jobs(kind):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 120)
    X = rng.normal(size=(120, 3)) + 2 * labels[:, None]
    X[rng.random(X.shape) < 0.05] = np.nan
    aggregate, groups = {
        "counts": ("label_proportions", Groups.from_sizes([4] * 30)),
        "pairs": ("pairwise_similarity", Groups.from_tuples(rng.integers(0, 120, (90, 2)))),
        "bags": ("multiple_instance", Groups.from_sizes([3] * 40)),
    }[kind]
    z = find_aggregate(aggregate).observe(labels, groups, 2)
    validation = CrossFitting(2)
    probabilities = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnbagWarning)
        for n_jobs in (1, 3):
            clf = AggregateClassifier(aggregate, n_classes=2, validation=validation, n_jobs=n_jobs, random_state=0)
            probabilities.append(clf.fit(X, z, groups=groups).predict_proba(X))
    assert np.array_equal(*probabilities)
    hits = (probabilities[0].argmax(1) == labels).mean()
    assert max(hits, 1 - hits if kind == "pairs" else 0) > 0.9
