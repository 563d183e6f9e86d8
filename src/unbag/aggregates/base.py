"""Base class of aggregates: checks, gradients, and the computation of evidence from logits."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from unbag._kernels.logspace import class_major, log_softmax
from unbag._kernels.segments import Segments
from unbag._utils.checks import ImpossibleObservation, as_tensor, check_n_classes, describe, format_indices, is_integral
from unbag.aggregates.traits import Traits
from unbag.data.alignment import match_columns, read_per_group, read_with_columns
from unbag.data.groups import Groups

Impossible = Literal["-inf", "raise"]

MOST_MEMBERSHIPS = 2**17
"""Memberships beyond which groups are inferred one run after the other, each of so many or of a single group."""


class Evidence(NamedTuple):
    """What an observation says of its groups: how likely it is, and the labels it leaves likely."""

    log_likelihood: Tensor  # (groups,), differentiable
    posterior: Tensor  # (memberships, k), detached; rows sum to one


class Aggregate(Traits, ABC):
    """One kind of aggregate observation: a function of the labels of a group.

    A subclass says what the observation is (:meth:`observe`), which values it can take (:meth:`check`) and how
    likely it is. For the last it defines one of two: :meth:`log_prob`, differentiable, from which the posterior
    follows by a gradient; or :meth:`infer`, which returns both by a closed form or a forward-backward pass.
    What else there is to know of it are class attributes; see :class:`unbag.aggregates.traits.Traits`.
    :func:`unbag.testing.check_aggregate` tests the result.
    """

    @abstractmethod
    def observe(self, labels: Any, groups: Groups, n_classes: int) -> Tensor:
        """Return the observation of each group, from true labels, one per row."""

    @abstractmethod
    def check(self, z: Any, groups: Groups, n_classes: int) -> Tensor:
        """Return the observations as the tensor that :meth:`infer` takes, or say what is wrong with them."""

    def log_prob_given_labels(self, labels: Any, groups: Groups, z: Any, n_classes: int) -> Tensor:
        """Return log p(z | y) of each group, (groups,), from labels, one per row.

        Unless a subclass observes with noise, the observation is a function of the labels: 0 where it is z, else -inf.
        """
        seen = self.check(self.observe(labels, groups, n_classes), groups, n_classes)
        same = (seen == self.check(z, groups, n_classes)).reshape(len(groups), -1).all(1)
        return torch.zeros(len(groups), dtype=torch.float64, device=groups.device).masked_fill(~same, float("-inf"))

    def log_prob(self, log_probs: Tensor, segments: Segments, z: Tensor) -> Tensor:
        """Return log p(z | x) of each group from checked arguments, differentiable in ``log_probs``.

        ``log_probs`` holds the log-probabilities of the classes, one row per membership; ``segments`` says which of
        these belong to which group. Other aggregates may be asked with the same arguments.
        """
        if type(self).infer is Aggregate.infer:
            raise TypeError(f"{type(self).__name__} must define log_prob or infer")
        return self.checked_evidence(log_probs, segments, z).log_likelihood

    def infer(self, log_probs: Tensor, segments: Segments, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return log p(z | x) per group and p(y | z, x) per membership, from checked arguments; no gradients.

        Unless a subclass knows a faster way, the posterior is ``softmax + d log_prob / d logits``. What it says of a
        group whose observation is impossible, of likelihood ``-inf``, is not looked at. It may be in float64 where
        ``log_probs`` are not: large groups hardly change the chances of a member, and what they change is the gradient.
        """
        with torch.enable_grad():
            logits = log_probs.detach().requires_grad_()
            log_likelihood = self.log_prob(logits.log_softmax(-1), segments, z)
            (slope,) = torch.autograd.grad(log_likelihood.sum(), logits)
        return log_likelihood.detach(), log_probs.exp() + slope

    def capturable(self, size: int, n_classes: int) -> bool:
        """Whether :meth:`infer` on groups of one size leaves the device running, without asking it for a number.

        Only then can a step on a GPU be captured as a graph.
        """
        return False

    def for_training(self) -> Aggregate:
        """Return the same observation at less cost, where an approximation is good enough to learn by."""
        return self

    def expect(self, log_probs: Tensor, groups: Groups) -> Tensor:
        """Return the expected observation of each group, from the log-probabilities of its members.

        Of yes or no it is the probability of yes; a subclass that observes counts returns the expected ones.
        """
        n_classes = log_probs.shape[1]
        if not self.is_binary(groups, n_classes):
            raise ValueError(
                f"{type(self).__name__} may observe many things; say which with z=, one per group, to get its "
                "probability"
            )
        yes = self.check(torch.ones(len(groups), dtype=torch.int64, device=groups.device), groups, n_classes)
        return self.likelihood_and_posterior(log_probs, groups.segments, yes)[0].exp()

    def evidence(
        self, logits: Tensor, groups: Groups, z: Any, *, impossible: Impossible = "-inf", classes: Any = None
    ) -> Evidence:
        """Return likelihood and posterior from one pass; see the methods of those names."""
        if impossible not in ("-inf", "raise"):
            raise ValueError(f"impossible must be '-inf' or 'raise', got {impossible!r}")
        self.check_sizes(groups)
        logits_of_members = member_logits(logits, groups)
        z, columns = read_with_columns(z, groups)
        if classes is not None and columns is not None and self.has_class_columns:
            z = z[:, match_columns(columns, list(classes))]
        evidence = self.named_evidence(logits_of_members, groups, self.check(z, groups, logits.shape[1]))
        if impossible == "raise":
            raise_if_impossible(evidence.log_likelihood, groups, z)
        return evidence

    def named_evidence(self, logits_of_members: Tensor, groups: Groups, z: Tensor) -> Evidence:
        """Return the same from what :meth:`check` returned; an error names the groups that have no likelihood."""
        raise_if_undefined(logits_of_members.detach(), groups)
        evidence = self.checked_evidence(logits_of_members, groups.segments, z)
        if bool((lost := evidence.log_likelihood.detach().isnan()).any()):
            raise ArithmeticError(
                f"no likelihood was found for {format_indices('group', lost, groups.name)}: {self!r} did not converge; "
                "look for logits beyond 10,000"
            )
        return evidence

    def checked_evidence(self, logits_of_members: Tensor, segments: Segments, z: Tensor) -> Evidence:
        """Return the same from arguments that were checked before, as in the steps of a training loop.

        Parameters
        ----------
        logits_of_members
            One row per membership, in float32 or float64.
        segments
            The memberships of each group.
        z
            What :meth:`check` returned.
        """
        with full_precision(logits_of_members.device.type):
            return Evidence(*_InferWithGradient.apply(logits_of_members, self, segments, z))

    def smooth_log_likelihood(self, logits: Tensor, segments: Segments, z: Tensor) -> Tensor:
        """Compute the cheapest smooth approximation of the log-likelihood of each group, differentiable.

        Optimisers on all rows call it hundreds of times. By default it is exact; a kind whose exact likelihood is
        expensive overrides it. Arguments are those of :meth:`checked_evidence`.
        """
        return self.checked_evidence(logits, segments, z).log_likelihood

    def likelihood_and_posterior(self, log_probs: Tensor, segments: Segments, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return likelihood and posterior without gradients, from what :meth:`infer` takes; NaN goes unnoticed."""
        if len(log_probs) > MOST_MEMBERSHIPS and len(segments) > 1 and not is_tracing(log_probs):
            log_likelihood, posterior = self._infer_in_runs(log_probs, segments, z)
        else:
            log_likelihood, posterior = self.infer(log_probs, segments, z)
        # Where there is no posterior it is NaN, whatever a kernel left there.
        if not is_tracing(log_likelihood) and log_likelihood.amin().item() > float("-inf"):
            return log_likelihood, posterior
        impossible = log_likelihood == float("-inf")
        return log_likelihood, posterior.masked_fill(segments.expand(impossible)[:, None], float("nan"))

    def _infer_in_runs(self, log_probs: Tensor, segments: Segments, z: Tensor) -> tuple[Tensor, Tensor]:
        """Infer some groups after others, so that what a kernel needs on its way stays small."""
        runs = segments.runs(MOST_MEMBERSHIPS)
        inferred = [self.infer(log_probs[members], run, z[which]) for which, members, run in runs]
        log_likelihoods, posteriors = zip(*inferred, strict=True)
        return torch.cat(log_likelihoods), torch.cat(posteriors)

    def log_likelihood(
        self, logits: Tensor, groups: Groups, z: Any, *, impossible: Impossible = "-inf", classes: Any = None
    ) -> Tensor:
        """Return log p(z | x_1..x_m) of each group, differentiable once.

        Parameters
        ----------
        logits
            One row per instance, shape ``(n, k)``. Half precision is computed in float32. A logit of ``-inf`` rules
            a class out.
        groups
            Which rows form which group.
        z
            One observation per group: a dict from id, or a table or column of pandas with the ids of the groups as its
            index, in any order; or in the order of the groups.
        impossible
            Where the logits rule the observation out, the likelihood is ``-inf`` and the posterior, which does not
            exist, is NaN; ``"raise"`` names the groups instead.
        classes
            The names of the classes in the order of the columns of ``logits``, to match the columns of a table by name.
            None: the columns of ``z`` are in the order of those of ``logits``.

        Returns
        -------
        Tensor
            Shape ``(groups,)``.
        """
        return self.evidence(logits, groups, z, impossible=impossible, classes=classes).log_likelihood

    def posterior(
        self, logits: Tensor, groups: Groups, z: Any, *, impossible: Impossible = "-inf", classes: Any = None
    ) -> Tensor:
        """Return p(y_i = j | z, x_1..x_m) of each membership, in the order of ``groups.members``; detached.

        Takes what :meth:`log_likelihood` takes. Shape ``(memberships, k)``; rows sum to one.
        """
        with torch.no_grad():
            return self.evidence(logits, groups, z, impossible=impossible, classes=classes).posterior

    def __repr__(self) -> str:
        names = [name for name in inspect.signature(type(self)).parameters if hasattr(self, name)]
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    def check_sizes(self, groups: Groups) -> None:
        """Refuse groups of other sizes than this observation is made of."""
        _check_groups(groups)
        if self.size is not None and groups.uniform_size != self.size:
            wrong = groups.sizes != self.size
            first = int(wrong.nonzero()[0])
            raise ValueError(
                f"{type(self).__name__} needs groups of {self.size} members, not so for "
                f"{format_indices('group', wrong, groups.name)}: group {first} has {int(groups.sizes[first])}"
            )


class _InferWithGradient(torch.autograd.Function):
    """Fisher's identity as a backward pass: d log p(z | x) / d logits = posterior - softmax."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, aggregate: Aggregate, segments: Segments, z: Tensor) -> tuple[Tensor, Tensor]:
        log_probs = log_softmax(class_major(logits))
        log_likelihood, posterior = aggregate.likelihood_and_posterior(log_probs, segments, z)
        if ctx.needs_input_grad[0]:
            ctx.save_for_backward(gradient_in_logits(posterior, log_probs))
            ctx.segments = segments
        posterior = posterior.to(log_probs.dtype)
        ctx.mark_non_differentiable(posterior)
        return log_likelihood, posterior

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, None, None, None]:
        return chain_gradient(ctx.saved_tensors[0], grad, ctx.segments), None, None, None


