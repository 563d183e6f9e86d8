"""Binary observations with a rate of errors, by mistake or on purpose, as in randomised response."""

from __future__ import annotations

import math
from typing import Any, Literal, TypeGuard

import torch
from torch import Tensor

from unbag._kernels.segments import Segments
from unbag._utils.checks import raise_if_any
from unbag.aggregates.base import Aggregate, Evidence, check_binary
from unbag.data.alignment import read_per_group
from unbag.data.groups import Groups

Rate = float | tuple[float, float] | Literal["fit"]

FIRST_RATE = 0.4
"""Initial rate where it is estimated. With a lower rate, models fit the wrong answers, too."""


class Noisy(Aggregate):
    """Binary observations of any kind, with a rate of errors.

    ``p(z | x) = (1 - rate) p(answer = z | x) + rate p(answer != z | x)``. Randomised response has the same form: a
    person who answers truthfully with probability q, and by the toss of a coin otherwise, has an error rate of
    ``(1 - q) / 2``.

    Observations are 0 or 1 for each group, or an answer and its error rate, shape ``(groups, 2)``.

    Parameters
    ----------
    aggregate
        A binary kind, such as ``PairwiseSimilarity()``, ``MultipleInstance()`` or ``OrdinalRank()``.
    rate
        Error rate, at least 0 and less than 1; or two rates, for answers that are truly no and truly yes. With
        ``"fit"``, :class:`AggregateClassifier` estimates one rate from held-out answers.
    seed
        Seed of the errors that :meth:`observe` draws.

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
                f"aggregate must be a binary kind, such as unbag.PairwiseSimilarity(); got {aggregate!r}; for noisy "
                "counts use unbag.PublishedCounts"
            )
        self.fits_rate = isinstance(rate, str) and rate == "fit"
        first = FIRST_RATE if self.fits_rate else rate
        rates = tuple(first) if isinstance(first, tuple | list) else (first, first)
        if len(rates) != 2 or not all(isinstance(r, int | float) and 0 <= r < 1 for r in rates):
            raise ValueError(
                f'rate must be a number of at least 0 and less than 1, two such numbers, or "fit"; got {rate!r}'
            )
        self.aggregate, self.seed, self._rates = aggregate, seed, rates
        self.rate = "fit" if self.fits_rate else rates[0] if rates[0] == rates[1] else rates
        for trait in ("name", "size", "n_classes", "weights", "wording", "column"):
            setattr(self, trait, getattr(aggregate, trait, None))

    def observe(self, labels: Any, groups: Groups, n_classes: int) -> Tensor:
        truth = self.aggregate.observe(labels, groups, n_classes)
        drawn = torch.rand(len(truth), generator=torch.Generator().manual_seed(self.seed)).to(truth.device)
        return torch.where(drawn < torch.tensor(self._rates).to(drawn)[truth], 1 - truth, truth)

    def check(self, z: Any, groups: Groups, n_classes: int) -> Tensor:
        """Return the answer and the error rates for a true no and a true yes, shape ``(groups, 3)``."""
        z = read_per_group(z, groups)
        if z.ndim == 1:
            answers, rates = z, torch.tensor(self._rates, dtype=torch.float64, device=z.device).expand(len(z), 2)
        elif z.ndim == 2 and z.shape[1] == 2 and self.fits_rate:
            raise ValueError('z has an error rate for each answer, so rate="fit" cannot apply; remove one of the two')
        elif z.ndim == 2 and z.shape[1] == 2:
            answers, rates = z[:, 0].long(), z[:, 1:].double().expand(-1, 2)
            raise_if_any(
                ~((rates >= 0) & (rates < 1)).all(1) | (answers != z[:, 0]),
                "z must hold an answer, 0 or 1, and a rate of at least 0 and less than 1",
                lambda first: f"z[{first}] is {z[first].tolist()}",
                groups.name,
            )
        else:
            raise ValueError(f"z must be an answer per group, or answer and rate; got shape {tuple(z.shape)}")
        return torch.cat([check_binary(answers, groups, n_classes)[:, None].double(), rates], 1)

    def log_prob_given_labels(self, labels: Any, groups: Groups, z: Any, n_classes: int) -> Tensor:
        truth = self.aggregate.observe(labels, groups, n_classes)
        answer, no_rate, yes_rate = self.check(z, groups, n_classes).unbind(1)
        wrong = torch.where(truth == 1, yes_rate, no_rate)
        return torch.where(truth == answer, 1 - wrong, wrong).log()

    def capturable(self, size: int, n_classes: int) -> bool:
        return self.aggregate.capturable(size, n_classes)

    def infer(self, log_probs: Tensor, segments: Segments, z: Tensor) -> tuple[Tensor, Tensor]:
        log_joint, posteriors = self._by_truth(log_probs, segments, z)
        log_likelihood = torch.logaddexp(*log_joint)
        posterior = torch.zeros_like(log_probs)
        for log_truth, conditional in zip(log_joint, posteriors, strict=True):
            share = segments.expand((log_truth - log_likelihood).exp())[:, None]
            posterior = posterior + torch.where(share > 0, share * conditional, 0.0)  # NaN if the truth is impossible
        return log_likelihood, posterior

    def _by_truth(self, log_probs: Tensor, segments: Segments, z: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Return log p(z, truth | x) and the posterior given the truth, for no and for yes."""
        answer, no_rate, yes_rate = z.unbind(1)
        evidences = [
            Evidence(*self.aggregate.infer(log_probs, segments, torch.full_like(answer, truth, dtype=torch.bool)))
            for truth in (0, 1)
        ]
        log_noise = (
            torch.where(answer == 1, no_rate, 1 - no_rate).log(),
            torch.where(answer == 1, 1 - yes_rate, yes_rate).log(),
        )
        joint = [e.log_likelihood + noise.to(log_probs.dtype) for e, noise in zip(evidences, log_noise, strict=True)]
        return joint, [e.posterior for e in evidences]

    def estimate_rate(self, logits: Tensor, groups: Groups, z: Any) -> float:
        """Estimate the common error rate by maximum likelihood, from the predictions of a model.

        A model that was trained on the same answers fits some of the errors, which makes the estimate too low.
        """
        return self.most_likely_rate(*self._checked(logits, groups, z))

    def most_likely_rate(
        self, log_probs: Tensor, segments: Segments, z: Tensor, weights: Tensor | None = None
    ) -> float:
        """Estimate the rate by expectation-maximisation from validated arguments, with weights of groups."""
        even = z.clone()
        even[:, 1:] = 0.5  # truth and answer are then independent
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
        """Return the posterior probability that each answer is wrong, shape ``(groups,)``."""
        wrong, right = self._by_answer(*self._checked(logits, groups, z))
        return (wrong - torch.logaddexp(wrong, right)).exp()

    def _checked(self, logits: Tensor, groups: Groups, z: Any) -> tuple[Tensor, Segments, Tensor]:
        """Return the arguments of :meth:`infer`."""
        self.check_sizes(groups)
        log_probs = logits.detach().double().log_softmax(-1)[groups.members]
        return log_probs, groups.segments, self.check(z, groups, logits.shape[1])

    def _by_answer(self, log_probs: Tensor, segments: Segments, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return log p(z, truth | x) for a wrong and for a right answer."""
        no, yes = self._by_truth(log_probs, segments, z)[0]
        answered = z[:, 0] == 1
        return torch.where(answered, no, yes), torch.where(answered, yes, no)

    def with_rate(self, rate: float) -> Noisy:
        """Return the kind with a given rate."""
        return Noisy(self.aggregate, rate, self.seed)


def fits_rate(aggregate: Aggregate) -> TypeGuard[Noisy]:
    """Return whether the error rate is to be estimated."""
    return isinstance(aggregate, Noisy) and aggregate.fits_rate
