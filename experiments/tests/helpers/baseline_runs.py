"""Tasks that any method learns in a second, and what a runner of experiments does with a method."""

from __future__ import annotations

import torch
from torch import Tensor

import unbag
from unbag import Groups
from unbag.training import Observations, Settings, train
from unbag_experiments.baselines import Judged, Method, Task, accuracy

AGGREGATES = {
    "pairwise_similarity": (unbag.PairwiseSimilarity(), 2),
    "triplet_comparison": (unbag.TripletComparison(), 3),
    "label_proportions": (unbag.LabelProportions(), 4),
    "ordinal_rank": (unbag.OrdinalRank(), 2),
    "ordinal_triplet": (unbag.OrdinalTriplet(), 3),
}
QUICK = Settings(epochs=10, warm_up=5, remember_from=5, batch_size=20, learning_rate=0.05)


def task(problem: str, k: int = 3, n_groups: int = 240) -> Task:
    """Return rows around k corners, the first half of them to train on, with groups drawn from these."""
    if problem == "multiple_instance":
        return bags_task()
    aggregate, size = AGGREGATES[problem]
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(300) % k
    X = torch.randn(300, k, generator=generator) + 5 * torch.eye(k)[labels]
    train_rows, validation, test = torch.randperm(300, generator=generator).split([150, 75, 75])
    drawn = train_rows[torch.randint(150, (n_groups, size), generator=generator)]
    groups = Groups.from_tuples(drawn, n_rows=300)
    seen = Observations(aggregate, groups, aggregate.observe(labels, groups, k), k)
    # Differences of ranks are the same from either end.
    unnamed = problem in ("pairwise_similarity", "triplet_comparison", "ordinal_triplet")
    return Task(
        X, seen, train_rows, labels, Judged(validation, labels[validation]), Judged(test, labels[test]), k, unnamed
    )


def bags_task(n_bags: int = 320) -> Task:
    """Return bags of one to four rows in no order of the table; those of class 1 are far from the others."""
    generator = torch.Generator().manual_seed(1)
    sizes = torch.randint(1, 5, (n_bags,), generator=generator)
    n = int(sizes.sum())
    labels = (torch.rand(n, generator=generator) < 0.25).long()
    X = torch.randn(n, 3, generator=generator) + 5 * labels[:, None]
    all_bags = Groups.from_offsets(
        torch.cat([torch.zeros(1, dtype=torch.int64), sizes.cumsum(0)]), torch.randperm(n, generator=generator)
    )
    z = unbag.MultipleInstance().observe(labels, all_bags, 2)
    half, rest, last = torch.arange(n_bags).split([n_bags // 2, n_bags // 4, n_bags // 4])
    training = all_bags.take(half)
    seen = Observations(unbag.MultipleInstance(), training, z[half], 2)

    def judged(which: Tensor) -> Judged:
        chosen = all_bags.take(which)
        return Judged(chosen.members, z[which], Groups.from_sizes(chosen.sizes))

    return Task(X, seen, training.members, None, judged(rest), judged(last), 2, False)


def run(method: Method, given: Task, settings: Settings = QUICK, seeds: tuple[int, ...] = (2,)) -> list[float]:
    """Return the accuracy on the test of each replica, at the epoch that validation chose."""
    own = method.prepare(given)

    def score(predict):
        outputs = predict(own.X[own.validation.rows])  # (replicas, n, width)
        return torch.tensor([judge(method, one, own.validation, own) for one in outputs])

    trained = train(
        lambda: method.make_model("linear", tuple(own.X.shape[1:]), own.n_classes),
        own.X,
        [own.observations],
        method.settings(settings),
        seeds=seeds,
        score=score,
        objective=method.objective,
    )
    with torch.no_grad():
        return [judge(method, model(own.X[own.test.rows]), own.test, own) for model in trained.models]


def judge(method: Method, outputs: Tensor, judged: Judged, own: Task) -> float:
    """Return the accuracy of what a method makes of outputs."""
    return accuracy(method.predict(outputs, judged, own), judged.truth, own.permuted)