def gradient_in_logits(weights: Tensor, log_probs: Tensor) -> Tensor:
    """Return the gradient of ``sum_j weights_j log p_j`` in the logits, for weights that add up to one.

    With the posterior as weights it is that of log p(z | x), by Fisher's identity. Weights in float64 keep the digits
    of a small difference.
    """
    if weights.dtype == log_probs.dtype:
        probs = log_probs.exp()
        return torch.sub(weights, probs, out=probs)  # further memory would cost as much as the subtraction
    probs = log_probs.to(weights.dtype).exp()
    return (weights - probs.div_(probs.sum(1, keepdim=True))).to(log_probs.dtype)


def chain_gradient(of_members: Tensor, grad: Tensor, segments: Segments) -> Tensor:
    """Multiply the gradient of each membership by that of its group.

    A group that does not count has none, even where its observation is impossible and its own gradient is NaN.
    """
    factor = segments.expand(grad)[:, None]
    return (of_members * factor).masked_fill_(factor == 0, 0)


_recorded = ContextVar("_recorded", default=False)


def is_tracing(tensor: Tensor) -> bool:
    """Whether what is done with a tensor becomes part of a CUDA graph, which must not wait for a number."""
    return _recorded.get() or (tensor.is_cuda and torch.cuda.is_current_stream_capturing())


