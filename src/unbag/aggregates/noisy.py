"""Answers of yes or no that are wrong at some rate, by mistake or on purpose, as in randomised response."""

from __future__ import annotations

import math
from typing import Any, Literal, TypeGuard

import torch
from torch import Tensor

from unbag._kernels.segments import Segments
from unbag._utils.checks import format_indices
from unbag.aggregates.base import Aggregate, Evidence, check_binary
from unbag.data.alignment import read_per_group
from unbag.data.groups import Groups

Rate = float | tuple[float, float] | Literal["fit"]

FIRST_RATE = 0.4
"""Of answers whose rate is to be fitted: a model that doubts answers finds those that fit to no others; one that trusts
them learns the wrong ones, too."""


class Noisy(Aggregate):
    """Any observation of yes or no, with a rate of wrong answers.

    ``p(z | x) = (1 - rate) p(answer = z | x) + rate p(answer != z | x)``. Randomised response is the same: who answers
    truthfully with probability q and by a coin otherwise is wrong at a rate of ``(1 - q) / 2``.

    Observations are 0 or 1, one per group; or (groups, 2), the answer and its own rate.

    Parameters
    ----------
    aggregate
        What is answered: ``PairwiseSimilarity()``, ``MultipleInstance()``, ``OrdinalRank()`` or any other of yes or no.
    rate
        How often answers are wrong, from 0 to less than 1; or two rates, of a true no and of a true yes. Above one
        half, answers would be the contrary. Or ``"fit"``, with which :class:`AggregateClassifier` finds one rate, from
        left-out answers; its ``aggregate_`` has it. Without being fitted, it is 0.4.
    seed
        For :meth:`observe`: of the wrong answers.

    Examples
    --------
    >>> from unbag import PairwiseSimilarity
    >>> pairs = Groups.from_tuples([[0, 1], [1, 2]])
    >>> certain = torch.tensor([[50.0, 0.0], [50.0, 0.0], [0.0, 50.0]])
    >>> Noisy(PairwiseSimilarity(), rate=0.1).log_likelihood(certain, pairs, [1, 1]).exp()
    tensor([0.9000, 0.1000])
    """

    outcome = "yes_no"
    is_noisy = True

    def __init__(self, aggregate: Aggregate, rate: Rate = 0.1, seed: int = 0) -> None:
        if not isinstance(aggregate, Aggregate) or aggregate.outcome != "yes_no" or isinstance(aggregate, Noisy):
            raise ValueError(
                f"aggregate must observe yes or no, such as unbag.PairwiseSimilarity(); got {aggregate!r}; noise on "
                "counts is a matter of unbag.PublishedCounts"
            )
        self.fits_rate = isinstance(rate, str) and rate == "fit"
        first = FIRST_RATE if self.fits_rate else rate
        rates = tuple(first) if isinstance(first, tuple | list) else (first, first)
        if len(rates) != 2 or not all(isinstance(one, int | float) and 0 <= one < 1 for one in rates):
            raise ValueError(f'rate must be a number from 0 to less than 1, or two of them, or "fit", got {rate!r}')
        self.aggregate, self.seed, self._rates = aggregate, seed, rates
        self.rate = "fit" if self.fits_rate else rates[0] if rates[0] == rates[1] else rates
        for fact in ("name", "size", "n_classes", "weights", "wording", "column"):
            setattr(self, fact, getattr(aggregate, fact, None))

    def observe(self, labels: Any, groups: Groups, n_classes: int) -> Tensor:
        truth = self.aggregate.observe(labels, groups, n_classes)
        drawn = torch.rand(len(truth), generator=torch.Generator().manual_seed(self.seed)).to(truth.device)
        return torch.where(drawn < torch.tensor(self._rates).to(drawn)[truth], 1 - truth, truth)

    def check(self, z: Any, groups: Groups, n_classes: int) -> Tensor:
        """Return the answer, and the rates of a wrong one where the truth is no and where it is yes: (groups, 3)."""
        z = read_per_group(z, groups)
        if z.ndim == 1:
            answers, rates = z, torch.tensor(self._rates, dtype=torch.float64, device=z.device).expand(len(z), 2)
        elif z.ndim == 2 and z.shape[1] == 2 and self.fits_rate:
            raise ValueError('z holds a rate for each answer, so that rate="fit" has nothing to find; leave one out')
        elif z.ndim == 2 and z.shape[1] == 2:
            answers, rates = z[:, 0].long(), z[:, 1:].double().expand(-1, 2)
            wrong = ~((rates >= 0) & (rates < 1)).all(1) | (answers != z[:, 0])
            if bool(wrong.any()):
                first = int(wrong.nonzero()[0])
                raise ValueError(
                    f"z must hold an answer, 0 or 1, and a rate from 0 to less than 1, not so for "
                    f"{format_indices('group', wrong, groups.name)}: z[{first}] is {z[first].tolist()}"
                )
        else:
            raise ValueError(f"z must be an answer per group, or answer and rate; got shape {tuple(z.shape)}")
        return torch.cat([check_binary(answers, groups, n_classes)[:, None].double(), rates], 1)

    def log_prob_given_labels(self, labels: Any, groups: Groups, z: Any, n_classes: int) -> Tensor:
        truth = self.aggregate.observe(labels, groups, n_classes)
        answer, of_no, of_yes = self.check(z, groups, n_classes).unbind(1)
        wrong = torch.where(truth == 1, of_yes, of_no)
        return torch.where(truth == answer, 1 - wrong, wrong).log()

    def capturable(self, size: int, n_classes: int) -> bool:
        return self.aggregate.capturable(size, n_classes)

    def infer(self, log_probs: Tensor, segments: Segments, z: Tensor) -> tuple[Tensor, Tensor]:
        log_joint, posteriors = self._by_truth(log_probs, segments, z)
        log_likelihood = torch.logaddexp(*log_joint)
        posterior = torch.zeros_like(log_probs)
        for of_truth, of_members in zip(log_joint, posteriors, strict=True):
            share = segments.expand((of_truth - log_likelihood).exp())[:, None]
            posterior = posterior + torch.where(share > 0, share * of_members, 0.0)  # of no truth is NaN
        return log_likelihood, posterior

    def _by_truth(self, log_probs: Tensor, segments: Segments, z: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Return log p(z, truth | x) and the posterior given the truth, for no and for yes."""
        answer, of_no, of_yes = z.unbind(1)
        evidences = [
            Evidence(*self.aggregate.infer(log_probs, segments, torch.full_like(answer, truth, dtype=torch.bool)))
            for truth in (0, 1)
        ]
        log_noise = (
            torch.where(answer == 1, of_no, 1 - of_no).log(),
            torch.where(answer == 1, 1 - of_yes, of_yes).log(),
        )
        joint = [one.log_likelihood + own.to(log_probs.dtype) for one, own in zip(evidences, log_noise, strict=True)]
        return joint, [one.posterior for one in evidences]

    def estimate_rate(self, logits: Tensor, groups: Groups, z: Any) -> float:
        """Return the rate of wrong answers, one for all, that makes the answers most likely, from what a model says.

        By expectation maximisation. Where the model was trained on the same answers, it fits some of the wrong ones,
        and the rate is too low.
        """
        self.check_sizes(groups)
        log_probs = logits.detach().double().log_softmax(-1)[groups.members]
        return self.most_likely_rate(log_probs, groups.segments, self.check(z, groups, logits.shape[1]))

    def most_likely_rate(
        self, log_probs: Tensor, segments: Segments, z: Tensor, weights: Tensor | None = None
    ) -> float:
        """Return the same from checked arguments, by the weights of groups where these differ."""
        even = z.clone()
        even[:, 1:] = 0.5  # then truth and answer are independent
        wrong, right = self._by_answer(log_probs, segments, even)
        weights = torch.ones_like(wrong) if weights is None else weights.to(wrong)
        odds, rate = wrong - right, 0.25
        for _ in range(1000):
            log_odds = odds + math.log(rate) - math.log1p(-rate)
            before, rate = rate, float((log_odds.sigmoid() * weights).sum() / weights.sum())
            rate = min(max(rate, 1e-12), 1 - 1e-12)
            if abs(rate - before) < 1e-9:
                break
        return rate

    def chance_of_error(self, logits: Tensor, groups: Groups, z: Any) -> Tensor:
        """Return the probability that each answer is wrong, given the answer and what a model says: (groups,)."""
        self.check_sizes(groups)
        log_probs = logits.detach().double().log_softmax(-1)[groups.members]
        wrong, right = self._by_answer(log_probs, groups.segments, self.check(z, groups, logits.shape[1]))
        return (wrong - torch.logaddexp(wrong, right)).exp()

    def _by_answer(self, log_probs: Tensor, segments: Segments, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return log p(z, truth | x) where the answer is wrong, and where it is right."""
        no, yes = self._by_truth(log_probs, segments, z)[0]
        answered = z[:, 0] == 1
        return torch.where(answered, no, yes), torch.where(answered, yes, no)

    def with_rate(self, rate: float) -> Noisy:
        """Return the same with another rate."""
        return Noisy(self.aggregate, rate, self.seed)


def fits_rate(aggregate: Aggregate) -> TypeGuard[Noisy]:
    """Whether answers are wrong at a rate that is to be found."""
    return isinstance(aggregate, Noisy) and aggregate.fits_rate
