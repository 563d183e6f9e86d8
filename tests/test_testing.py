"""Every aggregate of ours passes the public checks, and every check notices an aggregate that is wrong."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from oracles import Definition, count_of, counts, enumerate_group, majority
from torch import Tensor

import unbag
from unbag import Aggregate, Evidence, Groups, MultipleInstance
from unbag._kernels.segments import Segments
from unbag.testing import CHECKS, check_aggregate

INF = float("inf")

RIGHT = [
    ("PairwiseSimilarity", (), 4, (2,)),
    ("PairwiseSimilarity", (), 2, (2,)),
    ("TripletComparison", (), 3, (3,)),
    ("TripletComparison", (), 2, (3,)),
    ("MultipleInstance", (), 2, (1, 2, 4)),
    ("OrdinalRank", ("<",), 4, (2,)),
    ("OrdinalRank", (">",), 4, (2,)),
    ("OrdinalRank", ("<=",), 4, (2,)),
    ("OrdinalRank", (">=",), 4, (2,)),
    ("OrdinalTriplet", (), 4, (3,)),
    ("LabelProportions", (), 3, (1, 2, 4)),
    ("LabelProportions", (), 2, (1, 2, 5)),
    ("CountOf", (1,), 3, (1, 2, 4)),
    ("AtLeast", (2, 1), 3, (1, 2, 4)),
    ("Majority", (), 3, (1, 2, 4)),
    ("FromFold", (0, lambda total, label: (total + label) % 3, lambda total: total), 3, (1, 2, 4)),
    # A fold that depends on the order of members: how often a label exceeds the one before.
    ("FromFold", ((-1, 0), lambda at, y: (y, at[1] + (y > at[0])), lambda at: at[1]), 3, (1, 2, 4)),
    ("FromFunction", (majority,), 3, (1, 2, 4)),
    ("FromFunction", (lambda y: y[0] * y[1] + y[2],), 3, (3,)),
]


@pytest.mark.parametrize(("name", "arguments", "n_classes", "sizes"), RIGHT)
def test_our_aggregates_pass(name: str, arguments: tuple[Any, ...], n_classes: int, sizes: tuple[int, ...]) -> None:
    check_aggregate(getattr(unbag, name)(*arguments), n_classes=n_classes, sizes=sizes)


class Enumerated(Aggregate):
    """A right aggregate for wrong ones to spoil: any definition, by plain enumeration."""

    def __init__(self, definition: Definition) -> None:
        self.definition = definition

    def observe(self, labels: Any, groups: Groups, n_classes: int) -> Tensor:
        parts = groups.gather(torch.as_tensor(labels)).split(groups.sizes.tolist())
        return torch.tensor([self.definition(tuple(part.tolist())) for part in parts])

    def check(self, z: Any, groups: Groups, n_classes: int) -> Tensor:
        return torch.as_tensor(z)

    def infer(self, log_probs: Tensor, groups: Segments, z: Tensor) -> tuple[Tensor, Tensor]:
        parts = log_probs.split(groups.sizes.tolist())
        found = [self.infer_one(part, one) for part, one in zip(parts, z.tolist(), strict=True)]
        return log_probs.new_tensor([one[0] for one in found]), torch.cat([one[1] for one in found])

    def infer_one(self, log_probs: Tensor, z: Any) -> tuple[float, Tensor]:
        z = tuple(z) if isinstance(z, list) else z
        log_likelihood, posterior = enumerate_group(self.definition, log_probs.tolist(), z)
        return log_likelihood, log_probs.new_tensor(posterior)


@pytest.mark.parametrize("definition", [count_of(1), counts(2), lambda y: y], ids=["a number", "counts", "the labels"])
def test_enumerated_aggregates_pass(definition: Definition) -> None:
    check_aggregate(Enumerated(definition), n_classes=2, sizes=(1, 3))


# Wrong aggregates, under the check that notices them first.


def change_inference(change: Callable[..., tuple[Tensor, Tensor]]) -> Callable[[], Aggregate]:
    """Return a kind whose likelihood and posterior are right, and then changed."""

    class Changed(MultipleInstance):
        def infer(self, log_probs: Tensor, groups: Segments, z: Tensor) -> tuple[Tensor, Tensor]:
            return change(*super().infer(log_probs, groups, z), log_probs, groups, z)

    return Changed


def change_evidence(change: Callable[..., tuple[Tensor, Tensor]]) -> Callable[[], Aggregate]:
    """Return a kind whose differentiable evidence is right, and then changed."""

    class Changed(MultipleInstance):
        def evidence(self, logits: Tensor, groups: Groups, z: Any, **options: Any) -> Evidence:
            return Evidence(*change(*super().evidence(logits, groups, z, **options), logits))

    return Changed


takes_negatives_for_impossible = change_inference(lambda total, post, x, groups, z: (total.masked_fill(~z, -INF), post))
swaps_the_outcomes = change_inference(lambda total, post, x, groups, z: ((-total.expm1()).log(), post))
keeps_the_prior = change_inference(lambda total, post, x, groups, z: (total, x.exp()))
multiplies_probabilities = change_inference(
    lambda total, post, x, groups, z: (torch.where(z, total, total.exp().log()), post)
)
adds_an_epsilon = change_inference(lambda total, post, x, groups, z: ((total.exp() + 1e-30).log(), post))
detaches = change_evidence(lambda total, post, logits: (total.detach(), post))
ignores_the_incoming_gradient = change_evidence(lambda total, post, logits: (_IgnoreIncoming.apply(total), post))
stays_in_half_precision = change_evidence(lambda total, post, logits: (total.to(logits.dtype), post.to(logits.dtype)))


class RefusesPositives(MultipleInstance):
    def check(self, z: Any, groups: Groups, n_classes: int) -> Tensor:
        if bool(torch.as_tensor(z).all()):
            raise ValueError("there must be a negative bag")
        return super().check(z, groups, n_classes)


class _IgnoreIncoming(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, log_likelihood: Tensor) -> Tensor:
        return log_likelihood.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return torch.ones_like(grad)


class TakesRowsInOrder(MultipleInstance):
    def evidence(self, logits: Tensor, groups: Groups, z: Any, **options: Any) -> Evidence:
        return super().evidence(logits[: len(groups.members)], Groups.from_sizes(groups.sizes), z, **options)


class RemembersByLogits(MultipleInstance):
    """Keep posteriors for next time, without asking whether the groups are the same."""

    def __init__(self) -> None:
        self._memory: dict[bytes, Tensor] = {}

    def posterior(self, logits: Tensor, groups: Groups, z: Any, **options: Any) -> Tensor:
        return self._memory.setdefault(logits.numpy().tobytes(), super().posterior(logits, groups, z, **options))


class CountsThePadding(MultipleInstance):
    """Fill groups up to the largest with members of even odds."""

    def infer(self, log_probs: Tensor, groups: Segments, z: Tensor) -> tuple[Tensor, Tensor]:
        mask = torch.arange(groups.max_size) < groups.sizes[:, None]
        padded = torch.full((*mask.shape, 2), 0.5, dtype=log_probs.dtype).log()
        padded[mask] = log_probs
        largest = Segments.from_sizes([groups.max_size] * len(groups))
        log_likelihood, posterior = super().infer(padded.flatten(0, 1), largest, z)
        return log_likelihood, posterior.view(*mask.shape, 2)[mask]


class _LastWriteWins(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, rows: Tensor) -> Tensor:
        ctx.table, ctx.rows = table, rows
        return table[rows]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        result = torch.zeros_like(ctx.table)
        result[ctx.rows] = grad
        return result, None


class LastWriteWins(MultipleInstance):
    def evidence(self, logits: Tensor, groups: Groups, z: Any, **options: Any) -> Evidence:
        rows = _LastWriteWins.apply(logits, groups.members)
        return super().evidence(rows, Groups.from_sizes(groups.sizes), z, **options)


class NothingIsImpossible(MultipleInstance):
    def infer(self, log_probs: Tensor, groups: Segments, z: Tensor) -> tuple[Tensor, Tensor]:
        return super().infer(log_probs.clamp_min(-1e6), groups, z)


class NeverRaises(MultipleInstance):
    def evidence(self, logits: Tensor, groups: Groups, z: Any, **options: Any) -> Evidence:
        return super().evidence(logits, groups, z)


class RaisesTooOften(MultipleInstance):
    def evidence(self, logits: Tensor, groups: Groups, z: Any, **options: Any) -> Evidence:
        if options.get("impossible") == "raise" and bool(logits.isinf().any()):
            raise unbag.ImpossibleObservation("a logit is -inf")
        return super().evidence(logits, groups, z, **options)


class ExpectsTheOpposite(MultipleInstance):
    def expect(self, log_probs: Tensor, groups: Groups) -> Tensor:
        return 1 - super().expect(log_probs, groups)


WRONG: list[tuple[str, Callable[[], Aggregate], str]] = [
    ("observations", RefusesPositives, "raised ValueError: there must be a negative bag"),
    ("observations", takes_negatives_for_impossible, r"\(1 members, z = 0\): expected a finite .*, got -inf"),
    ("likelihood", swaps_the_outcomes, r"log-likelihood of group 0 \(1 members, z = 0\): expected -"),
    ("posterior", keeps_the_prior, r"posterior of group 0 \(1 members, z = 0\): expected \[1.0, 0.0\], got \[0"),
    ("gradient", detaches, "the log-likelihood must have a gradient"),
    ("gradient", ignores_the_incoming_gradient, "GradcheckError"),
    ("row_order", TakesRowsInOrder, "log-likelihood with rows renumbered"),
    ("group_order", RemembersByLogits, "posterior with groups reordered"),
    ("unequal_sizes", CountsThePadding, "log-likelihood in a batch of unequal sizes"),
    ("shared_rows", LastWriteWins, "gradient with rows shared"),
    ("precision", stays_in_half_precision, "log_likelihood of torch.bfloat16 logits: expected torch.float32"),
    (
        "finite",
        multiplies_probabilities,
        "log-likelihood of extreme torch.float32 logits .*: expected finite, got -inf",
    ),
    ("extremes", adds_an_epsilon, "log-likelihood of extreme logits .*, got -69"),
    ("impossible", NothingIsImpossible, "log-likelihood of logits with -inf .*: expected -inf, got -1"),
    ("impossible", NeverRaises, "expected ImpossibleObservation"),
    ("impossible", RaisesTooOften, "it raised ImpossibleObservation: a logit is -inf"),
    ("expectation", ExpectsTheOpposite, r"expected observation of group 0 \(1 members, z = 0\): expected 0"),
]


@pytest.mark.parametrize(("check", "make", "words"), WRONG)
def test_wrong_aggregates_fail_first_where_they_are_wrong(
    check: str, make: Callable[[], Aggregate], words: str
) -> None:
    aggregate = make()
    with pytest.raises(AssertionError, match=words) as whole:
        check_aggregate(aggregate, n_classes=2, sizes=(1, 2, 4))
    with pytest.raises(AssertionError, match=words) as alone:
        check_aggregate(aggregate, n_classes=2, sizes=(1, 2, 4), checks=(check,))
    for failure in (whole, alone):
        assert str(failure.value).startswith(f"{aggregate!r} fails the check {check!r} (n_classes=2, sizes=(1, 2, 4)")


def test_every_check_notices_a_wrong_aggregate() -> None:
    assert {check for check, _, _ in WRONG} == set(CHECKS)


def test_what_an_aggregate_raises_is_told_with_the_check() -> None:
    class Breaks(MultipleInstance):
        def infer(self, log_probs: Tensor, groups: Segments, z: Tensor) -> tuple[Tensor, Tensor]:
            raise RuntimeError("out of ideas")

    with pytest.raises(AssertionError, match=r"fails the check 'likelihood' .*: it raised RuntimeError: out of ideas"):
        check_aggregate(Breaks(), n_classes=2, checks=("likelihood",))


def test_results_of_the_wrong_shape_are_told() -> None:
    class OneForAll(MultipleInstance):
        def evidence(self, logits: Tensor, groups: Groups, z: Any, **options: Any) -> Evidence:
            found = super().evidence(logits, groups, z, **options)
            return Evidence(found.log_likelihood.sum(), found.posterior)

    with pytest.raises(AssertionError, match=r"log-likelihood: expected shape \(6,\), got shape \(\)"):
        check_aggregate(OneForAll(), n_classes=2, checks=("likelihood",))


def test_observations_that_grow_with_the_group_are_checked_size_by_size() -> None:
    check_aggregate(Enumerated(lambda y: tuple(sorted(y))), n_classes=2, sizes=(2, 3), checks=("unequal_sizes",))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sizes": (3, 15), "n_classes": 2}, "groups of 15 with 2 classes have 32,768 label vectors"),
        ({"sizes": ()}, "sizes must contain at least one size"),
        ({"n_classes": 1}, "n_classes must be a whole number of at least 2"),
        ({"checks": ("likelyhood",)}, "there is no check 'likelyhood'; the checks are observations, "),
        ({"sizes": (2,), "n_classes": 3}, "MultipleInstance has two classes"),
    ],
)
def test_what_cannot_be_checked_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        check_aggregate(MultipleInstance(), **options)


def test_observe_must_return_one_observation_per_group() -> None:
    class Lumps(MultipleInstance):
        def observe(self, labels: Any, groups: Groups, n_classes: int) -> Tensor:
            return super().observe(labels, groups, n_classes).sum()

    with pytest.raises(ValueError, match=r"observe must return one observation per group, shape \(8,\)"):
        check_aggregate(Lumps(), n_classes=2)