@contextmanager
def tracing() -> Iterator[None]:
    """Have all that is done be as if it became part of such a graph."""
    before = _recorded.set(True)
    try:
        yield
    finally:
        _recorded.reset(before)


def full_precision(device_type: str) -> AbstractContextManager[Any]:
    """Keep an autocast region from computing the evidence in half precision."""
    if torch.is_autocast_enabled(device_type):
        return torch.autocast(device_type, enabled=False)
    return nullcontext()


def member_logits(logits: Tensor, groups: Groups) -> Tensor:
    """Return the logits of each membership in full precision, or say what is wrong with them."""
    if not isinstance(logits, Tensor) or not logits.is_floating_point() or logits.ndim != 2:
        raise TypeError(f"logits must be a floating-point tensor of shape (rows, classes), got {describe(logits)}")
    if logits.shape[1] < 2:
        raise ValueError(
            f"logits needs a column for each of at least 2 classes, got {describe(logits)}; "
            "for one logit of a positive class use torch.cat([torch.zeros_like(f), f], 1)"
        )
    if logits.device != groups.device:
        raise ValueError(f"logits are on {logits.device}, but the groups are on {groups.device}; move one of them")
    _check_rows(logits, "logits", groups)
    return groups.gather(logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits)


def check_labels(labels: Any, groups: Groups, n_classes: int) -> Tensor:
    """Return the label of each membership, from one label per row."""
    _check_groups(groups)
    check_n_classes(n_classes)
    labels = as_tensor(labels, "labels", groups.device)
    if labels.ndim != 1 or not is_integral(labels):
        raise TypeError(f"labels must be whole numbers, one per row; got {describe(labels)}")
    _check_rows(labels, "labels", groups)
    if bool((wrong := (labels < 0) | (labels >= n_classes)).any()):
        first = int(wrong.nonzero()[0])
        raise ValueError(
            f"labels must be from 0 to {n_classes - 1}, not so for {format_indices('row', wrong)}: "
            f"row {first} has {int(labels[first])}"
        )
    return groups.gather(labels).long()


def check_binary(z: Any, groups: Groups, n_classes: int) -> Tensor:
    """Return observations that are 0 or 1, one per group, as booleans."""
    check_n_classes(n_classes)
    z = read_per_group(z, groups)
    if z.shape != (len(groups),):
        raise ValueError(f"z must have one entry per group, shape ({len(groups)},); got shape {tuple(z.shape)}")
    if z.dtype == torch.bool:
        return z
    if not is_integral(z):
        raise TypeError(f"z must be 0 or 1 as whole numbers or booleans, got {z.dtype}; convert it with z.long()")
    z = z.long()
    low, high = z.aminmax()
    if int(low) < 0 or int(high) > 1:
        wrong = (z != 0) & (z != 1)
        first = int(wrong.nonzero()[0])
        raise ValueError(
            f"z must be 0 or 1, not so for {format_indices('group', wrong, groups.name)}: z[{first}] is {int(z[first])}"
        )
    return z.bool()


def _check_groups(groups: Groups) -> None:
    if not isinstance(groups, Groups):
        raise TypeError(
            f"groups must be unbag.Groups, got {describe(groups)}; from one id per row, make them with "
            "unbag.Groups.from_ids(ids)"
        )


def _check_rows(table: Tensor, name: str, groups: Groups) -> None:
    if groups.n_rows is not None and len(table) != groups.n_rows:
        raise ValueError(f"{name} has {len(table)} rows, but the groups were made for {groups.n_rows}")
    if groups.last_row >= len(table):
        raise ValueError(
            f"row number {groups.last_row} is out of range for {name} of {len(table)} rows; "
            f"see {groups.format_groups_holding(groups.members >= len(table))}"
        )


def raise_if_impossible(log_likelihood: Tensor, groups: Groups, z: Any) -> None:
    """Name the groups whose observations have a log-likelihood of ``-inf``, if there are any."""
    impossible = log_likelihood.detach() == float("-inf")
    if bool(impossible.any()):
        first = int(impossible.nonzero()[0])
        z = read_per_group(z, groups)
        raise ImpossibleObservation(
            f"the logits rule out the observations of {format_indices('group', impossible, groups.name)}: "
            f"z[{first}] = {z[first].tolist()} has probability zero; look for logits of -inf"
        )


def raise_if_undefined(logits_of_members: Tensor, groups: Groups) -> None:
    """Name the rows whose logits are no distribution over classes, if there are any."""
    if bool(torch.isfinite(logits_of_members.sum())):  # then there are none; else it is worth a look
        return
    rows_with = {
        "NaN": logits_of_members.isnan().any(1),
        "+inf": (logits_of_members == float("inf")).any(1),
        "-inf for every class": (logits_of_members == float("-inf")).all(1),
    }
    for what, wrong in rows_with.items():
        if bool(wrong.any()):
            raise ValueError(
                f"logits must give every row a distribution over classes, but there is {what} in "
                f"{format_indices('row', wrong, lambda place: str(int(groups.members[place])))}; "
                "look for a diverged model or missing features"
            )
